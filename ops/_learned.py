"""Spellings of ``ai.onnx.ml``: models that were learned, read as products, sums and choices.

The results are ONNX Runtime's, where ONNX leaves them open: what is done to scores, and which
scores a classifier of two classes has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from libdesc.numpy.arrays import Array
from ops._names import same_names
from vtensor.operators import Naming, NodeReader, Spelling, named
from vtensor.tensor import VTensor

ML = "ai.onnx.ml::"

#: The factors of ONNX Runtime's approximation of the inverse error function.
_ERF_INVERSE = 0.147


def applied(node: NodeReader, operator: str, *inputs: Any, **parameters: Any) -> VTensor:
    """Add an operator by its name; numbers among its inputs become constants in f32."""
    values = [x if isinstance(x, VTensor) else node.made(np.float32(x), ()) for x in inputs]
    result: VTensor = node.add(named(operator)(**parameters), *values)
    return result


def as_type(node: NodeReader, x: VTensor, dtype: str = "f32") -> VTensor:
    """Return a value in another element type."""
    return x if x.dtype == dtype else applied(node, "Cast", x, to=dtype)


def _floats(node: NodeReader, name: str) -> Array:
    return np.asarray(node.attribute(name, []), np.float32)


def _along(node: NodeReader, values: Array, x: VTensor, dim: str, what: str) -> VTensor:
    """Return numbers along a dim of x, or one for all, as a constant.

    Raises:
        VTensorError: there are other than one number or one for each index of the dim.
    """
    if values.size == 1:
        return node.made(values.reshape(()), ())
    if values.size != x.size(dim):
        raise node.refuse(f"{what} has {values.size} numbers, and x {x.size(dim)} features")
    return node.made(values, (dim,))


def post_transform(node: NodeReader, scores: VTensor, dim: str, kind: str) -> VTensor:
    """Return scores as the attribute ``post_transform`` changes them, along the dim ``dim``.

    ONNX Runtime changes a single score by PROBIT alone.
    """
    if kind not in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"):
        raise node.refuse(f"post_transform {kind!r} does not exist")
    if kind == "NONE" or (scores.size(dim) == 1 and kind != "PROBIT"):
        return scores
    if kind == "LOGISTIC":
        return applied(node, "Sigmoid", scores)
    if kind == "SOFTMAX":
        return applied(node, "Softmax", scores, axis=(dim,))
    if kind == "SOFTMAX_ZERO":  # scores of 0 stay 0
        most = applied(node, "ReduceMax", scores, axes=(dim,))
        power = applied(node, "Exp", applied(node, "Sub", scores, most))
        small = applied(node, "Mul", scores, applied(node, "Exp", applied(node, "Neg", most)))
        large = applied(node, "Greater", applied(node, "Abs", scores), 1e-7)
        total = applied(node, "Where", large, power, 0)
        total = applied(node, "ReduceSum", total, axes=(dim,))
        return applied(node, "Div", applied(node, "Where", large, power, small), total)
    x = applied(node, "Sub", applied(node, "Mul", scores, 2), 1)
    one = applied(node, "Mul", applied(node, "Sub", 1, x), applied(node, "Add", 1, x))
    log = applied(node, "Log", one)
    factor = np.float32(2) / (np.float32(3.14159) * np.float32(_ERF_INVERSE))
    half = applied(node, "Add", applied(node, "Mul", log, 0.5), factor)
    square = applied(
        node, "Sub", applied(node, "Mul", half, half), applied(node, "Mul", log, 1 / _ERF_INVERSE)
    )
    size = applied(node, "Sqrt", applied(node, "Sub", applied(node, "Sqrt", square), half))
    sign = applied(node, "Where", applied(node, "Less", x, 0), -(2**0.5), 2**0.5)
    return applied(node, "Mul", sign, size)


def _feature_names(node: Naming) -> None:
    node.name("x0", "N F")
    node.name("y0", "N target")


def class_names(node: Naming) -> None:
    """Name the axes of a classifier: features, labels and scores."""
    node.name("x0", "N F")
    node.name("y0", "N")
    node.name("y1", "N class")


def features_of(node: NodeReader, *keep: str) -> VTensor:
    """Return input 0 with the dims N and F; one row if it has one dim.

    Its element type is one of ``keep``, else it becomes f32.
    """
    x = node.input(0)
    if x.ndimensions() == 1:
        x = node.reshape(x, {"N": 1, "F": x.num_elements})
    else:
        x = node.input(0, "N F")
    return x if x.dtype in keep else as_type(node, x)


def _read_scaler(node: NodeReader) -> VTensor:
    x = as_type(node, node.input(0))
    dim = node.axis(-1, x)
    offset, scale = (
        _along(node, _floats(node, name), x, dim, name) for name in ("offset", "scale")
    )
    return applied(node, "Mul", applied(node, "Sub", x, offset), scale)


def _read_binarizer(node: NodeReader) -> VTensor:
    x = node.input(0)
    bound = node.made(np.float32(node.attribute("threshold", 0.0)), ())
    above = applied(node, "Greater", as_type(node, x, bound.dtype), bound)
    return applied(node, "Cast", above, to=x.dtype)


def _read_imputer(node: NodeReader) -> VTensor:
    x = node.input(0)
    kind, to = ("float", np.float32) if x.dtype[0] == "f" else ("int64", np.int64)
    values = np.asarray(node.attribute(f"imputed_value_{kind}s", []), to)
    old = np.asarray(node.attribute(f"replaced_value_{kind}", 0), to)
    number = np.float64 if x.dtype == "f64" else np.dtype("int32") if x.dtype == "s32" else to
    new = _along(node, values.astype(number), x, node.axis(-1, x), "imputed values")
    if np.isnan(old):
        replaced = applied(node, "IsNaN", x)
    else:
        replaced = applied(node, "Equal", x, node.made(old.astype(number), ()))
    return applied(node, "Where", replaced, new, x)


def _read_normalizer(node: NodeReader) -> VTensor:
    x, norm = as_type(node, node.input(0)), node.attribute("norm", "MAX")
    over = (node.axis(-1, x),)
    kinds = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    if norm not in kinds:
        raise node.refuse(f"norm {norm!r} does not exist")
    length = applied(node, kinds[norm], x, axes=over)
    nothing = applied(node, "Equal", length, 0)
    return applied(node, "Div", x, applied(node, "Where", nothing, 1, length))


def _product(node: NodeReader, x: VTensor, rows: Array, numbers: Array, dim: str) -> VTensor:
    """Return x times the transposed matrix ``rows``, plus ``numbers``, along a new dim ``dim``."""
    if rows.shape[1] != x.size("F") or numbers.size not in (0, 1, len(rows)):
        raise node.refuse(f"coefficients and intercepts do not fit {x.size('F')} features")
    y = applied(node, "MatMul", x, node.made(rows.T.copy(), ("F", dim)), over="F")
    if not numbers.any():
        return y
    more = numbers if numbers.size == len(rows) else np.repeat(numbers, len(rows))
    return applied(node, "Add", y, node.made(more, (dim,)))


def _rows(node: NodeReader, values: Array, count: int) -> Array:
    if count < 1 or values.size % count:
        raise node.refuse(f"{values.size} numbers are no matrix of {count} rows")
    return values.reshape(count, -1)


def _read_regressor(node: NodeReader) -> VTensor:
    x, targets = features_of(node), int(node.attribute("targets", 1))
    rows = _rows(node, _floats(node, "coefficients"), targets)
    y = _product(node, x, rows, _floats(node, "intercepts"), "target")
    return regressed(node, y)


def regressed(node: NodeReader, y: VTensor) -> VTensor:
    """Return a regressor's scores after the ``post_transform`` of its attribute."""
    return post_transform(node, y, "target", node.attribute("post_transform", "NONE"))


