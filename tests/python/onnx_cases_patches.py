"""Cases for make_onnx_cases.py: images as patches and grids, deformed convolutions, caches, determinants, n-grams."""
import numpy as np


def add_patches(b):
    for name, image, block, extra in [
            ("plain", [5, 5], [1, 5], {}), ("overlap", [6, 7], [3, 2], {}), ("tiles", [6, 8], [2, 4], {"strides": [2, 4]}),
            ("gaps", [7, 7], [2, 2], {"strides": [3, 3]}), ("pads", [5, 4], [3, 3], {"pads": [1, 0, 1, 2]}),
            ("dilated", [9, 8], [2, 3], {"dilations": [3, 2], "strides": [2, 1]}), ("volume", [3, 4, 5], [2, 1, 3], {})]:
        rank = len(image)
        strides, dilations = extra.get("strides", [1] * rank), extra.get("dilations", [1] * rank)
        pads = extra.get("pads", [0] * 2 * rank)
        counts = [(image[d] + pads[d] + pads[d + rank] - dilations[d] * (block[d] - 1) - 1) // strides[d] + 1
                  for d in range(rank)]
        shape = (2, 3 * int(np.prod(block)), int(np.prod(counts)))
        for given in ((), (1, 2)):
            b.op(f"col2im_{name}{'_given' if not given else ''}", "Col2Im", [shape, np.array(image), np.array(block)], 18,
                 constants=given, **extra)
    for align in (0, 1):
        for size in ([2, 3, 4, 5], [1, 1, 7, 2], [2, 1, 3, 4, 5], [1, 1, 2, 2, 2]):
            theta = (size[0], len(size) - 2, len(size) - 1)
            b.op(f"affine_grid_{align}_{'x'.join(map(str, size))}", "AffineGrid", [theta, np.array(size)], 20,
                 constants=(1,), align_corners=align)
        b.op(f"affine_grid_given_{align}", "AffineGrid", [(2, 2, 3), np.array([2, 1, 6, 5])], 20, align_corners=align)
    with b.onnx_reference():
        for name, x, w, offset_groups, mask, bias, extra in [
                ("plain", (1, 2, 5, 6), (3, 2, 2, 3), 1, False, False, {}),
                ("mask", (2, 4, 6, 5), (4, 2, 3, 3), 2, True, True, {"group": 2, "pads": [1, 1, 1, 1]}),
                ("stride", (1, 3, 9, 9), (2, 3, 3, 3), 3, True, False, {"strides": [2, 2], "dilations": [2, 1]}),
                ("one", (1, 1, 4, 4), (1, 1, 1, 1), 1, False, True, {})]:
            random = b.random(name)
            kernel, places = w[2:], []
            pads, strides, dilations = extra.get("pads", [0] * 4), extra.get("strides", [1, 1]), extra.get("dilations", [1, 1])
            for d in range(2):
                places.append((x[d + 2] + pads[d] + pads[d + 2] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1)
            taps = kernel[0] * kernel[1]
            inputs = [x, w, (x[0], offset_groups * taps * 2, *places), (w[0],) if bias else None,
                      random.uniform(0, 1, (x[0], offset_groups * taps, *places)).astype(np.float32) if mask else None]
            while inputs[-1] is None:
                inputs.pop()
            b.op(f"deform_conv_{name}", "DeformConv", inputs, 19, kernel_shape=list(kernel), offset_group=offset_groups,
                 **extra)
        for name, x, u, where, mode, axis in [
                ("start", (2, 6, 3), (2, 4, 3), None, "linear", 1), ("where", (3, 2, 7, 4), (3, 2, 2, 4), [0, 5, 2], "linear", -2),
                ("circular", (3, 2, 5, 4), (3, 2, 3, 4), [4, 0, 3], "circular", 2), ("all", (2, 4, 3), (2, 4, 3), [0, 2], "circular", 1),
                ("last", (2, 3, 6), (2, 3, 1), [5, 0], "linear", -1)]:
            inputs = [x, u] + ([] if where is None else [np.array(where)])
            b.op(f"tensor_scatter_{name}", "TensorScatter", inputs, 24, mode=mode, axis=axis)
    for n in (1, 2, 3, 5, 17):
        b.op(f"det_{n}", "Det", [(4, n, n)], 11)
    b.op("det_one", "Det", [(6, 6)], 22)
    b.op("det_batch", "Det", [(2, 3, 4, 4)], 11)
    with b.onnx_reference():
        b.op("det_f64", "Det", [b.random("det").standard_normal((2, 5, 5))], 11)
    b.op("det_singular", "Det", [np.float32([[[1, 2, 3], [2, 4, 6], [1, 0, 1]], [[0, 0, 0], [1, 2, 3], [4, 5, 6]],
                                             [[0, 1, 0], [1, 0, 0], [0, 0, 1]]])], 11)


def add_ngrams(b):
    pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 2, 5, 4]
    grams = dict(ngram_counts=[0, 4, 10], ngram_indexes=[0, 1, 2, 3, 4, 5, 6, 8], pool_int64s=pool)
    for dtype in (np.int32, np.int64):
        for shape in ((12,), (3, 12), (2, 2), (1, 1)):
            tokens = b.random("tokens").integers(2, 9, shape).astype(dtype)
            for low, high, skip in [(1, 1, 0), (1, 3, 2), (2, 2, 0), (2, 3, 4), (3, 3, 1)]:
                name = f"ngrams_{np.dtype(dtype).name}_{'x'.join(map(str, shape))}_{low}{high}{skip}"
                b.op(name, "TfIdfVectorizer", [tokens], 9, mode="TF", min_gram_length=low, max_gram_length=high,
                     max_skip_count=skip, **grams)
    tokens = b.random("tokens").integers(2, 9, (3, 20)).astype(np.int64)
    weights = [0.5, 2.0, 1.5, 0.25, 3.0, 4.0, 0.125, 1.0]
    turned = dict(grams, ngram_indexes=[3, 0, 7, 1, 2, 6, 5, 4])
    for mode in ("TF", "IDF", "TFIDF"):
        b.op(f"ngrams_{mode}", "TfIdfVectorizer", [tokens], 9, mode=mode, min_gram_length=1, max_gram_length=2,
             max_skip_count=3, **grams)
        b.op(f"ngrams_{mode}_weights", "TfIdfVectorizer", [tokens], 9, mode=mode, min_gram_length=1, max_gram_length=2,
             max_skip_count=3, weights=weights, **turned)
    b.op("ngrams_shared", "TfIdfVectorizer", [tokens], 9, mode="TF", min_gram_length=1, max_gram_length=2,
         max_skip_count=0, ngram_counts=[0, 4], ngram_indexes=[0, 1, 1, 3, 0, 5, 5], pool_int64s=pool[:10])


def add_cases(b):
    add_patches(b)
    add_ngrams(b)
