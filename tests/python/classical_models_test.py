#!/usr/bin/env python3
"""Models of scikit-learn and XGBoost, trained on small tables of real data, converted to ONNX and compiled: labels equal
the library's own, and probabilities and values agree with it within 1e-4 of the largest.

A case is a model, a data set, and what is asked of it. Exit code 77 when data or libraries are missing."""
import sys
import unittest
import warnings

import numpy as np

from test_data import find_test_data

DATA = find_test_data("real")
try:
    import onnxmltools
    import skl2onnx
    import sklearn
    import xgboost
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup.sh installs it")
    sys.exit(77)
if DATA is None:
    print("skipped: real/ is neither in TESSERA_TEST_DATA nor in ../shared")
    sys.exit(77)

from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, IncrementalPCA, KernelPCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (AdaBoostClassifier, AdaBoostRegressor, BaggingClassifier, ExtraTreesClassifier,
                              ExtraTreesRegressor, GradientBoostingClassifier, GradientBoostingRegressor, IsolationForest,
                              RandomForestClassifier, RandomForestRegressor, StackingClassifier, VotingClassifier,
                              VotingRegressor)
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (ElasticNet, Lasso, LinearRegression, LogisticRegression, Perceptron, PoissonRegressor,
                                  Ridge, RidgeClassifier, SGDClassifier)
from sklearn.mixture import GaussianMixture
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (Binarizer, KBinsDiscretizer, MaxAbsScaler, MinMaxScaler, Normalizer, OneHotEncoder,
                                   PolynomialFeatures, PowerTransformer, RobustScaler, StandardScaler)
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, OneClassSVM
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier, XGBRegressor

import tessera

TOLERANCE = 1e-4
TREES = {"n_estimators": 20, "random_state": 0}


