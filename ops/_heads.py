"""Shared parts of ONNX Runtime's operators of attention, which are read as operators on heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import NamedTuple

import numpy as np

from ops._names import fresh
from vtensor.language.dtype import numpy_dtype
from vtensor.operators import NodeReader, named
from vtensor.tensor import VTensor

#: The score of a query and a later key where ONNX Runtime has one: the smallest number of f32.
LOWEST = float(np.finfo(np.float32).min)


def do(node: NodeReader, op: str, *operands: VTensor) -> VTensor:
    """Add an operator without parameters, and return its output."""
    return node.add(named(op)(), *operands)


def number(node: NodeReader, value: float, dtype: str) -> VTensor:
    """Return a constant without dims."""
    return node.made(np.array(value, numpy_dtype(dtype)), ())


def cut(node: NodeReader, x: VTensor, axis: str, start: int, end: int) -> VTensor:
    """Return a slice of ``x`` along ``axis``; a slice of a constant is a constant."""
    return node.ahead(named("Slice")((axis,), (start,), (end,), (1,)), x)


def picked(node: NodeReader, x: VTensor, axis: str, at: int) -> VTensor:
    """Return ``x`` at one index along ``axis``, which is left out."""
    return node.reshape(cut(node, x, axis, at, at + 1), replaced(x, axis, {}))


def renamed(node: NodeReader, x: VTensor, names: Mapping[str, str]) -> VTensor:
    """Return ``x`` with other names for some dims."""
    return node.reshape(x, {names.get(dim, dim): size for dim, size in x.dims.items()})


def in_order(node: NodeReader, x: VTensor, *dims: str) -> VTensor:
    """Return ``x`` with its dims declared in the order ``dims``; absent ones are left out."""
    own = tuple((dim, dim) for dim in dims if dim in x.dims)
    return x if [*x.dims] == [*dict(own)] else node.add(named("Rename")(own), x)


def replaced(x: VTensor, old: str, new: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of ``x``, by dim, with the dims ``new`` in place of ``old``."""
    sizes: dict[str, int] = {}
    for dim, size in x.dims.items():
        sizes |= new if dim == old else {dim: size}
    return sizes


def places(node: NodeReader, dim: str, size: int, reverse: bool = False) -> VTensor:
    """Return the numbers 0, 1, ... along ``dim``; if ``reverse``, those from size - 1 down to 0.

    A run computes them, since the size may be open.
    """
    ones = node.add(named("Expand")(((dim, size),)), number(node, 1, "s64"))
    return node.add(named("CumSum")(dim, exclusive=True, reverse=reverse), ones)


def refuse(node: NodeReader, inputs: Mapping[int, str] | None = None, **expected: object) -> None:
    """Raise an error if the node has one of some inputs, or an attribute that is not as expected.

    Args:
        node: the node.
        inputs: names of inputs by index.
        expected: the only value of each of some attributes, which is also the default.
    """
    for index, what in (inputs or {}).items():
        if node.has(index):
            raise node.refuse(f"input {index}, {what}")
    for name, value in expected.items():
        if (own := node.attribute(name, value)) != value:
            raise node.refuse(f"attribute {name} is {own}; only {value} is taken")


class Scores(NamedTuple):
    """How products of queries and keys become weights.

    Attributes:
        masks: tensors of truth values, which keep scores, or of numbers, which are added.
        masked: the score that replaces one that is not kept.
        softcap: the bound of scaled products; 0 means none.
        sink: a score, by head, of a key without a value; None if there is none.
        scale: the factor of products; None means that of the node, or of the size of a head.
        zero: whether a query without keys has weights of 0; else, they are NaN.
    """

    masks: Sequence[VTensor] = ()
    masked: float = LOWEST
    softcap: float = 0.0
    sink: VTensor | None = None
    scale: float | None = None
    zero: bool = False


