"""Cases for make_onnx_cases.py: the operators of ai.onnx.ml over numbers."""
import numpy as np
from onnx import TensorProto, helper

ML = {"domain": "ai.onnx.ml"}


def random_trees(random, trees, depth, features, targets, weights_per_leaf, modes, integer=False):
    """The attributes nodes_* of random trees, and lists of (tree, node, target, weight) of their leaves."""
    names = ["nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids",
             "nodes_modes", "nodes_values"]
    nodes = {name: [] for name in names}
    leaves = []
    for tree in range(trees):
        count = 0

        def grow(level):
            nonlocal count
            number, count = count, count + 1
            at = len(nodes["nodes_treeids"])
            for name, value in zip(names, [tree, number, 0, 0, 0, "LEAF", 0.0]):
                nodes[name].append(value)
            if level == depth or (level > 0 and random.random() < 0.2):
                chosen = random.choice(targets, min(weights_per_leaf, targets), replace=False)
                leaves.extend((tree, number, int(t), float(np.float32(random.standard_normal()))) for t in chosen)
                return number
            nodes["nodes_modes"][at] = str(random.choice(modes))
            nodes["nodes_featureids"][at] = int(random.integers(features))
            split = random.integers(-1, 2) if integer else random.standard_normal() * 0.7
            nodes["nodes_values"][at] = float(np.float32(split))
            nodes["nodes_truenodeids"][at] = grow(level + 1)
            nodes["nodes_falsenodeids"][at] = grow(level + 1)
            return number

        grow(0)
    return nodes, leaves


def weights_of(leaves, prefix):
    return {f"{prefix}_treeids": [leaf[0] for leaf in leaves], f"{prefix}_nodeids": [leaf[1] for leaf in leaves],
            f"{prefix}_ids": [leaf[2] for leaf in leaves], f"{prefix}_weights": [leaf[3] for leaf in leaves]}


def add_trees(b):
    ordered = ["BRANCH_LEQ"]
    every = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    for name, trees, depth, targets, modes, extra in [
            ("one", 1, 3, 1, ordered, {}), ("forest", 20, 6, 1, ordered, {}), ("targets", 8, 4, 3, ordered, {}),
            ("modes", 10, 5, 2, every, {}), ("average", 7, 4, 2, ordered, {"aggregate_function": "AVERAGE"}),
            ("lowest", 7, 4, 1, ordered, {"aggregate_function": "MIN"}),
            ("highest", 7, 4, 1, ordered, {"aggregate_function": "MAX"}),
            ("base", 5, 4, 2, ordered, {"base_values": [0.5, -1.0]}),
            ("less", 5, 4, 1, ["BRANCH_LT"], {}), ("stump", 3, 0, 1, ordered, {})]:
        random = b.random(f"trees_{name}")
        nodes, leaves = random_trees(random, trees, depth, 5, targets, targets, modes, name == "modes")
        x = random.standard_normal((17, 5)).astype(np.float32)
        if name == "modes":
            x = np.round(x)
        b.op(f"tree_regressor_{name}", "TreeEnsembleRegressor", [x], 17, n_targets=targets, **nodes,
             **weights_of(leaves, "target"), **extra, **ML)
    random = b.random("missing")
    nodes, leaves = random_trees(random, 6, 4, 3, 1, 1, ordered)
    x = random.standard_normal((20, 3)).astype(np.float32)
    x[random.random(x.shape) < 0.3] = np.nan
    tracks = [int(v) for v in random.integers(0, 2, len(nodes["nodes_modes"]))]
    b.op("tree_regressor_missing", "TreeEnsembleRegressor", [x], 17, n_targets=1, **nodes, **weights_of(leaves, "target"),
         nodes_missing_value_tracks_true=tracks, **ML)
    b.op("tree_regressor_nan", "TreeEnsembleRegressor", [x], 17, n_targets=1, **nodes, **weights_of(leaves, "target"), **ML)
    for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        # ONNX Runtime answers 0 or 1 for two classes with weights of both, whatever they are called.
        for classes in (3, 5):
            random = b.random(f"classes_{classes}")
            nodes, leaves = random_trees(random, 9, 4, 4, classes, classes, ordered)
            labels = [int(v) for v in random.permutation(20)[:classes]]
            x = random.standard_normal((23, 4)).astype(np.float32)
            for base in ([], [0.25] * classes):
                extra = {"base_values": base} if base else {}
                name = f"tree_classifier_{classes}_{transform.lower()}{'_base' if base else ''}"
                b.op(name, "TreeEnsembleClassifier", [x], 17, 2, **nodes, **weights_of(leaves, "class"), **extra,
                     classlabels_int64s=labels, post_transform=transform, **ML)
        random = b.random("two_classes")
        nodes, leaves = random_trees(random, 9, 4, 4, 2, 2, ordered)
        with b.onnx_reference():
            if transform != "SOFTMAX_ZERO":
                b.op(f"tree_classifier_2_{transform.lower()}", "TreeEnsembleClassifier",
                     [random.standard_normal((23, 4)).astype(np.float32)], 17, 2, **nodes, **weights_of(leaves, "class"),
                     classlabels_int64s=[7, 2], post_transform=transform, **ML)
        for which in (0, 1):
            for positive in (False, True):
                random = b.random(f"binary_{positive}")
                nodes, leaves = random_trees(random, 6, 4, 4, 1, 1, ordered)
                leaves = [(t, n, which, abs(w) / 6 if positive else w) for t, n, _, w in leaves]
                x = random.standard_normal((23, 4)).astype(np.float32)
                b.op(f"tree_binary_{which}_{'positive' if positive else 'signed'}_{transform.lower()}",
                     "TreeEnsembleClassifier", [x], 17, 2, **nodes, **weights_of(leaves, "class"),
                     classlabels_int64s=[3, 8], post_transform=transform, **ML)
    # The newer form: two trees over sets and splits.
    f32 = TensorProto.FLOAT
    lists = dict(nodes_featureids=[0, 1, 1, 0], nodes_truenodeids=[1, 0, 2, 3], nodes_falsenodeids=[2, 1, 3, 4],
                 nodes_trueleafs=[0, 1, 1, 1], nodes_falseleafs=[0, 1, 1, 1], leaf_targetids=[0, 1, 0, 1, 1],
                 tree_roots=[0, 3],
                 nodes_modes=helper.make_tensor("m", TensorProto.UINT8, [4], [0, 6, 1, 6]),
                 nodes_splits=helper.make_tensor("s", f32, [4], [0.3, 0, 0.1, 0]),
                 membership_values=helper.make_tensor("v", f32, [7], [1, 2, 5, np.nan, 4, 3, np.nan]),
                 leaf_weights=helper.make_tensor("w", f32, [5], [1.5, -2, 0.25, 4, 0.5]))
    x = b.random("sets").integers(-1, 6, (30, 2)).astype(np.float32)
    with b.onnx_reference():
        for aggregate in (0, 1):
            b.op(f"tree_ensemble_{aggregate}", "TreeEnsemble", [x], 17, n_targets=2, aggregate_function=aggregate, **lists,
                 **ML)


