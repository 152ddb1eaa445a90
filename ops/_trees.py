"""Decision trees as ONNX's attributes describe them, packed into tables of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from libdesc.numpy.arrays import Array
from vtensor.operators import NodeReader

#: How a node compares a feature with its threshold; the index is the number in a node's word.
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_LEAF, _MEMBER = -1, 6

#: The largest number of a feature: a node's word has four bits for the mode and for NaN.
_MOST_FEATURES = 1 << 27


class Trees(NamedTuple):
    """Trees as arrays, one element for each node or vote.

    Attributes:
        features, modes, thresholds, nan: for each node the feature, the index in ``MODES`` (-1: a
            leaf), the threshold, and whether NaN goes to the first child.
        first, second: the index of each child.
        roots: the index of each tree's root.
        leaves, targets, weights: for each vote its leaf, its target and its weight.
    """

    features: Array
    modes: Array
    thresholds: Array
    nan: Array
    first: Array
    second: Array
    roots: Array
    leaves: Array
    targets: Array
    weights: Array

    @property
    def plain(self) -> bool:
        """True if each node compares by <=, and NaN goes to its second child."""
        return not (self.modes > 0).any() and not self.nan[self.modes >= 0].any()

    def tables(self, dtype: str) -> tuple[Array, Array, Array, Array]:
        """Return the nodes' words, the roots, and the votes' targets and weights, leaf by leaf.

        ``dtype`` is the element type of thresholds and weights, f32 or f64.
        """
        number = np.dtype(np.float64 if dtype == "f64" else np.float32)
        is_leaf, votes = self.modes == _LEAF, np.argsort(self.leaves, kind="stable")
        leaves, nodes = self.leaves[votes], np.arange(len(self.modes))
        begins = np.searchsorted(leaves, nodes)
        counts = np.searchsorted(leaves, nodes, "right") - begins
        words = np.zeros((len(nodes), 3 + number.itemsize // 4), np.int32)
        words[:, 0] = np.where(is_leaf, -1, 16 * self.features + 2 * self.modes + self.nan)
        words[:, 1] = np.where(is_leaf, begins, self.first)
        words[:, 2] = np.where(is_leaf, counts, self.second)
        thresholds = np.where(is_leaf, 0, self.thresholds).astype(number)
        words[:, 3:] = thresholds.view(np.int32).reshape(len(nodes), -1)
        numbers = self.targets[votes].astype(np.int32), self.weights[votes].astype(number)
        return words, self.roots.astype(np.int32), *numbers


def _ints(node: NodeReader, name: str, count: int | None = None) -> Array:
    """Return a list of integers; zeros if the attribute is absent and ``count`` is given."""
    values = np.asarray(node.attribute(name, []), np.int64)
    if not len(values) and count is not None:
        return np.zeros(count, np.int64)
    if values.ndim != 1 or (count is not None and len(values) != count):
        raise node.refuse(f"{name} has {values.size} elements, not {count}")
    return values


def numbers_of(node: NodeReader, name: str) -> Array:
    """Return the numbers of an attribute, which is a list, or a tensor with another name."""
    tensor = node.attribute(f"{name}_as_tensor")
    return np.asarray(node.attribute(name, []) if tensor is None else tensor).reshape(-1)


def old_trees(node: NodeReader, votes: str) -> Trees:
    """Return the trees of a TreeEnsembleClassifier or TreeEnsembleRegressor.

    ``votes`` begins the names of the attributes of votes: ``class`` or ``target``.
    """
    trees = _ints(node, "nodes_treeids")
    many = len(trees)
    ids, features = _ints(node, "nodes_nodeids", many), _ints(node, "nodes_featureids", many)
    names = node.attribute("nodes_modes", [])
    if unknown := {*names} - {*MODES, "LEAF"}:
        raise node.refuse(f"nodes_modes has {', '.join(sorted(unknown))}")
    modes = np.array([_LEAF if mode == "LEAF" else MODES.index(mode) for mode in names], np.int64)
    thresholds, weights = numbers_of(node, "nodes_values"), numbers_of(node, f"{votes}_weights")
    if not len(thresholds) == len(modes) == many:
        raise node.refuse("nodes_values, nodes_modes and nodes_treeids differ in length")
    targets, count = _ints(node, f"{votes}_ids"), len(weights)
    if len(targets) != count:
        raise node.refuse(f"{votes}_ids and {votes}_weights differ in length")
    keys = [trees, *(_ints(node, f"{votes}_treeids", count),)]
    width = int(max(ids.max(initial=0), 0)) + 1
    own = trees * width + ids
    order = np.argsort(own, kind="stable")

    def place(tree: Array, numbers: Array) -> Array:
        wanted = tree * width + numbers
        at = np.searchsorted(own[order], wanted).clip(max=max(many - 1, 0))
        found = order[at] if many else at
        if (numbers < 0).any() or (numbers >= width).any() or (own[found] != wanted).any():
            raise node.refuse("a node or a vote names a node that does not exist")
        return np.asarray(found)

    inner = modes >= 0
    children = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        child = np.zeros(many, np.int64)
        child[inner] = place(trees[inner], _ints(node, name, many)[inner])
        children.append(child)
    is_child = np.zeros(many, bool)
    for child in children:
        is_child[child[inner]] = True
    leaves = place(keys[1], _ints(node, f"{votes}_nodeids", count))
    nan = _ints(node, "nodes_missing_value_tracks_true", many)
    columns = features, modes, thresholds, nan != 0
    rows = np.flatnonzero(~is_child), leaves, targets, weights
    return _checked(node, Trees(*columns, children[0], children[1], *rows))


def new_trees(node: NodeReader) -> Trees:
    """Return the trees of a TreeEnsemble."""
    features = _ints(node, "nodes_featureids")
    many = len(features)
    modes = np.asarray(node.attribute("nodes_modes")).astype(np.int64).reshape(-1)
    thresholds = np.asarray(node.attribute("nodes_splits")).reshape(-1)
    weights = np.asarray(node.attribute("leaf_weights")).reshape(-1)
    targets = _ints(node, "leaf_targetids", len(weights))
    if not len(modes) == len(thresholds) == many or (modes > _MEMBER).any():
        raise node.refuse("nodes_modes, nodes_splits and nodes_featureids do not fit")
    children = []
    for branch in ("true", "false"):
        child, is_leaf = (
            _ints(node, f"nodes_{branch}nodeids", many),
            _ints(node, f"nodes_{branch}leafs", many),
        )
        limit = np.where(is_leaf != 0, len(weights), many)
        if (child < 0).any() or (child >= limit).any():
            raise node.refuse("a node has a child that does not exist")
        children.append(np.where(is_leaf != 0, child + many, child))
    roots = _ints(node, "tree_roots")
    if (roots < 0).any() or (roots >= many).any():
        raise node.refuse("tree_roots names a node that does not exist")
    nan = _ints(node, "nodes_missing_value_tracks_true", many) != 0
    leaves = len(weights)
    zeros = np.zeros(leaves, np.int64)
    columns = [
        np.concatenate(pair)
        for pair in (
            (features, zeros),
            (modes, zeros + _LEAF),
            (thresholds, np.zeros(leaves, thresholds.dtype)),
            (nan, zeros != 0),
            (children[0], zeros),
            (children[1], zeros),
        )
    ]
    own = _without_sets(node, columns)
    places = np.arange(many, many + leaves)
    return _checked(
        node, Trees(own[0], own[1], own[2], own[3], own[4], own[5], roots, places, targets, weights)
    )


def _without_sets(node: NodeReader, columns: Sequence[Array]) -> list[Array]:
    """Return the columns of nodes in which comparisons with one number replace those with a set.

    A set becomes a chain of nodes that all lead to its first child.
    """
    features, modes, thresholds, nan, first, second = columns
    members = np.flatnonzero(modes == _MEMBER)
    if not len(members):
        return [*columns]
    values = np.asarray(node.attribute("membership_values", np.zeros(0))).reshape(-1)
    parts = np.split(values, np.flatnonzero(np.isnan(values)))
    sets = [part[~np.isnan(part)] for part in parts]
    if len(sets) < len(members):
        raise node.refuse("membership_values has fewer sets than there are nodes that need one")
    more: list[list[Any]] = []
    modes, thresholds, second = modes.copy(), thresholds.copy(), second.copy()
    for at, numbers in zip(members, sets, strict=False):
        last, modes[at] = second[at], MODES.index("BRANCH_EQ")
        thresholds[at] = numbers[0] if len(numbers) else np.nan
        place = int(at)
        for number in numbers[1:]:
            row = len(modes) + len(more)
            if place == at:
                second[at] = row
            else:
                more[-1][5] = row
            more.append([features[at], modes[at], number, nan[at], first[at], last])
            place = row
    whole = features, modes, thresholds, nan, first, second
    if not more:
        return [*whole]
    added = zip(*more, strict=True)
    return [
        np.concatenate([column, np.asarray(new).astype(column.dtype)])
        for column, new in zip(whole, added, strict=True)
    ]


def _checked(node: NodeReader, trees: Trees) -> Trees:
    """Return the trees with each node after its parents.

    Raises:
        VTensorError: a feature is out of range, or nodes form a cycle.
    """
    inner = np.flatnonzero(trees.modes >= 0)
    features = trees.features[inner]
    if (features < 0).any() or (features >= _MOST_FEATURES).any():
        raise node.refuse("nodes_featureids has a number that no feature has")
    edges = [trees.first[inner], trees.second[inner]]
    if all((child > inner).all() for child in edges):
        return trees
    level = np.zeros(len(trees.modes), np.int64)
    while True:
        before = level.copy()
        for child in edges:
            np.maximum.at(level, child, level[inner] + 1)
        if level.max() >= len(level):
            raise node.refuse("the nodes of a tree form a cycle")
        if (level == before).all():
            break
    order = np.argsort(level, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return trees._replace(
        features=trees.features[order],
        modes=trees.modes[order],
        thresholds=trees.thresholds[order],
        nan=trees.nan[order],
        first=place[trees.first[order]],
        second=place[trees.second[order]],
        roots=place[trees.roots],
        leaves=place[trees.leaves],
    )
