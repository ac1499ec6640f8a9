#!/usr/bin/env python3
"""A recurrent network on a minute of speech: silero-vad, chunk by chunk, its state fed back. The probability of speech of
each chunk, and the spans of speech, must be those that stand beside the model."""
import json
import unittest
import wave

import numpy as np
import onnxruntime

import tessera
from test_data import find_test_data

CONTEXT, THRESHOLD = 64, 0.5


def chunks(samples, size):
    """Each with the end of the chunk before in front, as the network wants them."""
    before = np.zeros(CONTEXT * size // 512, np.float32)
    for begin in range(0, len(samples) - size + 1, size):
        chunk = samples[begin:begin + size]
        yield np.concatenate([before, chunk])[np.newaxis]
        before = chunk[-len(before):]


def spans(probabilities, seconds):
    """[begin, end] in seconds of the runs of chunks at or above the threshold."""
    is_speech = np.concatenate([[False], np.asarray(probabilities) >= THRESHOLD, [False]])
    edges = np.flatnonzero(is_speech[1:] != is_speech[:-1])
    return [[round(begin * seconds, 3), round(end * seconds, 3)] for begin, end in zip(edges[::2], edges[1::2])]


class Speech(unittest.TestCase):
    def read_audio(self):
        path = find_test_data("real/silero-vad/test_16k.wav")
        if path is None:
            self.skipTest("real/silero-vad is neither in TESSERA_TEST_DATA nor in ../shared")
        with wave.open(str(path)) as file:
            self.assertEqual((file.getnchannels(), file.getsampwidth(), file.getframerate()), (1, 2, 16000))
            return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768

    def check(self, folder):
        audio = self.read_audio()
        folder = find_test_data(f"real/{folder}")
        if folder is None:
            self.skipTest("the model is neither in TESSERA_TEST_DATA nor in ../shared")
        model = tessera.compile(folder / "model.onnx", shapes={"input": (1, 576), "state": (2, 1, 128)}, threads=1)
        names = [info.name for info in model.inputs]
        expected = json.loads((folder / "expected.json").read_text())["audio"]["test_16k"]
        want = np.load(folder / "expected_probabilities_test_16k.npy").ravel()
        self.assertEqual((len(want), expected["chunk"]), (expected["chunks"], 512))

        state = np.zeros((2, 1, 128), np.float32)
        probabilities = []
        for chunk in chunks(audio, 512):
            given = {"input": chunk, "state": state, "sr": np.int64(16000)}
            probability, state = model.run({name: given[name] for name in names})
            probabilities.append(probability.item())
        # The same with the state updated in place.
        state, in_place = np.zeros((2, 1, 128), np.float32), []
        for chunk in chunks(audio[:512 * 100], 512):
            given = {"input": chunk, "state": state, "sr": np.int64(16000)}
            in_place.append(model.run({name: given[name] for name in names}, {"stateN": state})[0].item())
        self.assertEqual(in_place, probabilities[:100])

        np.testing.assert_allclose(probabilities, want, rtol=0, atol=1e-3)
        self.assertEqual(sum(p >= THRESHOLD for p in probabilities), expected["speech_chunks"])
        self.assertEqual(spans(probabilities, 512 / 16000), expected["speech_seconds"])

        for step in (0, 20, 1135):
            inputs = [np.load(folder / f"input_step{step}_{i}.npy") for i in range(3)]
            inputs[2] = inputs[2].reshape(())
            results = model.run({name: dict(zip(("input", "state", "sr"), inputs))[name] for name in names})
            for i, result in enumerate(results):
                np.testing.assert_allclose(result, np.load(folder / f"expected_step{step}_{i}.npy"), rtol=1e-3, atol=1e-4)

    def test_the_network_for_16_khz(self):
        self.check("silero-vad-16k-op15")

    def test_the_network_for_both_rates(self):
        self.check("silero-vad")

    def test_the_other_rate_agrees_with_onnx_runtime(self):
        audio = self.read_audio()
        audio = (audio[::2] + audio[1::2]) / 2  # 8 kHz, well enough
        path = find_test_data("real/silero-vad/model.onnx")
        reference = onnxruntime.InferenceSession(path)
        model = tessera.compile(path, shapes={"input": (1, 288), "state": (2, 1, 128)}, threads=1)
        state, want_state, highest = np.zeros((2, 1, 128), np.float32), np.zeros((2, 1, 128), np.float32), 0
        for chunk in chunks(audio[:256 * 300], 256):
            rate = np.array(8000, np.int64)
            want, want_state = reference.run(None, {"input": chunk, "state": want_state, "sr": rate})
            got, _ = model.run({"input": chunk, "state": state, "sr": rate}, {"stateN": state})
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-3)
            highest = max(highest, want.item())
        self.assertGreater(highest, 0.9)


if __name__ == "__main__":
    unittest.main(verbosity=1)