def add_linear(b):
    for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        for classes in (2, 3):
            random = b.random(f"linear_{classes}")
            weights = random.standard_normal(classes * 4).astype(np.float32)
            b.op(f"linear_classifier_{classes}_{transform.lower()}", "LinearClassifier", [(9, 4)], 17, 2,
                 coefficients=weights.tolist(), intercepts=random.standard_normal(classes).astype(np.float32).tolist(),
                 classlabels_ints=[7, 3, 5][:classes], post_transform=transform, multi_class=int(classes > 2), **ML)
        b.op(f"linear_binary_{transform.lower()}", "LinearClassifier", [(9, 4)], 17, 2, coefficients=[0.5, -1.0, 2.0, 0.25],
             intercepts=[0.125], classlabels_ints=[4, 9], post_transform=transform, **ML)
    for targets in (1, 3):
        random = b.random("regressor")
        b.op(f"linear_regressor_{targets}", "LinearRegressor", [(6, 5)], 17, targets=targets,
             coefficients=random.standard_normal(targets * 5).astype(np.float32).tolist(),
             intercepts=random.standard_normal(targets).astype(np.float32).tolist(), **ML)
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        random = b.random(f"svm_{kernel}")
        vectors, features = 7, 3
        common = dict(kernel_type=kernel, kernel_params=[0.4, 0.5, 2.0 if kernel == "POLY" else 3.0],
                      support_vectors=random.standard_normal(vectors * features).astype(np.float32).tolist())
        for one_class in (0, 1):
            b.op(f"svm_regressor_{kernel.lower()}_{one_class}", "SVMRegressor", [(11, features)], 17,
                 coefficients=random.standard_normal(vectors).astype(np.float32).tolist(), rho=[0.2], n_supports=vectors,
                 one_class=one_class, **common, **ML)
        for classes, per_class in [(2, [3, 4]), (3, [2, 3, 2]), (4, [1, 2, 2, 2])]:
            pairs = classes * (classes - 1) // 2
            for probabilities in (False, True):
                if probabilities and classes == 4:
                    continue
                extra = {}
                if probabilities:
                    extra = dict(prob_a=(-random.uniform(0.5, 2, pairs)).astype(np.float32).tolist(),
                                 prob_b=random.standard_normal(pairs).astype(np.float32).tolist())
                b.op(f"svm_classifier_{kernel.lower()}_{classes}{'_probabilities' if probabilities else ''}",
                     "SVMClassifier", [(11, features)], 17, 2,
                     coefficients=random.standard_normal((classes - 1) * vectors).astype(np.float32).tolist(),
                     rho=random.standard_normal(pairs).astype(np.float32).tolist(), vectors_per_class=per_class,
                     classlabels_ints=[5, 1, 8, 2][:classes], **extra, **common, **ML)
    b.op("svm_regressor_no_vectors", "SVMRegressor", [(6, 3)], 17, coefficients=[0.5, -1.0, 2.0], rho=[0.25],
         kernel_type="LINEAR", kernel_params=[0.0, 0.0, 3.0], **ML)
    b.op("svm_classifier_no_vectors", "SVMClassifier", [(6, 3)], 17, 2, coefficients=[0.5, -1.0, 2.0, 1.0, 0.5, -0.5, 0, 1, 1],
         rho=[0.25], kernel_type="LINEAR", kernel_params=[0.0, 0.0, 3.0], classlabels_ints=[3, 1, 2], **ML)