def classifiers():
    """name -> (model, data set)"""
    logistic = LogisticRegression(max_iter=5000)
    tree = DecisionTreeClassifier(random_state=0)
    encoder = ColumnTransformer([("scaled", StandardScaler(), [0, 1]), ("coded", OneHotEncoder(), [2])],
                                remainder="passthrough")
    return {
        "logistic_regression": (logistic, "iris"),
        "logistic_regression_of_two_classes": (logistic, "breast_cancer"),
        "logistic_regression_of_digits": (make_pipeline(StandardScaler(), logistic), "digits"),
        "sgd": (make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", random_state=0)), "wine"),
        "perceptron": (make_pipeline(StandardScaler(), Perceptron()), "wine"),
        "ridge": (RidgeClassifier(), "iris"),
        "linear_svc": (LinearSVC(), "breast_cancer"),
        "svc": (SVC(), "digits"),
        "svc_linear": (SVC(kernel="linear"), "iris"),
        "svc_poly": (SVC(kernel="poly"), "iris"),
        "svc_sigmoid": (make_pipeline(StandardScaler(), SVC(kernel="sigmoid")), "wine"),
        "svc_of_two_classes": (SVC(), "breast_cancer"),
        "svc_with_probabilities": (SVC(probability=True, random_state=0), "iris"),
        "nu_svc": (NuSVC(nu=0.1), "iris"),
        "tree": (tree, "digits"),
        "tree_of_two_classes": (tree, "breast_cancer"),
        "random_forest": (RandomForestClassifier(**TREES), "digits"),
        "random_forest_of_two_classes": (RandomForestClassifier(**TREES), "breast_cancer"),
        "extra_trees": (ExtraTreesClassifier(**TREES), "wine"),
        "gradient_boosting": (GradientBoostingClassifier(**TREES), "iris"),
        "gradient_boosting_of_two_classes": (GradientBoostingClassifier(**TREES), "breast_cancer"),
        "ada_boost": (AdaBoostClassifier(n_estimators=10, random_state=0), "iris"),
        "bagging": (BaggingClassifier(random_state=0), "iris"),
        "voting": (VotingClassifier([("a", logistic), ("b", tree)], voting="soft", flatten_transform=False), "iris"),
        "stacking": (StackingClassifier([("a", logistic), ("b", tree)]), "iris"),
        "one_vs_rest": (OneVsRestClassifier(logistic), "iris"),
        "one_vs_one": (OneVsOneClassifier(logistic), "iris"),
        "calibrated": (CalibratedClassifierCV(LinearSVC()), "iris"),
        "k_neighbors": (KNeighborsClassifier(), "wine"),
        "mlp": (MLPClassifier((20,), max_iter=500, random_state=0), "iris"),
        "mlp_of_two_classes": (make_pipeline(StandardScaler(), MLPClassifier((20, 10), activation="tanh", max_iter=500,
                                                                             random_state=0)), "breast_cancer"),
        "gaussian_bayes": (GaussianNB(), "iris"),
        "multinomial_bayes": (MultinomialNB(), "digits"),
        "bernoulli_bayes": (BernoulliNB(binarize=8), "digits"),
        "complement_bayes": (ComplementNB(), "digits"),
        "linear_discriminants": (LinearDiscriminantAnalysis(), "iris"),
        "quadratic_discriminants": (QuadraticDiscriminantAnalysis(), "iris"),
        "pca_and_logistic_regression": (make_pipeline(StandardScaler(), PCA(10), logistic), "digits"),
        "imputer_and_normalizer": (make_pipeline(SimpleImputer(), Normalizer(), logistic), "wine_with_gaps"),
        "columns_scaled_and_coded": (make_pipeline(encoder, RandomForestClassifier(**TREES)), "iris_rounded"),
        "xgboost": (XGBClassifier(n_estimators=20, max_depth=4), "digits"),
        "xgboost_of_two_classes": (XGBClassifier(n_estimators=20, max_depth=4), "breast_cancer"),
        "xgboost_with_gaps": (XGBClassifier(n_estimators=20), "wine_with_gaps"),
        "xgboost_of_one_stump": (XGBClassifier(n_estimators=1, max_depth=1), "breast_cancer"),
    }


def regressors():
    """They learn the last column of a table from the others."""
    tree = DecisionTreeRegressor(random_state=0)
    return {
        "linear_regression": (LinearRegression(), "wine"),
        "ridge_regression": (Ridge(), "wine"),
        "lasso": (Lasso(0.01), "wine"),
        "elastic_net": (ElasticNet(0.01), "wine"),
        "poisson": (make_pipeline(StandardScaler(), PoissonRegressor()), "wine"),
        "svr": (make_pipeline(StandardScaler(), SVR()), "wine"),
        "linear_svr": (LinearSVR(random_state=0), "iris"),
        "regression_tree": (tree, "wine"),
        "random_forest_regression": (RandomForestRegressor(**TREES), "wine"),
        "extra_trees_regression": (ExtraTreesRegressor(**TREES), "wine"),
        "gradient_boosting_regression": (GradientBoostingRegressor(**TREES), "wine"),
        "ada_boost_regression": (AdaBoostRegressor(n_estimators=10, random_state=0), "wine"),
        "voting_regression": (VotingRegressor([("a", Ridge()), ("b", tree)]), "wine"),
        "k_neighbors_regression": (KNeighborsRegressor(), "wine"),
        "mlp_regression": (MLPRegressor(hidden_layer_sizes=(20,), max_iter=500, random_state=0), "iris"),
        "gaussian_process": (make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel=RBF(), alpha=1e-2)), "wine"),
        "xgboost_regression": (XGBRegressor(n_estimators=20, max_depth=4), "wine"),
        "xgboost_of_counts": (XGBRegressor(n_estimators=10, objective="count:poisson"), "wine"),
        "several_targets": (MultiOutputRegressor(Ridge()), "iris_two_targets"),
    }


