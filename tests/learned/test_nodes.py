"""Every operator of ``ai.onnx.ml`` on arrays, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from tests.learned.support import FLOAT, INT64, MODES, Array, element, forest, learned, runtime
from vtensor import Session
from vtensor.errors import VTensorError

POSTS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
NAN = float("nan")


def values(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    """Return numbers with one digit after the point, so that some are equal to thresholds."""
    return np.round(np.random.default_rng(seed).normal(size=shape), 1).astype(dtype)


X = values(1, 70, 3)


def check(proto: ModelProto, feeds: dict[str, Array], atol: float = 2e-5) -> None:
    """Check that VTensor answers as ONNX Runtime does, on all rows and on the first alone."""
    with Session(proto, reference=False, threads=1, cache_dir=False) as session:
        for rows in (feeds, {name: array[:1] for name, array in feeds.items()}):
            for mine, theirs in zip(session.run(None, rows), runtime(proto, rows), strict=True):
                assert mine.dtype == theirs.dtype
                np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=atol)


@pytest.mark.parametrize("seed", range(12))
def test_regressions_by_trees(seed: int) -> None:
    random = np.random.default_rng(seed)
    x = values(seed, 70, 3, dtype=(np.float32, np.float64)[seed % 2])
    x[::5, 1] = NAN
    targets = [*range(1 + seed % 2)]
    trees = forest(random, "target", targets, modes=MODES[: 1 + 5 * (seed % 2)], nan=seed % 4 > 1)
    more = {"base_values": [0.25] * len(targets)} if seed % 3 else {}
    proto = learned(
        "TreeEnsembleRegressor",
        {"x": x},
        n_targets=len(targets),
        aggregate_function=("SUM", "AVERAGE", "MIN", "MAX")[seed % 4],
        post_transform=POSTS[seed % 5],
        **trees,
        **more,
    )
    check(proto, {"x": x})


@pytest.mark.parametrize(
    ("votes", "labels", "base"),
    [
        ([0, 1, 2], [7, 5, 9], []),
        ([0, 2], [7, 5, 9], []),
        ([1], [7, 5, 9], [0.5, 0.1, -0.3]),
        ([0, 1], [7, 5], []),
        ([0, 1], [7, 5], [0.25, 0.5]),
        ([0], [7, 5], []),
        ([0], [7, 5], [0.25]),
        ([0], [7, 5], [0.25, 0.5]),
        ([1], [7, 5], []),
        ([0], [7], []),
    ],
)
@pytest.mark.parametrize("positive", [False, True])
def test_classifications_by_trees(
    votes: list[int], labels: list[int], base: list[float], positive: bool
) -> None:
    trees = forest(np.random.default_rng(3), "class", votes)
    if positive:
        trees["class_weights"] = [abs(weight) for weight in trees["class_weights"]]
    for post in POSTS[: 5 - (votes == [0])]:  # PROBIT of one score for two classes is refused
        more = {"base_values": base} if base else {}
        attributes = {**trees, **more, "classlabels_int64s": labels, "post_transform": post}
        proto = learned("TreeEnsembleClassifier", {"x": X}, INT64, FLOAT, **attributes)
        check(proto, {"x": X}, 1e-3 if post == "PROBIT" else 2e-5)


def new_ensemble(dtype: Any) -> ModelProto:
    """Return a TreeEnsemble."""

    def tensor(numbers: list[float], kind: Any = dtype) -> Any:
        return numpy_helper.from_array(np.array(numbers, kind))

    return learned(
        "TreeEnsemble",
        {"x": X.astype(dtype)},
        element(X.astype(dtype)),
        ml=5,
        n_targets=2,
        aggregate_function=1,
        nodes_featureids=[0, 1, 2],
        nodes_modes=tensor([0, 3, 1], np.uint8),
        nodes_splits=tensor([0.1, 0, 0.5]),
        nodes_truenodeids=[1, 0, 2],
        nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 3],
        nodes_falseleafs=[0, 1, 1],
        tree_roots=[0],
        leaf_targetids=[0, 1, 0, 1],
        leaf_weights=tensor([0.5, 1.5, -0.25, 2]),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ensembles_of_version_5(dtype: Any) -> None:
    check(new_ensemble(dtype), {"x": X.astype(dtype)})


#: A support vector machine of three classes; kernels are added.
MACHINE = {
    "support_vectors": values(5, 15).tolist(),
    "vectors_per_class": [2, 1, 2],
    "coefficients": values(6, 10).tolist(),
    "rho": [0.05, 0.1, -0.1],
    "classlabels_ints": [4, 6, 9],
}
PAIR = {
    "support_vectors": values(5, 9).tolist(),
    "vectors_per_class": [2, 1],
    "coefficients": [0.1, 0.2, -0.3],
    "rho": [0.05],
    "classlabels_ints": [4, 6],
}
PROBABLE = {"prob_a": [-1.5, -1.0, -2.0], "prob_b": [0.1, 0.2, 0.3]}
KERNELS = ("RBF", "LINEAR", "POLY", "SIGMOID")


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_machines(kernel: str) -> None:
    known = {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 2.0]}
    for post in POSTS[:4]:
        more = {**known, "post_transform": post}
        for given in ({}, PROBABLE):
            proto = learned("SVMClassifier", {"x": X}, INT64, FLOAT, **MACHINE, **given, **more)
            check(proto, {"x": X})
        check(learned("SVMClassifier", {"x": X}, INT64, FLOAT, **PAIR, **more), {"x": X})
    vectors = {"support_vectors": values(5, 9).tolist(), "n_supports": 3, "rho": [0.3]}
    for one in (0, 1):
        weights = {"coefficients": [0.1, -0.2, 0.5], "one_class": one}
        check(learned("SVMRegressor", {"x": X}, **vectors, **weights, **known), {"x": X})


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_linear_models(classes: int) -> None:
    numbers = {"coefficients": values(7, 3 * classes).tolist()}
    numbers["intercepts"] = values(8, classes).tolist()
    for post in POSTS:
        proto = learned(
            "LinearRegressor", {"x": X}, targets=classes, post_transform=post, **numbers
        )
        check(proto, {"x": X})
        if classes == 1 and post == "PROBIT":
            continue
        labels = [*range(4, 4 + max(classes, 2))]
        more = {"post_transform": post, "classlabels_ints": labels}
        check(learned("LinearClassifier", {"x": X}, INT64, FLOAT, **numbers, **more), {"x": X})


WHOLE = values(4, 20, 3, dtype=np.int64)
GAPS = np.where(values(9, 20, 3) > 0.8, NAN, values(4, 20, 3)).astype(np.float32)
PREPARED: list[tuple[str, Array, dict[str, Any]]] = [
    ("Scaler", X, {"offset": [1.0, 2.0, 3.0], "scale": [0.5, 2.0, 1.5]}),
    ("Scaler", WHOLE, {"offset": [1.5], "scale": [2.0]}),
    ("Normalizer", np.vstack([X, 0 * X[:1]]), {"norm": "MAX"}),
    ("Normalizer", np.vstack([X, 0 * X[:1]]), {"norm": "L1"}),
    ("Normalizer", np.vstack([X, 0 * X[:1]]), {"norm": "L2"}),
    ("Binarizer", X, {"threshold": 0.3}),
    ("Imputer", GAPS, {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": NAN}),
    ("Imputer", X, {"imputed_value_floats": [7.0], "replaced_value_float": 0.5}),
    ("Imputer", WHOLE, {"imputed_value_int64s": [7], "replaced_value_int64": 1}),
    ("OneHotEncoder", WHOLE, {"cats_int64s": [-1, 0, 2, 1]}),
    ("OneHotEncoder", X, {"cats_int64s": [-1, 0, 2, 1]}),
    ("LabelEncoder", WHOLE, {"keys_int64s": [1, 0, 1], "values_floats": [5.0, 6.0, 7.0]}),
    ("LabelEncoder", GAPS, {"keys_floats": [NAN, 0.5], "values_int64s": [5, 6]}),
    ("FeatureVectorizer", X, {"inputdimensions": [2]}),
    ("FeatureVectorizer", WHOLE, {"inputdimensions": [5]}),
]


@pytest.mark.parametrize("row", PREPARED, ids=lambda row: f"{row[0]} {[*row[2].values()]}")
def test_preparation_of_features(row: tuple[str, Array, dict[str, Any]]) -> None:
    op_type, x, attributes = row
    same = op_type in ("Imputer", "Binarizer")
    to = INT64 if "values_int64s" in attributes else element(x) if same else FLOAT
    for ml in (2, 4) if op_type == "LabelEncoder" else (1,):
        check(learned(op_type, {"x": x}, to, ml=ml, **attributes), {"x": x})


def test_extracted_features() -> None:
    feeds = {"x": X, "i": np.array([[2, 0]], np.int64)}
    proto = learned("ArrayFeatureExtractor", feeds)
    with Session(proto, reference=False, cache_dir=False) as session:
        [mine], [theirs] = session.run(None, feeds), runtime(proto, feeds)
        np.testing.assert_array_equal(mine, theirs)


def broken(**changes: Any) -> ModelProto:
    """Return a regression by two trees, some of whose attributes are wrong."""
    trees = forest(np.random.default_rng(2), "target", [0])
    return learned("TreeEnsembleRegressor", {"x": X}, n_targets=1, **{**trees, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes_modes": ["LEAF"]},
        {"nodes_falsenodeids": [10**6] * 10},
        {"nodes_featureids": [3] * 10},
        {"target_ids": [5] * 10},
        {"target_weights": [1.0]},
        {"aggregate_function": "MEDIAN"},
        {"post_transform": "TANH"},
        {"base_values": [1.0, 2.0]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_wrong_trees_are_refused(changes: dict[str, Any]) -> None:
    whole = forest(np.random.default_rng(2), "target", [0])
    changes = {
        name: value * (len(whole[name]) // 10 + 1) if name in whole and len(value) == 10 else value
        for name, value in changes.items()
    }
    changes = {
        name: value[: len(whole[name])] if name in whole and len(value) > 9 else value
        for name, value in changes.items()
    }
    with pytest.raises(VTensorError), Session(broken(**changes), cache_dir=False) as session:
        session.run(None, {"x": X})


def test_a_cycle_of_nodes_is_refused() -> None:
    nodes: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 2, 0],
        "nodes_missing_value_tracks_true": [0, 0, 0],
    }
    votes = {"target_treeids": [0], "target_nodeids": [2], "target_ids": [0]}
    with pytest.raises(VTensorError, match="cycle"):
        Session(broken(**nodes, **votes, target_weights=[1.0]), cache_dir=False).run(None, {"x": X})


def test_native_kernels_agree_with_the_definition() -> None:
    """Both libraries walk the trees of one model."""
    proto = learned(
        "TreeEnsembleRegressor",
        {"x": X},
        **forest(np.random.default_rng(8), "target", [0], trees=40, modes=MODES, nan=True),
    )
    answers = []
    for library in ("eigen", "numpy"):
        with Session(proto, libraries=[library], cache_dir=False) as session:
            answers.append(session.run(None, {"x": X})[0])
            assert {step.library for step in session.plan.steps} == {library}
    np.testing.assert_allclose(*answers, rtol=1e-5, atol=1e-5)


def test_no_operator_runs_on_the_reference() -> None:
    trees = forest(np.random.default_rng(8), "class", [0, 1, 2])
    proto = learned(
        "TreeEnsembleClassifier", {"x": X}, INT64, FLOAT, classlabels_int64s=[3, 4, 5], **trees
    )
    with Session(proto, cache_dir=False) as session:
        session.run(None, {"x": X})
        assert {step.library for step in session.plan.steps} == {"eigen"}