def labels_of(node: NodeReader, name: str = "classlabels_ints") -> Array:
    """Return a classifier's labels.

    Raises:
        VTensorError: it has none, or they are texts, which a session replaces before.
    """
    labels = np.asarray(node.attribute(name, []), np.int64)
    if not labels.size:
        raise node.refuse(f"{name} is absent")
    return labels


def _chosen(node: NodeReader, labels: Array, scores: VTensor) -> VTensor:
    """Return the label of the first class with the largest score."""
    place = applied(node, "ArgMax", scores, axis="class", keepdims=False)
    table = node.made(labels, ("label",))
    return applied(node, "Gather", table, place, axis="label")


def _of_two(node: NodeReader, labels: Array, score: VTensor) -> VTensor:
    """Return the second label where a score is above 0, else the first one; score has one class."""
    column = node.reshape(score, {"N": score.size("N")})
    choice = [node.made(label, ()) for label in labels[::-1]]
    return applied(node, "Where", applied(node, "Greater", column, 0), *choice)


def _pair(node: NodeReader, kind: str, score: VTensor, negative: str) -> VTensor:
    """Return both scores of two classes, of which only the second's is known.

    The first is its complement, 1 - s, or -s; which one, ONNX Runtime decides by ``kind``.
    """
    if kind == "LOGISTIC":
        both = [applied(node, "Neg", score), score]
        return applied(node, "Sigmoid", applied(node, "Concat", *both, axis="class"))
    if kind == "PROBIT":
        raise node.refuse("PROBIT of one score for two classes has no meaning")
    less = applied(node, "Neg", score) if kind == negative else applied(node, "Sub", 1, score)
    return applied(node, "Concat", less, score, axis="class")