def transformers():
    return {
        "standard_scaler": (StandardScaler(), "wine"),
        "min_max_scaler": (MinMaxScaler(), "wine"),
        "robust_scaler": (RobustScaler(), "wine"),
        "max_abs_scaler": (MaxAbsScaler(), "wine"),
        "normalizer_l1": (Normalizer("l1"), "wine"),
        "normalizer_max": (Normalizer("max"), "wine"),
        "binarizer": (Binarizer(threshold=2.0), "wine"),
        "imputer": (SimpleImputer(strategy="median"), "wine_with_gaps"),
        "one_hot_encoder": (OneHotEncoder(sparse_output=False), "iris_rounded"),
        "polynomial_features": (PolynomialFeatures(2), "iris"),
        "bins": (KBinsDiscretizer(4, encode="ordinal"), "iris"),
        "bins_one_hot": (KBinsDiscretizer(4, encode="onehot-dense"), "iris"),
        "pca": (PCA(2), "wine"),
        "incremental_pca": (IncrementalPCA(2), "wine"),
        "kernel_pca": (KernelPCA(2), "iris"),
        "truncated_svd": (TruncatedSVD(2), "wine"),
        "power_transformer": (PowerTransformer(), "iris"),
        "best_columns": (SelectKBest(k=2), "iris"),
        "columns_that_vary": (VarianceThreshold(0.1), "wine"),
    }


def read_data(name):
    """(features, labels, rows to train on, rows to test on)"""
    base, _, change = name.partition("_") if name != "breast_cancer" else (name, "", "")
    table = np.load(DATA / base / f"{base}.npz")
    labels = table["labels"]
    features = (table["images"].reshape(len(labels), -1) if base == "digits" else table["features"]).astype(np.float32)
    if change == "with_gaps":
        features = features.copy()
        features[::7, 2] = features[::5, 4] = np.nan
    if change == "rounded":
        features = np.round(features)
    return features, labels, table["train_index"], table["test_index"]


def convert(model, columns):
    kind = skl2onnx.common.data_types.FloatTensorType([None, columns])
    if isinstance(model, (XGBClassifier, XGBRegressor)):
        kind = onnxmltools.convert.common.data_types.FloatTensorType([None, columns])
        return onnxmltools.convert_xgboost(model, initial_types=[("x", kind)])
    last = model[-1] if hasattr(model, "steps") else model
    options = {id(model): {"zipmap": False}} if sklearn.base.is_classifier(last) else None
    try:
        return skl2onnx.convert_sklearn(model, initial_types=[("x", kind)], options=options)
    except NameError:  # a classifier without that option, because it has no probabilities
        return skl2onnx.convert_sklearn(model, initial_types=[("x", kind)])


