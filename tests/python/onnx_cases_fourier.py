"""Cases for make_onnx_cases.py: transforms of signals."""
import numpy as np


def add_dft(b):
    with b.onnx_reference():
        # One matrix, several factors, long primes with and without a matrix of their own, products of those.
        for n in (1, 2, 3, 7, 64, 65, 100, 128, 129, 243, 401, 400, 512, 997, 1000, 1024, 1994, 4099):
            b.op(f"dft_{n}", "DFT", [(2, n, 2)], 17, axis=1)
            b.op(f"dft_real_{n}", "DFT", [(2, n, 1)], 17, axis=1)
            b.op(f"dft_half_{n}", "DFT", [(2, n, 1)], 17, axis=1, onesided=1)
            b.op(f"dft_inverse_{n}", "DFT", [(2, n, 2)], 17, axis=1, inverse=1)
        for axis in (0, 1, 2, -2, -4):
            b.op(f"dft_axis_{axis}".replace("-", "m"), "DFT", [(3, 4, 5, 2), None, np.int64(axis)], 20, constants=(2,))
        for length in (3, 5, 8, 100):
            b.op(f"dft_length_{length}", "DFT", [(2, 5, 2), np.int64(length)], 20, constants=(1,))
            b.op(f"dft_back_length_{length}", "DFT", [(2, 5, 2), np.int64(length)], 20, constants=(1,), inverse=1,
                 onesided=1)
        for n in (2, 5, 33, 129, 501):
            b.op(f"dft_back_{n}", "DFT", [(2, n, 2)], 20, inverse=1, onesided=1)
        b.op("dft_axis_given", "DFT", [(3, 4, 5, 2), None, np.int64(1)], 20)
        b.op("dft_f64", "DFT", [b.random("dft_f64").standard_normal((3, 270, 2))], 20)
        b.op("dft_f16", "DFT", [b.random("dft_f16").standard_normal((3, 60, 2)).astype(np.float16)], 20)
        for name, length, step, frame, window in [("plain", 50, 7, 16, False), ("window", 64, 8, 16, True),
                                                  ("speech", 1600, 160, 400, True), ("one", 30, 3, 30, True)]:
            random = b.random(name)
            hann = np.hanning(frame).astype(np.float32) if window else np.ones(frame, np.float32)
            for onesided in (0, 1):
                signal = random.standard_normal((2, length, 1)).astype(np.float32)
                b.op(f"stft_{name}_{onesided}", "STFT", [signal, np.int64(step), hann, np.int64(frame)], 17,
                     constants=(1, 3), onesided=onesided)
            b.op(f"stft_step_given_{name}", "STFT", [(2, length, 1), np.int64(step), hann], 17)
        b.op("stft_complex", "STFT", [(2, 40, 2), np.int64(5), np.hamming(10).astype(np.float32)], 17, constants=(1,),
             onesided=0)
        for name, bins, length, rate, low, high in [("small", 8, 16, 8192, 0, 4096), ("speech", 40, 400, 16000, 20, 8000),
                                                    ("dense", 80, 256, 16000, 0, 8000)]:
            values = [np.int64(bins), np.int64(length), np.int64(rate), np.float32(low), np.float32(high)]
            b.op(f"mel_{name}", "MelWeightMatrix", values, 17, constants=(0, 1, 2, 3, 4))
            b.op(f"mel_given_{name}", "MelWeightMatrix", values, 17)


def add_cases(b):
    add_dft(b)