def _read_classifier(node: NodeReader) -> Sequence[VTensor]:
    x, labels = features_of(node), labels_of(node)
    numbers, weights = _floats(node, "intercepts"), _floats(node, "coefficients")
    count = numbers.size or (weights.size // x.size("F") if x.size("F") else 0)
    scores = _product(node, x, _rows(node, weights, count), numbers, "class")
    kind = node.attribute("post_transform", "NONE")
    if count == 1 and len(labels) == 2:
        return [_of_two(node, labels, scores), _pair(node, kind, scores, "")]
    if count != len(labels):
        raise node.refuse(f"{len(labels)} labels for {count} classes")
    return [_chosen(node, labels, scores), post_transform(node, scores, "class", kind)]


def _kernel(node: NodeReader, x: VTensor, vectors: Array, kind: str = "") -> VTensor:
    """Return the kernel function of each row of x and each support vector, along the dim S.

    ``kind`` is the function's name; empty means that of the attribute ``kernel_type``.
    """
    kind = kind or node.attribute("kernel_type", "LINEAR")
    gamma, offset, degree = [*_floats(node, "kernel_params"), 0, 0, 0][:3]
    if vectors.shape[1] != x.size("F"):
        raise node.refuse(f"support vectors have {vectors.shape[1]} features, not {x.size('F')}")
    if kind == "RBF":
        apart = applied(node, "Sub", x, node.made(vectors, ("S", "F")))
        square = applied(node, "ReduceSumSquare", apart, axes=("F",), keepdims=False)
        return applied(node, "Exp", applied(node, "Mul", square, -gamma))
    y = applied(node, "MatMul", x, node.made(vectors.T.copy(), ("F", "S")), over="F")
    if kind == "LINEAR":
        return y
    y = applied(node, "Add", applied(node, "Mul", y, gamma), offset)
    if kind == "POLY":
        return applied(node, "Pow", y, degree)
    if kind != "SIGMOID":
        raise node.refuse(f"kernel_type {kind!r} does not exist")
    return applied(node, "Tanh", y)


def _weighed(node: NodeReader, y: VTensor, weights: Array, bias: Array, dim: str) -> VTensor:
    """Return y times a matrix, plus a bias: one number for each index of the new dim ``dim``."""
    y = applied(node, "MatMul", y, node.made(weights, ("S", dim)), over="S")
    return applied(node, "Add", y, node.made(bias, (dim,)))


def _read_svm_regressor(node: NodeReader) -> VTensor:
    x, count = features_of(node), int(node.attribute("n_supports", 0))
    weights, bias = _floats(node, "coefficients"), _floats(node, "rho")[:1]
    if bias.size != 1:
        raise node.refuse("rho is absent")
    if count:
        if weights.size != count:
            raise node.refuse(f"{weights.size} coefficients for {count} support vectors")
        vectors = _rows(node, _floats(node, "support_vectors"), count)
        y = _weighed(node, _kernel(node, x, vectors), weights.reshape(-1, 1), bias, "target")
    else:
        y = _weighed(
            node,
            _kernel(node, x, weights.reshape(1, -1)),
            np.ones((1, 1), np.float32),
            bias,
            "target",
        )
    if not node.attribute("one_class", 0):
        return y
    return applied(node, "Where", applied(node, "Greater", y, 0), 1, -1)


def _read_svm_classifier(node: NodeReader) -> Sequence[VTensor]:
    x, labels = features_of(node), labels_of(node)
    weights, bias = _floats(node, "coefficients"), _floats(node, "rho")
    kind, classes = node.attribute("post_transform", "NONE"), len(labels)
    per_class = [int(count) for count in node.attribute("vectors_per_class", [])]
    if not per_class:
        y = _kernel(node, x, _rows(node, weights, classes), "LINEAR")
        scores = node.reshape(y, {"N": y.size("N"), "class": classes})
        scores = applied(node, "Add", scores, node.made(bias[:1].reshape(()), ()))
        label = _chosen(node, labels, scores)
        if classes == 2 and bias.size == 1:  # a large score is the second class's, for ONNX Runtime
            most = applied(node, "ReduceMax", scores, axes=("class",), keepdims=False)
            bound = ("GreaterOrEqual", 0.5) if (weights >= 0).all() else ("Greater", 0)
            above = applied(node, bound[0], most, bound[1])
            label = applied(node, "Where", above, node.made(labels[1], ()), label)
        return [label, post_transform(node, scores, "class", kind)]
    count, pairs = sum(per_class), [*combinations(range(classes), 2)]
    if len(per_class) != classes or weights.size != (classes - 1) * count or min(per_class) < 0:
        raise node.refuse("vectors_per_class, coefficients and labels do not fit each other")
    if bias.size != len(pairs):
        raise node.refuse(f"rho has {bias.size} numbers, and there are {len(pairs)} pairs")
    vectors, table = (
        _rows(node, _floats(node, "support_vectors"), count),
        weights.reshape(-1, count),
    )
    ends = np.cumsum([0, *per_class])
    matrix = np.zeros((count, len(pairs)), np.float32)
    for number, (one, two) in enumerate(pairs):
        for own, other in ((one, two - 1), (two, one)):
            part = slice(ends[own], ends[own + 1])
            matrix[part, number] = table[other, part]
    scores = _weighed(node, _kernel(node, x, vectors), matrix, bias, "class")
    wins = applied(node, "Cast", applied(node, "Greater", scores, 0), to="f32")
    signs = np.zeros((len(pairs), classes), np.float32)
    losses = np.zeros(classes, np.float32)
    for number, (one, two) in enumerate(pairs):
        signs[number, one], signs[number, two] = 1, -1
        losses[two] += 1
    won = node.reshape(wins, {"N": wins.size("N"), "S": len(pairs)})
    label = _chosen(node, labels, _weighed(node, won, signs, losses, "class"))
    slopes, offsets = _floats(node, "prob_a"), _floats(node, "prob_b")
    if slopes.size:
        if not slopes.size == offsets.size == len(pairs):
            raise node.refuse(f"prob_a and prob_b must have {len(pairs)} numbers")
        line = applied(node, "Mul", scores, node.made(-slopes, ("class",)))
        line = applied(node, "Sub", line, node.made(offsets, ("class",)))
        line = node.reshape(applied(node, "Sigmoid", line), {"N": x.size("N"), "pair": len(pairs)})
        scores = applied(node, "PairwiseProbabilities", line, classes=classes)
        return [label, post_transform(node, scores, "class", kind)]
    if classes == 2:
        return [label, _pair(node, kind, scores, "NONE")]
    return [label, post_transform(node, scores, "class", kind)]


def _extractor_names(node: Naming) -> None:
    for position in range(node.rank("x0") - 1):
        node.same("x0", position, "y0", position)


def _read_extractor(node: NodeReader) -> VTensor:
    x, places = node.input(0), node.input(1)
    places = node.reshape(places, {"picked": places.num_elements})
    y = applied(node, "Gather", x, places, axis=node.axis(-1, x))
    return y if x.ndimensions() > 1 else node.reshape(y, {"N": 1, "picked": places.num_elements})


def _vectorizer_names(node: Naming) -> None:
    for role in node.roles:
        node.same(role, 0, "y0", 0)


def _read_vectorizer(node: NodeReader) -> VTensor:
    lengths = [int(length) for length in node.attribute("inputdimensions", [])]
    if len(lengths) != len(node.inputs):
        raise node.refuse("inputdimensions must have a number for each input")
    parts = []
    for value, length in zip(node.inputs, lengths, strict=True):
        rows = value.dims[node.axis(0, value)] if value.ndimensions() > 1 else 1
        width = value.num_elements // max(rows, 1)
        x = as_type(node, node.reshape(value, {"N": rows, "F": width}))
        if width > length:
            x = applied(node, "Slice", x, axes=("F",), starts=(0,), ends=(length,), steps=(1,))
        elif width < length:
            x = applied(node, "Pad", x, axes=("F",), pads=(0, length - width))
        parts.append(x)
    return applied(node, "Concat", *parts, axis="F")


def _spelling(
    name: str,
    read: Callable[[NodeReader], Any],
    names: Callable[[Naming], None] = same_names,
    rank: Callable[[Naming], int] = lambda node: node.rank("x0"),
) -> Spelling:
    return Spelling(f"{ML}{name}", 1, read, names, rank=rank)


SCALER = _spelling("Scaler", _read_scaler)
BINARIZER = _spelling("Binarizer", _read_binarizer)
IMPUTER = _spelling("Imputer", _read_imputer)
NORMALIZER = _spelling("Normalizer", _read_normalizer)
EXTRACTOR = _spelling(
    "ArrayFeatureExtractor", _read_extractor, _extractor_names, lambda n: max(n.rank("x0"), 2)
)
VECTORIZER = _spelling("FeatureVectorizer", _read_vectorizer, _vectorizer_names, lambda _: 2)
#: Models that are products with constants.
PRODUCTS = [
    _spelling("LinearRegressor", _read_regressor, _feature_names, lambda _: 2),
    _spelling("LinearClassifier", _read_classifier, class_names, lambda _: 1),
    _spelling("SVMRegressor", _read_svm_regressor, _feature_names, lambda _: 2),
    _spelling("SVMClassifier", _read_svm_classifier, class_names, lambda _: 1),
]