class Heads:
    """The reading of one node of attention: names of dims, and steps that several operators share.

    The dims are those of the node's output, ``batch``, ``query`` and ``hidden``, and others:
    ``head``; ``member``, the queries' head in a group of heads with the same keys; ``key``; and
    ``feature`` and ``value``, the elements of a head of keys, and of values.

    Args:
        node: the node.
        names: ``batch``, ``query``, ``hidden`` and other names of the output; by default, the
            output has these three.
    """

    def __init__(self, node: NodeReader, names: Sequence[str] = ()) -> None:
        out = names or node.output_names()
        if len(out) < 3 or (len(out) > 3 and not names):
            raise node.refuse(f"its output has {len(out)} dims; expected 3")
        self.node, self._taken = node, tuple(out)
        self.batch, self.query, self.hidden, *_ = out
        new = map(self.other, ("head", "member", "key", "feature", "value"))
        self.head, self.member, self.key, self.feature, self.value = new
        self.count = int(node.attribute("num_heads", 0))

    def other(self, name: str) -> str:
        """Return ``name``, changed if a dim of the output has it."""
        return fresh(name, self._taken)

    def divided(self, x: VTensor, count: int, last: str) -> VTensor:
        """Return ``x`` with its last dim divided into ``count`` heads and the dim ``last``."""
        hidden = [*x.dims][-1]
        if count < 1 or x.size(hidden) % count:
            raise self.node.refuse(f"{x.size(hidden)} elements in {count} heads")
        parts = {self.head: count, last: x.size(hidden) // count}
        return self.node.reshape(x, replaced(x, hidden, parts))

    def keyed(self, x: VTensor) -> VTensor:
        """Return ``x`` with its dim ``query``, if it has one, as ``key``."""
        return renamed(self.node, x, {self.query: self.key})

    def cached(self, x: VTensor, last: str) -> VTensor:
        """Return keys or values with their dims declared in the order of a cache."""
        return in_order(self.node, x, self.batch, self.head, self.key, last)

    def past(self, index: int, last: str) -> VTensor:
        """Return input ``index``, keys or values of a cache, whose last dim is ``last``."""
        return self.node.input(index, f"{self.batch} {self.head} {self.key} {last}")

    def scale(self, q: VTensor, by: Scores) -> float:
        """Return the factor of products: that of ``by``, else the attribute ``scale``; if this is
        absent or 0, that for the features of ``q``.
        """
        if by.scale is not None:
            return by.scale
        return float(self.node.attribute("scale", 0.0)) or 1 / sqrt(q.size(self.feature))

    def padding(self, index: int, texts: int, keys: int, starts: bool = False) -> list[VTensor]:
        """Return a mask, in a list, that is added to scores of padding; none if there is no input.

        Args:
            index: the index of the input: numbers of keys; or truth values for keys, or for queries
                and keys.
            texts, keys: the numbers of texts and of keys.
            starts: whether the places of first keys may come after the numbers of keys, and truth
                values in one column hide nothing.
        """
        node, value = self.node, float(self.node.attribute("mask_filter_value", -10000.0))
        if not node.has(index):
            return []
        x, names = node.input(index), (self.batch, self.query, self.key)
        if x.ndimensions() == 1:
            x = node.input(index, self.batch)
            sizes = [texts, 3 * texts + 2, *[2 * texts] * starts]
            if x.size(self.batch) not in sizes:
                raise node.refuse(f"input {index} is {x.summary()} for {texts} texts")
            at = node.add(named("Cast")(x.dtype), places(node, self.key, keys))
            keep = do(node, "Less", at, cut(node, x, self.batch, 0, texts))
            if starts and x.size(self.batch) == 2 * texts:
                first = cut(node, x, self.batch, texts, 2 * texts)
                keep = do(node, "And", keep, do(node, "GreaterOrEqual", at, first))
        elif starts and x.ndimensions() == 2 and [*x.dims.values()][1] == 1:
            return []
        elif x.ndimensions() in (2, 3):
            x = node.input(index, " ".join(names if x.ndimensions() == 3 else names[::2]))
            if x.size(self.key) != keys:
                raise node.refuse(f"input {index} is {x.summary()} for {keys} keys")
            keep = do(node, "Greater", x, number(node, 0, x.dtype))
        else:
            raise node.refuse(f"input {index}, a mask of {x.ndimensions()} dims")
        return [do(node, "Where", keep, number(node, 0.0, "f32"), number(node, value, "f32"))]

    def causal(self, queries: int, keys: int, before: int) -> list[VTensor]:
        """Return a mask, in a list, of keys up to each query; none if all keys count.

        The first query is at the place of key ``before``, the number of keys of the past.
        """
        if self.node.attribute("unidirectional", 0) != 1 or keys <= before + 1:
            return []
        if keys > before + queries:  # ONNX Runtime's last query sees all keys, the others do not
            raise self.node.refuse(f"unidirectional from {queries} queries to {keys} keys")
        shape = ((self.query, queries), (self.key, keys))
        ones = self.node.add(named("Expand")(shape), number(self.node, True, "bool"))
        op = named("Trilu")(self.query, self.key, before, upper=False)
        return [self.node.add(op, ones)]

    def added(self, index: int, heads: Mapping[str, int]) -> list[VTensor]:
        """Return the mask of numbers in input ``index``, in a list; none if it is absent.

        ``heads`` are the sizes, by dim, of the dims into which heads are divided.
        """
        if not self.node.has(index):
            return []
        every = self.other("every")
        x = self.node.input(index, " ".join((self.batch, every, self.query, self.key)))
        return [self.node.reshape(x, replaced(x, every, {} if x.size(every) == 1 else heads))]

    def attended(self, q: VTensor, k: VTensor, v: VTensor, by: Scores) -> VTensor:
        """Return the means of values, with the heads merged again: the node's output."""
        return self.merged(self.means(q, k, v, by))

    def means(self, q: VTensor, k: VTensor, v: VTensor, by: Scores) -> VTensor:
        """Return the means of values."""
        node = self.node
        if by.softcap or by.sink is not None:
            weights = self.weights(self.scored(q, k, by), by)
            y: VTensor = node.add(named("MatMul")(self.key), weights, v)
            return y
        scale = self.scale(q, by)
        op = named("Attention")(self.feature, self.key, scale, by.masked, by.zero)
        return node.add(op, q, k, v, *by.masks)

    def merged(self, y: VTensor) -> VTensor:
        """Return means of values with ``hidden`` in place of the dims of heads and ``value``."""
        y = in_order(self.node, y, self.batch, self.query, self.head, self.member, self.value)
        rows = {dim: y.size(dim) for dim in (self.batch, self.query)}
        return self.node.reshape(y, {**rows, self.hidden: prod([*y.dims.values()][2:])})

    def in_heads(self, x: VTensor, *dims: str) -> VTensor:
        """Return ``x`` as batch, heads with their members, and ``dims``."""
        x = in_order(self.node, x, self.batch, self.head, self.member, *dims)
        count = x.size(self.head) * x.size(self.member)
        return self.node.reshape(x, {**replaced(x, self.member, {}), self.head: count})

    def scored(self, q: VTensor, k: VTensor, by: Scores) -> VTensor:
        """Return the scores of queries and keys: what the softmax takes."""
        node, times = self.node, named("Times")
        scale = self.scale(q, by)
        x = node.add(times(scale), node.add(named("MatMul")(self.feature), q, k))
        if by.softcap:
            x = do(node, "Tanh", node.add(times(1 / by.softcap), x))
            x = node.add(times(by.softcap), x)
        for mask in sorted(by.masks, key=lambda mask: mask.dtype == "bool"):
            if mask.dtype == "bool":
                x = do(node, "Where", mask, x, number(node, by.masked, x.dtype))
            else:
                x = do(node, "Add", x, mask)
        return x

    def weights(self, scores: VTensor, by: Scores) -> VTensor:
        """Return the softmax of scores, without the weight of the sink."""
        node, softmax = self.node, named("Softmax")((self.key,))
        if by.sink is None:
            weights = node.add(softmax, scores)
            if not by.zero:
                return weights
            zero = number(node, 0, weights.dtype)
            return do(node, "Where", do(node, "IsNaN", weights), zero, weights)
        one = node.add(named("Expand")(tuple({**scores.dims, self.key: 1}.items())), by.sink)
        one = in_order(node, one, *scores.dims)
        weights = node.add(softmax, node.add(named("Concat")(self.key), scores, one))
        return cut(node, weights, self.key, 0, scores.size(self.key))


def rotated(node: NodeReader, x: VTensor, at: int, by: VTensor | str, interleaved: bool) -> VTensor:
    """Return ``x`` with pairs of elements along its last dim rotated.

    Args:
        node: the node.
        x: any tensor. Elements that the tables do not cover stay as they are.
        at: the index of the table of cosines among the node's inputs; sines are next.
        by: for each place in dims of x, the row of the tables; or the names of these dims, which
            the tables have themselves.
        interleaved: whether a pair is two neighbours; else its elements are in two halves.
    """
    place, angle, pair = (fresh(name, x.dims) for name in ("place", "angle", "pair"))
    names = f"{by if isinstance(by, str) else place} {angle}"
    cos, sin = (node.input(index, names) for index in (at, at + 1))
    if not isinstance(by, str):
        cos, sin = (node.add(named("Gather")(place), table, by) for table in (cos, sin))
    last, half = [*x.dims][-1], cos.size(angle)
    if x.size(last) < 2 * half:
        raise node.refuse(f"{half} angles for {x.size(last)} elements")
    sizes = {angle: half, pair: 2} if interleaved else {pair: 2, angle: half}
    whole = cut(node, x, last, 0, 2 * half) if x.size(last) > 2 * half else x
    pairs = node.reshape(whole, replaced(whole, last, sizes))
    a, b = (cut(node, pairs, pair, start, start + 1) for start in (0, 1))
    first = do(node, "Sub", do(node, "Mul", a, cos), do(node, "Mul", b, sin))
    second = do(node, "Add", do(node, "Mul", b, cos), do(node, "Mul", a, sin))
    y = in_order(node, node.add(named("Concat")(pair), first, second), *pairs.dims)
    y = node.reshape(y, whole.dims)
    if whole is x:
        return y
    return node.add(named("Concat")(last), y, cut(node, x, last, 2 * half, x.size(last)))


def turned(node: NodeReader, at: int, by: VTensor | str) -> VTensor:
    """Return the output of a RotaryEmbedding; ``at`` and ``by`` are those of ``rotated``."""
    count, width = (int(node.attribute(n, 0)) for n in ("num_heads", "rotary_embedding_dim"))
    x = node.input(0)
    batch, *_, row, _ = x.dims
    half = [*node.input(at).dims.values()][-1]
    if width not in (0, 2 * half):
        raise node.refuse(f"rotary_embedding_dim {width} with {half} angles")
    if x.ndimensions() == 3:
        hidden = [*x.dims][-1]
        count = count or x.size(hidden) // (2 * half)
        if count < 1 or x.size(hidden) % count:
            raise node.refuse(f"{x.size(hidden)} elements in {count} heads")
        head, feature = (fresh(name, (batch, row)) for name in ("head", "feature"))
        parts = {head: count, feature: x.size(hidden) // count}
        x = node.reshape(x, replaced(x, hidden, parts))
    y = rotated(node, x, at, by, bool(node.attribute("interleaved", 0)))
    return node.reshape(y, node.input(0).dims)