def add_features(b):
    for dtype in (np.float32, np.float64, np.int64, np.int32):
        word = np.dtype(dtype).name
        random = b.random(f"features_{word}")
        x = (random.standard_normal((6, 4)) * 3).astype(dtype)
        b.op(f"scaler_{word}", "Scaler", [x], 17, offset=[0.5, 1.0, -2.0, 0.0], scale=[2.0, 0.5, 1.0, 3.0], **ML)
        b.op(f"scaler_one_{word}", "Scaler", [x], 17, offset=[0.5], scale=[2.0], **ML)
        for norm in ("MAX", "L1", "L2"):
            b.op(f"normalizer_{norm}_{word}", "Normalizer", [np.abs(x) + 1 if norm == "MAX" else x], 17, norm=norm, **ML)
        b.op(f"columns_{word}", "ArrayFeatureExtractor", [x, np.int64([2, 0, 2])], 17, **ML)
        b.op(f"columns_of_row_{word}", "ArrayFeatureExtractor", [x[0], np.int64([[1, 3]])], 17, **ML)
        b.op(f"vectorizer_{word}", "FeatureVectorizer", [x, x[:, :2]], 17, inputdimensions=[4, 2], **ML)
    x = b.random("binarizer").standard_normal((5, 4)).astype(np.float32)
    b.op("binarizer", "Binarizer", [x], 17, threshold=0.3, **ML)
    holes = x.copy()
    holes[1, 2] = holes[3, 0] = np.nan
    b.op("imputer_nan", "Imputer", [holes], 17, imputed_value_floats=[1.0, 2.0, 3.0, 4.0],
         replaced_value_float=float("nan"), **ML)
    holes[np.isnan(holes)] = -1
    b.op("imputer_value", "Imputer", [holes], 17, imputed_value_floats=[9.0], replaced_value_float=-1.0, **ML)
    whole = b.random("whole").integers(0, 3, (5, 4)).astype(np.int64)
    b.op("imputer_int", "Imputer", [whole], 17, imputed_value_int64s=[5, 6, 7, 8], replaced_value_int64=0, **ML)
    for shape in ((6,), (3, 4)):
        values = b.random("one_hot").integers(0, 6, shape)
        b.op(f"one_hot_{len(shape)}", "OneHotEncoder", [values.astype(np.int64)], 17, cats_int64s=[3, 1, 4, 0], zeros=1, **ML)
        b.op(f"one_hot_float_{len(shape)}", "OneHotEncoder", [values.astype(np.float32)], 17, cats_int64s=[3, 1, 4, 0],
             zeros=1, **ML)
    numbers = b.random("labels").integers(0, 12, (4, 5))
    b.op("labels_int_int", "LabelEncoder", [numbers], 17, keys_int64s=[3, 0, 11, 5], values_int64s=[30, 7, -1, 2],
         default_int64=99, **ML)
    b.op("labels_int_float", "LabelEncoder", [numbers], 17, keys_int64s=[3, 0, 11, 5], values_floats=[0.5, 7, -1, 2],
         default_float=-3.5, **ML)
    far = np.int64([-10**12, 5, 10**15, 6, 7])
    b.op("labels_far", "LabelEncoder", [far], 17, keys_int64s=[10**15, -10**12, 6], values_int64s=[1, 2, 3], **ML)
    halves = (numbers / 2).astype(np.float32)
    b.op("labels_float_int", "LabelEncoder", [halves], 17, keys_floats=[2.5, 0.0, 5.5, 1.0, 3.0], values_int64s=[1, 2, 3, 4, 5],
         **ML)


def add_cases(b):
    add_trees(b)
    add_linear(b)
    add_features(b)
