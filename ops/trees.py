"""Ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from libdesc import Routine, eigen, invoker
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from ops._learned import (
    ML,
    as_type,
    class_names,
    features_of,
    labels_of,
    post_transform,
    regressed,
)
from ops._places import one_output
from ops._trees import MODES, Trees, new_trees, numbers_of, old_trees
from ops._windows import in_order
from ptensor import PTensor
from vtensor.errors import InputError
from vtensor.operators import Context, Cost, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor

#: ONNX's numbers of aggregates and post transforms, in a TreeEnsemble.
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

_DIMS = {
    "x": "N F",
    "nodes": "node word",
    "roots": "tree",
    "targets": "vote",
    "weights": "vote",
    "base": "base",
}
_TYPES: dict[str, Sequence[str]] = {
    "": ["f32", "f64"],
    "nodes": ["s32"],
    "roots": ["s32"],
    "targets": ["s32"],
}
_WITH_LABELS: dict[str, Sequence[str]] = {
    **_TYPES,
    "labels": ["s64"],
    "label": ["s64"],
    "scores": ["f32"],
}


def _tables(node: NodeReader, trees: Trees, x: VTensor, base: Array) -> list[VTensor]:
    """Return the constants of an ensemble: nodes, roots, targets, weights and base scores."""
    if trees.features[trees.modes >= 0].max(initial=-1) >= x.size("F"):
        raise node.refuse(f"nodes_featureids names a feature beyond the {x.size('F')} of x")
    arrays = [*trees.tables(x.dtype), base.astype("f8" if x.dtype == "f64" else "f4")]
    names = [row.split() for role, row in _DIMS.items() if role != "x"]
    return [node.made(array, dims) for array, dims in zip(arrays, names, strict=True)]


def _regression(
    node: NodeReader, x: VTensor, trees: Trees, targets: int, aggregate: str, to: str
) -> VTensor:
    base = numbers_of(node, "base_values")
    if base.size not in (0, targets):
        raise node.refuse(f"base_values has {base.size} numbers, and there are {targets} targets")
    if targets < 1 or (trees.targets < 0).any() or (trees.targets >= targets).any():
        raise node.refuse(f"a vote is for a target beyond the {targets} that there are")
    tables = _tables(node, trees, x, base if base.size else np.zeros(targets))
    y: VTensor = node.add(TreeEnsemble(aggregate, to, trees.plain), x, *tables)
    return y


def _read_regressor(node: NodeReader) -> VTensor:
    x, trees = features_of(node, "f64"), old_trees(node, "target")
    targets = int(node.attribute("n_targets", 1))
    kind = node.attribute("aggregate_function", "SUM")
    if kind not in _AGGREGATES:
        raise node.refuse(f"aggregate_function {kind!r} does not exist")
    return regressed(node, _regression(node, x, trees, targets, kind, "f32"))


def _read_ensemble(node: NodeReader) -> VTensor:
    x, trees, to = features_of(node, "f64"), new_trees(node), node.input(0).dtype
    kind, transform = (
        int(node.attribute(name, default))
        for name, default in (("aggregate_function", 1), ("post_transform", 0))
    )
    if not 0 <= kind < len(_AGGREGATES) or not 0 <= transform < len(_TRANSFORMS):
        raise node.refuse("aggregate_function or post_transform is out of range")
    targets = int(node.attribute("n_targets", 1))
    wide = "f64" if x.dtype == "f64" else "f32"
    y = _regression(node, x, trees, targets, _AGGREGATES[kind], wide)
    return as_type(node, post_transform(node, y, "target", _TRANSFORMS[transform]), to)


def _read_classifier(node: NodeReader) -> Sequence[VTensor]:
    x, trees = features_of(node, "f64"), old_trees(node, "class")
    labels = labels_of(node, "classlabels_int64s")
    base, kind = numbers_of(node, "base_values"), node.attribute("post_transform", "NONE")
    count = len(labels)
    if (trees.targets < 0).any() or (trees.targets >= count).any():
        raise node.refuse(f"a vote is for a class beyond the {count} that have labels")
    voted = np.unique(trees.targets)
    binary = count == 2 and len(voted) == 1
    #: Whether only the first of two classes has a score, which then decides both.
    alone = count == 2 and 1 not in voted and base.size != 2
    if base.size > max(count, 2):
        raise node.refuse(f"base_values has {base.size} numbers, and there are {count} classes")
    if alone and kind == "PROBIT":
        raise node.refuse("PROBIT of one score for two classes has no meaning")
    positive = bool((trees.weights >= 0).all())
    op = TreeEnsembleClassifier(
        binary, positive, alone and positive and kind != "LOGISTIC", trees.plain
    )
    tables = [*_tables(node, trees, x, base), node.made(np.append(labels, [0, 1]), ("label",))]
    result: Any = node.add(op, x, *tables)
    label, scores = result
    if alone and kind != "LOGISTIC":
        return [label, scores]
    return [label, post_transform(node, scores, "class", kind)]


def _names(node: Naming) -> None:
    node.name("x0", "N F")
    node.name("y0", "N target")


def _cost(_: object, x: VTensor, *others: VTensor) -> int:
    """Return the operations of an ensemble, whose trees are about 8 levels deep."""
    return 16 * x.size("N") * others[1].num_elements


def _has_words(_: object, *operands: VTensor) -> bool:
    return operands[1].size("word") in (4, 5)


#: What holds for the tables of an ensemble.
_HOLDS = [(_has_words, "a node has 4 words, with its threshold in f64 5")]


@operator(
    "TreeEnsemble",
    dims={**_DIMS, "y": "N target"},
    holds=_HOLDS,
    traits=[Cost(_cost)],
    onnx=[
        Spelling(f"{ML}TreeEnsembleRegressor", 1, _read_regressor, _names, rank=lambda _: 2),
        Spelling(f"{ML}TreeEnsemble", 5, _read_ensemble, _names, rank=lambda _: 2),
    ],
)
class TreeEnsemble:
    """Aggregate the votes of the leaves that a row reaches in decision trees.

    A node compares a feature with a threshold, and leads to its first child if the comparison
    holds, else to its second. y[N, target] = base[target] + the aggregate, over all trees, of the
    weights of the leaf's votes for the target. With several targets, y is 0 where there is no vote.

    Dims:
        x: N F    nodes: node word    roots: tree    targets, weights: vote    base: base, one for
        each target    y: N target
        The words of a node are 16 * feature + 2 * the index of its comparison (<=, <, >=, >, ==,
        !=) + 1 if NaN leads to the first child; its children, which come after it; its threshold.
        A leaf has -1, its first vote, the number of its votes, and 0.
    Args:
        aggregate: the sum of weights, their mean over all trees, the smallest or the largest.
        to: the element type of y.
        plain: True if all nodes compare by <=, and NaN leads to the second child.
    Raises:
        InputError: nodes do not fit each other, or a feature does not exist.

    >>> from vtensor.operators import Context
    >>> tables = [("nodes", "s32", {"node": 3, "word": 4}), ("roots", "s32", {"tree": 1})]
    >>> tables += [("targets", "s32", {"vote": 2}), ("weights", "f32", {"vote": 2})]
    >>> tables = [VTensor(dtype, dims) for _, dtype, dims in tables]
    >>> x, base = VTensor("f32", {"N": 9, "F": 4}), VTensor("f32", {"base": 1})
    >>> TreeEnsemble().compute(Context(), x, *tables, base).summary()
    'f32 N=9 target=1'

    Source: ONNX operator TreeEnsemble of ai.onnx.ml, version 5.
    """

    aggregate: str = param(default="SUM", choices=_AGGREGATES)
    to: str = param(default="f32", choices=("f32", "f64"))
    plain: bool = param(default=False)

    def compute(
        self,
        ctx: Context,
        x: VTensor,
        nodes: VTensor,
        roots: VTensor,
        targets: VTensor,
        weights: VTensor,
        base: VTensor,
    ) -> VTensor:
        inputs = [x, nodes, roots, targets, weights, base]
        sizes = {"N": x.size("N"), "target": base.size("base")}
        return one_output(ctx, self, inputs, sizes, self.to)


@operator(
    "TreeEnsembleClassifier",
    dims={**_DIMS, "labels": "label", "label": "N", "scores": "N class"},
    holds=[
        *_HOLDS,
        (lambda *operands: operands[-1].size("label") > 2, "there are no classes"),
        (
            lambda *operands: operands[-2].size("base") <= max(operands[-1].size("label") - 2, 2),
            "there are more base scores than classes",
        ),
        (
            lambda op, *operands: not op.binary or operands[-1].size("label") == 4,
            "a binary choice is between two classes",
        ),
    ],
    traits=[Cost(_cost)],
    onnx=Spelling(
        f"{ML}TreeEnsembleClassifier", 1, _read_classifier, class_names, rank=lambda _: 1
    ),
)
class TreeEnsembleClassifier:
    """Classify rows by the votes of the leaves that they reach in decision trees.

    The scores of a row are the sums of its votes per class, as in TreeEnsemble. The label is that
    of the first class with the largest score. Two classes: if no vote is for the second class, the
    first one's score s is the second's, and the first has -s or 1 - s. The label is the second one
    if that score is above 0; above 0.5, if ``binary`` and ``positive``.

    Dims:
        x: N F    nodes, roots, targets, weights: as in TreeEnsemble    base: base, the base scores
        labels: label, those of the classes, then the negative and the positive label that two
        classes have unless ``binary``    label: N, s64    scores: N class, f32
    Args:
        binary: True if all votes are for one of two classes.
        positive: True if no vote is negative.
        complement: True makes the first of two scores 1 - s, if the second class has no vote.
        plain: as in TreeEnsemble.
    Raises:
        InputError: nodes do not fit each other, or a feature does not exist.

    >>> from vtensor.operators import Context
    >>> tables = [("nodes", "s32", {"node": 3, "word": 4}), ("roots", "s32", {"tree": 1})]
    >>> tables += [("targets", "s32", {"vote": 2}), ("weights", "f32", {"vote": 2})]
    >>> tables += [("base", "f32", {"base": 0}), ("labels", "s64", {"label": 5})]
    >>> tables = [VTensor(dtype, dims) for _, dtype, dims in tables]
    >>> x = VTensor("f32", {"N": 9, "F": 4})
    >>> [y.summary() for y in TreeEnsembleClassifier().compute(Context(), x, *tables)]
    ['s64 N=9', 'f32 N=9 class=3']

    Source: ONNX operator TreeEnsembleClassifier of ai.onnx.ml, version 3; ONNX Runtime.
    """

    binary: bool = param(default=False)
    positive: bool = param(default=False)
    complement: bool = param(default=False)
    plain: bool = param(default=False)

    def compute(
        self,
        ctx: Context,
        x: VTensor,
        nodes: VTensor,
        roots: VTensor,
        targets: VTensor,
        weights: VTensor,
        base: VTensor,
        labels: VTensor,
    ) -> tuple[VTensor, VTensor]:
        rows, classes = x.size("N"), labels.size("label") - 2
        label = VTensor("s64", {"N": rows}, ctx.output(0))
        scores = VTensor("f32", {"N": rows, "class": classes}, ctx.output(1))
        ctx.dispatch(self, [x, nodes, roots, targets, weights, base, labels], [label, scores])
        return label, scores


def _one_type(op: object, x: VTensor, *others: VTensor) -> bool | str:
    same = x.dtype == others[3].dtype == others[4].dtype and others[-1].dtype in ("f32", x.dtype)
    same = same and others[0].size("word") == (5 if x.dtype == "f64" else 4)
    return same or "x, thresholds, weights and base scores must be of one element type"


@invoker("TreeEnsemble", library="eigen", dtypes=_TYPES, when=_one_type)
def eigen_trees(ctx: Context, op: TreeEnsemble, *tensors: VTensor) -> Routine:
    return eigen.forest(tensors, op.aggregate, op.plain)


@invoker("TreeEnsembleClassifier", library="eigen", dtypes=_WITH_LABELS, when=_one_type)
def eigen_classifier(ctx: Context, op: TreeEnsembleClassifier, *tensors: VTensor) -> Routine:
    return eigen.tree_classifier(tensors, op.plain, op.binary, op.positive, op.complement)


#: The layout in which definitions need an operand.
_ORDER = in_order("N F node word tree vote base label target class")

_BROKEN = "the nodes of a tree do not fit each other"


def _leaves(x: Array, nodes: Array, roots: Array) -> Iterator[Array]:
    """Yield the node of the leaf that each row of x reaches, for each tree.

    Raises:
        InputError: nodes do not fit each other, or a feature does not exist.
    """
    number = np.float64 if nodes.shape[1] == 5 else np.float32
    thresholds = np.ascontiguousarray(nodes[:, 3:]).view(number)[:, 0]
    compare: Any = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal]
    for root in roots:
        at = np.full(len(x), root, np.int64)
        while True:
            if ((at < 0) | (at >= len(nodes))).any():
                raise InputError(_BROKEN)
            words = nodes[at, 0].astype(np.int64)
            moves = np.flatnonzero(words >= 0)
            if not moves.size:
                break
            features = words[moves] >> 4
            if features.max() >= x.shape[1]:
                raise InputError(_BROKEN)
            values, bounds = x[moves, features], thresholds[at[moves]]
            modes = words[moves] >> 1 & 7
            rows = [compare[mode](values, bounds) for mode in range(len(MODES))]
            first = np.choose(modes.clip(max=len(MODES) - 1), rows)
            first |= np.isnan(values) & (words[moves] & 1 != 0)
            after = np.where(first, nodes[at[moves], 1], nodes[at[moves], 2])
            if (after <= at[moves]).any():
                raise InputError(_BROKEN)
            at[moves] = after
        yield at


def _scores(operands: Sequence[PTensor], count: int, aggregate: str = "SUM") -> tuple[Array, Array]:
    """Return the aggregated votes of each row and target, and whether there was one."""
    x, nodes, roots, targets, weights = (wide(operand.data()) for operand in operands[:5])
    scores, has = np.zeros((len(x), count), x.dtype), np.zeros((len(x), count), bool)
    for leaves in _leaves(x, nodes, roots):
        for row, leaf in enumerate(leaves):
            first, many = nodes[leaf, 1:3].tolist()
            if first < 0 or many < 0 or first + many > len(targets):
                raise InputError(_BROKEN)
            for vote in range(first, first + many):
                target, weight = targets[vote], weights[vote]
                if not 0 <= target < count:
                    raise InputError(_BROKEN)
                if aggregate in ("MIN", "MAX") and has[row, target]:
                    pick = min if aggregate == "MIN" else max
                    scores[row, target] = pick(scores[row, target], weight)
                else:
                    scores[row, target] += weight
                has[row, target] = True
    return scores, has


@definition("TreeEnsemble", dtypes={**_TYPES, "": FLOATS}, order=_ORDER)
def trees_of(ctx: Context, op: TreeEnsemble, *operands: PTensor) -> None:
    base, y = wide(operands[-2].data()), operands[-1].data()
    scores, has = _scores(operands, y.shape[1], op.aggregate)
    if op.aggregate == "AVERAGE":
        scores /= max(operands[2].size("tree"), 1)
    y[...] = np.where(has | (y.shape[1] == 1), scores + base, 0)


@definition("TreeEnsembleClassifier", dtypes={**_WITH_LABELS, "": FLOATS}, order=_ORDER)
def classified(ctx: Context, op: TreeEnsembleClassifier, *operands: PTensor) -> None:
    labels, label, y = (operand.data() for operand in operands[-3:])
    base = wide(operands[-4].data())
    count = y.shape[1]
    scores, has = _scores(operands, count)
    if count > 2:
        if base.size == count:
            scores, has = scores + base, np.ones_like(has)
        ranked = np.where(has, scores, -np.inf)
        found = np.argmax(ranked, axis=1)
        none = ranked.max(axis=1, initial=-np.inf) == -np.inf
        found[none] = np.argmax(has[none], axis=1)
        label[...] = labels[found]
    else:
        label[...] = _of_two(op, scores, has, base, labels)
    y[...] = np.where(has, scores, 0)


def _of_two(
    op: TreeEnsembleClassifier, scores: Array, has: Array, base: Array, labels: Array
) -> Array:
    """Complete the scores of one or two classes in place, and return the label of each row."""
    count = scores.shape[1]
    second = has[:, 1].copy() if count == 2 else np.zeros(len(scores), bool)
    if base.size == 2 and count == 2:
        scores[second, 1] = base[1] + scores[second, 0]
        scores[second, 0] = -scores[second, 1]
    if base.size:
        scores[~second | (base.size == 1), 0] += base[0]
        has[~second | False, 0] |= base.size == 2
    score = np.where(second, scores[:, -1], np.where(has[:, 0], scores[:, 0], 0))
    above = (score > (0.5 if op.binary and op.positive else 0)).astype(np.int64)
    if count == 2 and base.size != 2:
        scores[~second, 1] = scores[~second, 0]
        scores[~second, 0] = (1 if op.complement else 0) - scores[~second, 1]
        has[~second] = True
    return np.asarray(labels[above if op.binary else count + above])