class ClassicalModels(unittest.TestCase):
    def compiled(self, model, x):
        return tessera.compile(convert(model, x.shape[1]), shapes={"x": x.shape}).run([x])

    def assert_agree(self, got, want):
        want = np.asarray(want, np.float64)
        got = got.reshape(want.shape) if got.size == want.size else got
        self.assertEqual(got.shape, want.shape)
        difference = np.abs(got - want).max()
        self.assertLessEqual(difference, TOLERANCE * np.abs(want).max())

    def check_classifier(self, model, data):
        x, labels, train, test = read_data(data)
        model.fit(x[train], labels[train])
        results = self.compiled(model, x[test])
        np.testing.assert_array_equal(results[0].ravel(), model.predict(x[test]))
        self.assertGreater((results[0].ravel() == labels[test]).mean(), 0.6)
        if hasattr(model, "predict_proba"):
            self.assert_agree(results[1], model.predict_proba(x[test]))

    def check_regressor(self, model, data):
        x, labels, train, test = read_data(data.removesuffix("_two_targets"))
        x, y = x[:, :-1], x[:, -1]
        if data.endswith("_two_targets"):
            y = np.stack([y, labels], axis=1)
        model.fit(x[train], y[train])
        self.assert_agree(self.compiled(model, x[test])[0], model.predict(x[test]))

    def check_transformer(self, model, data):
        x, labels, train, test = read_data(data)
        model.fit(x[train], labels[train])
        self.assert_agree(self.compiled(model, x[test])[0], model.transform(x[test]))

    def test_probabilities_as_maps_and_labels_as_strings(self):
        """As skl2onnx converts without options: one map from label to probability for each row."""
        x, labels, train, test = read_data("iris")
        for names in (None, np.array(["setosa", "versicolor", "virginicä"])):
            named = labels if names is None else names[labels]
            for model in (LogisticRegression(max_iter=5000), RandomForestClassifier(**TREES)):
                model.fit(x[train], named[train])
                kind = skl2onnx.common.data_types.FloatTensorType([None, x.shape[1]])
                compiled = tessera.compile(skl2onnx.convert_sklearn(model, initial_types=[("x", kind)]),
                                           shapes={"x": x[test].shape})
                given, maps = compiled.run([x[test]])
                self.assertEqual(given.tolist(), model.predict(x[test]).tolist())
                self.assertEqual([list(row) for row in maps], [model.classes_.tolist()] * len(test))
                self.assert_agree(np.array([list(row.values()) for row in maps]), model.predict_proba(x[test]))

    def test_columns_of_strings(self):
        """A model of named columns: numbers, and words that are one-hot encoded."""
        x, labels, train, test = read_data("iris")
        words = np.array(["short", "middle", "länger"], object)[np.digitize(x[:, :1], [5.3, 6.2])]
        columns = ColumnTransformer([("words", OneHotEncoder(), [0]), ("numbers", StandardScaler(), [1, 2])])
        table = np.concatenate([words, x[:, 1:3].astype(object)], axis=1)
        model = make_pipeline(columns, LogisticRegression(max_iter=5000)).fit(table[train], labels[train])
        types = skl2onnx.common.data_types
        kinds = [("word", types.StringTensorType([None, 1])), ("a", types.FloatTensorType([None, 1])),
                 ("b", types.FloatTensorType([None, 1]))]
        converted = skl2onnx.convert_sklearn(model, initial_types=kinds, options={id(model): {"zipmap": False}})
        shape = (len(test), 1)
        compiled = tessera.compile(converted, shapes={name: shape for name, _ in kinds})
        given, probabilities = compiled.run({"word": words[test], "a": x[test, 1:2], "b": x[test, 2:3]})
        self.assertEqual(given.tolist(), model.predict(table[test]).tolist())
        self.assert_agree(probabilities, model.predict_proba(table[test]))

    def test_clusters(self):
        x, _, train, test = read_data("iris")
        model = KMeans(3, random_state=0, n_init=3).fit(x[train])
        labels, distances = self.compiled(model, x[test])
        np.testing.assert_array_equal(labels, model.predict(x[test]))
        self.assert_agree(distances, model.transform(x[test]))
        model = GaussianMixture(3, random_state=0).fit(x[train])
        labels, probabilities = self.compiled(model, x[test])[:2]
        np.testing.assert_array_equal(labels.ravel(), model.predict(x[test]))
        self.assert_agree(probabilities, model.predict_proba(x[test]))

    def test_outliers(self):
        x, _, train, test = read_data("wine")
        model = OneClassSVM().fit(x[train])
        labels, scores = self.compiled(model, x[test])
        np.testing.assert_array_equal(labels.ravel(), model.predict(x[test]))
        self.assert_agree(scores, model.decision_function(x[test]))
        model = IsolationForest(n_estimators=5, random_state=0).fit(x[train])
        onnx_model = skl2onnx.to_onnx(model, x[:1], target_opset={"": 18, "ai.onnx.ml": 3})
        labels, scores = tessera.compile(onnx_model, shapes={"X": x[test].shape}).run([x[test]])
        np.testing.assert_array_equal(labels.ravel(), model.predict(x[test]))
        self.assert_agree(scores, model.decision_function(x[test]))


def add_tests():
    for kind, cases in (("classifier", classifiers()), ("regressor", regressors()), ("transformer", transformers())):
        for name, (model, data) in cases.items():
            def test(self, kind=kind, model=model, data=data):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    getattr(self, f"check_{kind}")(sklearn.base.clone(model), data)
            setattr(ClassicalModels, f"test_{kind}_{name}", test)


add_tests()
if __name__ == "__main__":
    unittest.main(verbosity=1)
