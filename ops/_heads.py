"""ONNX Runtime's operators of attention, read as operators on heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from ops._codes import MICROSOFT, check_bytes, parameter
from ops._names import fresh
from vtensor.language.dtype import numpy_dtype
from vtensor.operators import Naming, NodeReader, Spelling, named
from vtensor.tensor import VTensor

#: The score that replaces the one of a query and a later key: the smallest number of f32.
_LOWEST = float(np.finfo(np.float32).min)


class Dims(NamedTuple):
    """The names of dims: of the output, then of heads and what is in them."""

    batch: str
    query: str
    hidden: str
    head: str
    member: str
    key: str
    feature: str
    value: str


def _dims(node: NodeReader) -> Dims:
    """Return names of dims: three of the node's output, and others."""
    out = node.output_names()
    if len(out) != 3:
        raise node.refuse(f"its output has {len(out)} dims; expected 3")
    new = ("head", "member", "key", "feature", "value")
    return Dims(*out, *(fresh(name, out) for name in new))


def _attention_names(node: Naming) -> None:
    node.same("x0", 0, "y0", 0)
    node.same("x0", 1, "y0", 1)


def _cut(node: NodeReader, x: VTensor, axis: str, start: int, end: int) -> VTensor:
    """Return a slice of ``x`` along ``axis``; a slice of a constant is a constant."""
    return node.ahead(named("Slice")((axis,), (start,), (end,), (1,)), x)


def _picked(node: NodeReader, x: VTensor, axis: str, at: int) -> VTensor:
    """Return ``x`` at one index along ``axis``, which is left out."""
    sizes = {dim: size for dim, size in x.dims.items() if dim != axis}
    return node.reshape(_cut(node, x, axis, at, at + 1), sizes)


def _in_order(node: NodeReader, x: VTensor, dims: Sequence[str]) -> VTensor:
    """Return ``x`` with its dims declared in the order ``dims``."""
    return node.add(named("Rename")(tuple((dim, dim) for dim in dims)), x)


def _replaced(x: VTensor, old: str, new: dict[str, int]) -> dict[str, int]:
    """Return the sizes of ``x``, by dim, with the dims ``new`` in place of ``old``."""
    sizes: dict[str, int] = {}
    for dim, size in x.dims.items():
        sizes |= new if dim == old else {dim: size}
    return sizes


def _places(node: NodeReader, dim: str, size: int, dtype: str = "s64") -> VTensor:
    """Return the numbers 0, 1, ... along ``dim``. A run computes them: the size may be open."""
    ones = node.add(named("Expand")(((dim, size),)), node.made(np.ones((), np.int64), ()))
    places = node.add(named("CumSum")(dim, exclusive=True), ones)
    return places if dtype == "s64" else node.add(named("Cast")(dtype), places)


def _number(node: NodeReader, value: float, dtype: str) -> VTensor:
    return node.made(np.array(value, numpy_dtype(dtype)), ())


def _heads(node: NodeReader, x: VTensor, dims: Dims, count: int, last: str) -> VTensor:
    """Return ``x`` with its last dim divided into ``count`` heads and the dim ``last``."""
    hidden = list(x.dims)[-1]
    if count < 1 or x.size(hidden) % count:
        raise node.refuse(f"{x.size(hidden)} elements in {count} heads")
    parts = {dims.head: count, last: x.size(hidden) // count}
    return node.reshape(x, _replaced(x, hidden, parts))


def _after(node: NodeReader, past: VTensor | None, x: VTensor, key: str) -> VTensor:
    """Return ``x`` after ``past``, if there is one, along the dim ``key``."""
    return x if past is None else node.add(named("Concat")(key), past, x)


class Scores(NamedTuple):
    """How products of queries and keys become weights.

    Attributes:
        scale: the factor of the products.
        masks: tensors of truth values, which keep scores, or of numbers, which are added.
        masked: the score that replaces one that is not kept.
        softcap: the bound of scaled products; 0 means none.
        sink: a score, by head, of a key without a value; None if there is none.
    """

    scale: float
    masks: Sequence[VTensor] = ()
    masked: float = _LOWEST
    softcap: float = 0.0
    sink: VTensor | None = None


def _attended(
    node: NodeReader, dims: Dims, q: VTensor, k: VTensor, v: VTensor, by: Scores
) -> VTensor:
    """Return the means of values, with the heads merged again, as the node's output."""
    if by.softcap or by.sink is not None:
        y = node.add(
            named("MatMul")(dims.key), _weights(node, dims, _scored(node, dims, q, k, by), by), v
        )
    else:
        op = named("Attention")(dims.feature, dims.key, by.scale, by.masked)
        y = node.add(op, q, k, v, *by.masks)
    order = [dim for dim in (dims.batch, dims.query, dims.head, dims.member) if dim in y.dims]
    y = _in_order(node, y, [*order, dims.value])
    hidden = v.size(dims.value)
    for dim in order[2:]:
        hidden *= y.size(dim)
    sizes = {dims.batch: y.size(dims.batch), dims.query: y.size(dims.query), dims.hidden: hidden}
    return node.reshape(y, sizes)


def _scored(node: NodeReader, dims: Dims, q: VTensor, k: VTensor, by: Scores) -> VTensor:
    """Return the scores of queries and keys: what the softmax takes."""
    x = node.add(named("Times")(by.scale), node.add(named("MatMul")(dims.feature), q, k))
    if by.softcap:
        for op in (named("Times")(1 / by.softcap), named("Tanh")(), named("Times")(by.softcap)):
            x = node.add(op, x)
    for mask in sorted(by.masks, key=lambda mask: mask.dtype == "bool"):
        if mask.dtype == "bool":
            x = node.add(named("Where")(), mask, x, _number(node, by.masked, x.dtype))
        else:
            x = node.add(named("Add")(), x, mask)
    return x


def _weights(node: NodeReader, dims: Dims, scores: VTensor, by: Scores) -> VTensor:
    """Return the softmax of scores, without the weight of the sink."""
    if by.sink is None:
        return node.add(named("Softmax")((dims.key,)), scores)
    one = node.add(named("Expand")(tuple({**scores.dims, dims.key: 1}.items())), by.sink)
    more = node.add(named("Concat")(dims.key), scores, _in_order(node, one, list(scores.dims)))
    weights = node.add(named("Softmax")((dims.key,)), more)
    return _cut(node, weights, dims.key, 0, scores.size(dims.key))


def _scale(node: NodeReader, size: int) -> float:
    """Return the attribute ``scale``; if it is absent or 0, that for ``size`` features."""
    return float(node.attribute("scale", 0.0)) or 1 / sqrt(size)


def _refuse(node: NodeReader, inputs: dict[int, str] | None = None, **attributes: object) -> None:
    """Refuse the node if it has one of some inputs, or an attribute that is not as given."""
    for index, what in (inputs or {}).items():
        if node.has(index):
            raise node.refuse(f"input {index}, {what}")
    for name, expected in attributes.items():
        if (value := node.attribute(name, expected)) != expected:
            raise node.refuse(f"attribute {name} is {value}; only {expected} is taken")


def _padding(
    node: NodeReader, index: int, dims: Dims, sizes: tuple[int, int], starts: bool = False
) -> list[VTensor]:
    """Return a mask, in a list, that is added to scores of padding; none if there is no such input.

    Args:
        node: the node; its attribute mask_filter_value is added.
        index: the index of the input: lengths of the keys; or truth values for keys, for queries
            and keys, or for all positions of both.
        dims: the names of dims.
        sizes: the number of texts, and the number of all keys.
        starts: whether lengths may have the texts' first keys after them.
    """
    value = float(node.attribute("mask_filter_value", -10000.0))
    if not node.has(index):
        return []
    x, (batch, total) = node.input(index), sizes
    rank = x.ndimensions()
    if rank == 1:
        x = node.input(index, dims.batch)
        count = x.size(dims.batch)
        if not (count in (batch, 3 * batch + 2) or (starts and count == 2 * batch)):
            raise node.refuse(f"input {index} is {x.summary()} for {batch} texts")
        places = _places(node, dims.key, total, x.dtype)
        keep = node.add(named("Less")(), places, _cut(node, x, dims.batch, 0, batch))
        if starts and count == 2 * batch:
            first = _cut(node, x, dims.batch, batch, 2 * batch)
            keep = node.add(
                named("And")(), keep, node.add(named("GreaterOrEqual")(), places, first)
            )
    else:
        names = {2: (dims.batch, dims.key), 3: (dims.batch, dims.query, dims.key)}.get(rank)
        if names is None:
            raise node.refuse(f"input {index}, a mask of {rank} dims")
        x = node.input(index, " ".join(names))
        if x.size(dims.key) != total:
            raise node.refuse(f"input {index} is {x.summary()} for {total} keys")
        keep = node.add(named("Greater")(), x, _number(node, 0, x.dtype))
    numbers = (_number(node, number, "f32") for number in (0.0, value))
    return [node.add(named("Where")(), keep, *numbers)]


def _causal(node: NodeReader, dims: Dims, queries: int, total: int, past: int) -> list[VTensor]:
    """Return a mask, in a list, of keys up to each query; none if all keys count.

    ``past`` keys are before the first query.
    """
    if node.attribute("unidirectional", 0) != 1 or queries == 1:
        return []
    shape = ((dims.query, queries), (dims.key, total))
    ones = node.add(named("Expand")(shape), node.made(np.ones((), np.bool_), ()))
    return [node.add(named("Trilu")(dims.query, dims.key, past, upper=False), ones)]


def _added(node: NodeReader, index: int, dims: Dims, groups: dict[str, int]) -> list[VTensor]:
    """Return a node's mask of numbers, in a list; none if it is absent.

    Args:
        node: the node.
        index: the index of the input. Its size for texts, or for heads, may be 1.
        dims: the names of dims.
        groups: the sizes, by dim, of the dims into which heads are divided.
    """
    if not node.has(index):
        return []
    x = node.input(index, " ".join((dims.batch, "all", dims.query, dims.key)))
    heads = {} if x.size("all") == 1 else groups
    return [node.reshape(x, _replaced(x, "all", heads))]


def _read_attention(node: NodeReader) -> list[VTensor]:
    dims, count = _dims(node), int(node.attribute("num_heads", 0))
    names = (dims.batch, dims.query, fresh("input", (dims.batch, dims.query)))
    x, w = node.input(0, " ".join(names)), node.input(1, f"{names[2]} {dims.hidden}")
    bias = node.input(2, dims.hidden) if node.has(2) else None

    def projected(start: int, end: int) -> VTensor:
        y = node.add(named("MatMul")(names[2]), x, _cut(node, w, dims.hidden, start, end))
        if bias is None:
            return y
        return node.add(named("BiasAdd")(), y, _cut(node, bias, dims.hidden, start, end))

    _refuse(node, {6: "past_sequence_length, for a buffer that is shared"})
    return _self_attention(node, dims, count, w.size(dims.hidden), projected, (3, 4, 5))


def _read_quantized(node: NodeReader) -> list[VTensor]:
    dims, count = _dims(node), int(node.attribute("num_heads", 0))
    names = (dims.batch, dims.query, fresh("input", (dims.batch, dims.query)))
    check_bytes(node, 0, 1)
    x, w = node.input(0, " ".join(names)), node.input(1, f"{names[2]} {dims.hidden}")
    bias = node.input(2, dims.hidden)
    x = _decoded(node, x, [parameter(node, i, ()) for i in (3, 6) if node.has(i)])
    codes = [parameter(node, i, tuple(w.dims), names[2]) for i in (4, 7) if node.has(i)]

    def projected(start: int, end: int) -> VTensor:
        own = (_cut(node, c, dims.hidden, start, end) if c.dims else c for c in codes)
        numbers = _decoded(node, _cut(node, w, dims.hidden, start, end), list(own))
        y = node.add(named("MatMul")(names[2]), x, numbers)
        return node.add(named("BiasAdd")(), y, _cut(node, bias, dims.hidden, start, end))

    return _self_attention(node, dims, count, w.size(dims.hidden), projected, (5, 8, None))


def _decoded(node: NodeReader, x: VTensor, by: list[VTensor]) -> VTensor:
    return node.add(named("DequantizeLinear")("f32"), x, *by)


def _self_attention(
    node: NodeReader,
    dims: Dims,
    count: int,
    width: int,
    projected: Callable[[int, int], VTensor],
    indices: tuple[int, int, int | None],
) -> list[VTensor]:
    """Read an attention of a text to itself.

    Args:
        node: the node.
        dims: the names of dims.
        count: the number of heads.
        width: the number of columns of the weights of queries, keys and values together.
        projected: returns the products of the text with columns of the weights.
        indices: of the inputs mask, past keys and values, and the mask that is added.
    """
    _refuse(node, do_rotary=0, past_present_share_buffer=0)
    node.attribute("rotary_embedding_dim")  # of the rotation, which is refused
    sizes = list(node.attribute("qkv_hidden_sizes") or [width // 3] * 3)
    if len(sizes) != 3 or sum(sizes) != width or sizes[0] != sizes[1]:
        raise node.refuse(f"qkv_hidden_sizes {sizes} of weights of {width} columns")
    ends = [0, sizes[0], 2 * sizes[0], width]
    parts = (
        _heads(node, projected(ends[i], ends[i + 1]), dims, count, last)
        for i, last in enumerate((dims.feature, dims.feature, dims.value))
    )
    q, *new = parts
    new = [node.reshape(x, _renamed(x, {dims.query: dims.key})) for x in new]
    masks, past_at, added = indices
    k, v = new
    if node.has(past_at):
        order = f"pair {dims.batch} {dims.head} {dims.key} {dims.feature}"
        both = node.input(past_at, order)
        before = [_picked(node, both, "pair", at) for at in (0, 1)]
        before[1] = node.reshape(before[1], _renamed(before[1], {dims.feature: dims.value}))
        k, v = (_after(node, *pair, dims.key) for pair in zip(before, new, strict=True))
    total, queries = k.size(dims.key), q.size(dims.query)
    past = total - queries
    by = Scores(
        _scale(node, q.size(dims.feature)),
        [
            *_padding(node, masks, dims, (q.size(dims.batch), total), starts=True),
            *([] if added is None else _added(node, added, dims, {dims.head: count})),
            *_causal(node, dims, queries, total, past),
        ],
    )
    order = (dims.batch, dims.head, dims.key)
    present = [
        _in_order(node, x, [*order, last]) for x, last in ((k, dims.feature), (v, dims.value))
    ]
    y = _attended(node, dims, q, k, v, by)
    if sizes[0] != sizes[2]:
        return [y]
    last = {dims.feature: "part", dims.value: "part"}
    both = (node.reshape(x, {"pair": 1, **_renamed(x, last)}) for x in present)
    return [y, node.add(named("Concat")("pair"), *both)]


def _renamed(x: VTensor, names: dict[str, str]) -> dict[str, int]:
    return {names.get(dim, dim): size for dim, size in x.dims.items()}


def _read_multi_head(node: NodeReader) -> list[VTensor]:
    dims, count = _dims(node), int(node.attribute("num_heads", 0))
    _refuse(node, {8: "past_sequence_length, for a shared buffer", 9: "cache_indirection"})
    packed = node.input(0).ndimensions() == 5 or (node.has(1) and node.input(1).ndimensions() == 5)
    bias = node.input(3, dims.hidden) if node.has(3) else None
    ends = [0, 0, 0, 0]

    def divided(index: int, row: str, last: str, which: int) -> VTensor:
        """Return an input of heads; ``which`` is 0 for queries, 1 for keys, 2 for values."""
        x = node.input(index)
        if x.ndimensions() == 3:
            x = node.input(index, f"{dims.batch} {row} {dims.hidden}")
            ends[which + 1] = ends[which] + x.size(dims.hidden)
            if bias is not None:
                x = node.add(
                    named("BiasAdd")(), x, _cut(node, bias, dims.hidden, *ends[which:][:2])
                )
            return _heads(node, x, dims, count, last)
        return node.input(index, f"{dims.batch} {dims.head} {row} {last}")

    if packed:
        q, k, v = _packed(node, dims, divided)
    elif node.has(1) and node.has(2):
        q = divided(0, dims.query, dims.feature, 0)
        k = divided(1, dims.key, dims.feature, 1)
        v = divided(2, dims.key, dims.value, 2)
    else:
        raise node.refuse("queries without keys or values")
    if node.has(6) != node.has(7):
        raise node.refuse("past keys without values, or values without keys")
    if node.has(6):
        row = f"{dims.batch} {dims.head} {dims.key}"
        k = node.add(named("Concat")(dims.key), node.input(6, f"{row} {dims.feature}"), k)
        v = node.add(named("Concat")(dims.key), node.input(7, f"{row} {dims.value}"), v)
    total, queries = k.size(dims.key), q.size(dims.query)
    past = total - queries
    if node.attribute("unidirectional", 0) and past and not node.has(6):
        raise node.refuse(f"unidirectional from {queries} queries to {total} keys")
    by = Scores(
        _scale(node, q.size(dims.feature)),
        [
            *_padding(node, 4, dims, (q.size(dims.batch), total)),
            *_added(node, 5, dims, {dims.head: count}),
            *_causal(node, dims, queries, total, past),
        ],
    )
    order = [dims.batch, dims.head, dims.key]
    results = [
        _attended(node, dims, q, k, v, by),
        _in_order(node, k, [*order, dims.feature]),
        _in_order(node, v, [*order, dims.value]),
    ]
    if node.output_count > 3:
        scores = _scored(node, dims, q, k, by)
        results.append(_in_order(node, scores, [dims.batch, dims.head, dims.query, dims.key]))
    return results


def _packed(
    node: NodeReader, dims: Dims, divided: Callable[[int, str, str, int], VTensor]
) -> list[VTensor]:
    """Return queries, keys and values of a node whose first or second input holds several of them.

    ``divided`` returns an input that holds one of them.
    """
    if node.has(3):
        raise node.refuse("a bias of packed queries, keys or values")
    rows = [(dims.query, dims.feature), (dims.key, dims.feature), (dims.key, dims.value)]
    index = int(node.input(0).ndimensions() != 5)
    own = [] if index == 0 else [divided(0, *rows[0], 0)]
    x = node.input(index, f"{dims.batch} row {dims.head} pack part")
    for at, (row, last) in enumerate(rows[index:]):
        part = _picked(node, x, "pack", at)
        own.append(node.reshape(part, _renamed(part, {"row": row, "part": last})))
    return own


def _rotated(
    node: NodeReader, x: VTensor, cos: VTensor, sin: VTensor, interleaved: bool
) -> VTensor:
    """Return ``x`` with pairs of elements along its last dim rotated by angles.

    Args:
        node: the node.
        x: any tensor. The elements that the angles do not cover stay as they are.
        cos, sin: of each angle: dims of x, and ``half``, one for each pair.
        interleaved: whether a pair is two neighbours; else its elements are in two halves.
    """
    last, half = list(x.dims)[-1], cos.size("half")
    if x.size(last) < 2 * half:
        raise node.refuse(f"{half} angles for {x.size(last)} elements")
    sizes = {"half": half, "pair": 2} if interleaved else {"pair": 2, "half": half}
    whole = _cut(node, x, last, 0, 2 * half) if x.size(last) > 2 * half else x
    pairs = node.reshape(whole, _replaced(whole, last, sizes))
    a, b = (_cut(node, pairs, "pair", at, at + 1) for at in (0, 1))
    sums = []
    for one, other, op in ((a, b, "Sub"), (b, a, "Add")):
        products = (node.add(named("Mul")(), t, angle) for t, angle in ((one, cos), (other, sin)))
        sums.append(node.add(named(op)(), *products))
    turned = _in_order(node, node.add(named("Concat")("pair"), *sums), list(pairs.dims))
    result = node.reshape(turned, dict(whole.dims))
    if whole is x:
        return result
    rest = _cut(node, x, last, 2 * half, x.size(last))
    return node.add(named("Concat")(last), result, rest)


def _angles(node: NodeReader, at: int, places: VTensor) -> tuple[VTensor, VTensor]:
    """Return cosines and sines of places, from the tables in input ``at`` and the next."""
    tables = (node.input(index, "place half") for index in (at, at + 1))
    cos, sin = (node.add(named("Gather")("place"), table, places) for table in tables)
    return cos, sin


def _rotary_names(node: Naming) -> None:
    for place in range(node.rank("x0")):
        node.same("x0", place, "y0", place)


def _read_rotary(node: NodeReader) -> VTensor:
    heads, width = (int(node.attribute(n, 0)) for n in ("num_heads", "rotary_embedding_dim"))
    for name in ("scale", "is_packed_batching"):
        node.attribute(name)  # they change nothing in ONNX Runtime either
    x = node.input(0)
    if x.ndimensions() == 3:
        batch, row, hidden = x.dims
        size = 2 * node.input(2, "place half").size("half") if not width else 0
        count = heads or x.size(hidden) // max(size, 1)
        if count < 1 or x.size(hidden) % count:
            raise node.refuse(f"{x.size(hidden)} elements in {count} heads")
        x = node.reshape(
            x, _replaced(x, hidden, {"head": count, "feature": x.size(hidden) // count})
        )
    else:
        batch, _, row, _ = x.dims
    ids = node.input(1)
    if ids.ndimensions() == 1:
        first = node.reshape(ids, {})
        places = node.add(named("Add")(), _places(node, row, x.size(row)), first)
    else:
        places = node.input(1, f"{batch} {row}")
    cos, sin = _angles(node, 2, places)
    if width and 2 * cos.size("half") != width:
        raise node.refuse(f"rotary_embedding_dim {width} with {cos.size('half')} angles")
    y = _rotated(node, x, cos, sin, bool(node.attribute("interleaved", 0)))
    return node.reshape(y, dict(node.input(0).dims))


def _read_grouped(node: NodeReader) -> list[VTensor]:
    dims = _dims(node)
    heads, groups = (int(node.attribute(name, 0)) for name in ("num_heads", "kv_num_heads"))
    if groups < 1 or heads < groups or heads % groups:
        raise node.refuse(f"{heads} heads of queries, {groups} of keys")
    _refuse(
        node,
        {
            12: "k_scale",
            13: "v_scale",
            14: "q_norm_weight",
            15: "k_norm_weight",
            16: "query_seqlens",
        },
        sliding_window_cache=0,
        k_quant_type="NONE",
        v_quant_type="NONE",
    )
    for name in ("kv_cache_bit_width", "qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"):
        node.attribute(name)  # of the inputs that are refused
    x = node.input(0, f"{dims.batch} {dims.query} {dims.hidden}")
    if node.has(1) and node.has(2):
        row = f"{dims.batch} {dims.key} {dims.hidden}"
        parts = [x, node.input(1, row), node.input(2, row)]
    else:
        size = x.size(dims.hidden) // (heads + 2 * groups)
        ends = [0, heads * size, (heads + groups) * size, (heads + 2 * groups) * size]
        if size < 1 or ends[3] != x.size(dims.hidden):
            raise node.refuse(f"{x.summary()} packs {heads} + 2 * {groups} heads")
        parts = [_cut(node, x, dims.hidden, a, b) for a, b in pairwise(ends)]
        parts[1:] = [node.reshape(t, _renamed(t, {dims.query: dims.key})) for t in parts[1:]]
    q = _heads(node, parts[0], dims, heads, dims.feature)
    k = _heads(node, parts[1], dims, groups, dims.feature)
    v = _heads(node, parts[2], dims, groups, dims.value)
    queries, ends_at = q.size(dims.query), node.input(5, dims.batch)
    totals = node.constant(6).tolist()
    total = totals[0] if isinstance(totals, list) else totals
    prompt = total == queries
    start = _starts(node, ends_at, 0 if prompt else queries)
    if prompt:
        start = node.add(named("Times")(0.0), start)
    if node.attribute("do_rotary", 0):
        places = _query_places(node, dims, queries, start, prompt)
        cos, sin = _angles(node, 7, places)
        turn = bool(node.attribute("rotary_interleaved", 0))
        by_key = [node.reshape(t, _renamed(t, {dims.query: dims.key})) for t in (cos, sin)]
        q, k = _rotated(node, q, cos, sin, turn), _rotated(node, k, *by_key, turn)
    else:
        node.attribute("rotary_interleaved")
    k, v = (_cached(node, dims, index, t, start, total) for index, t in ((3, k), (4, v)))
    results = [k, v]
    if k.size(dims.key) > total:
        k, v = (_cut(node, t, dims.key, 0, total) for t in (k, v))
    member = {dims.head: groups, dims.member: heads // groups}
    q = node.reshape(q, _replaced(q, dims.head, member))
    k, v = (node.reshape(t, _replaced(t, dims.head, {**member, dims.member: 1})) for t in (k, v))
    sink = None
    if node.has(11):
        sink = node.reshape(node.input(11, dims.head), member)
    elif node.attribute("smooth_softmax", 0) == 1:
        sink = _number(node, 0.0, q.dtype)
    keep = _kept(node, dims, queries, total, start)
    softcap = float(node.attribute("softcap", 0.0))
    masks = [*_added(node, 10, dims, member), keep]
    by = Scores(_scale(node, q.size(dims.feature)), masks, -inf, softcap, sink)
    results.insert(0, _attended(node, dims, q, k, v, by))
    if kind := int(node.attribute("qk_output", 0)):
        scores = _scored(node, dims, q, k, by)
        if kind == 2:
            scores = _weights(node, dims, scores, by)
        else:
            scores = node.add(named("Where")(), keep, scores, _number(node, 0.0, q.dtype))
        order = [dims.batch, dims.head, dims.member, dims.query, dims.key]
        scores = _in_order(node, scores, order)
        sizes = {dim: size for dim, size in scores.dims.items() if dim != dims.member}
        results.append(node.reshape(scores, {**sizes, dims.head: heads}))
    return results


def _starts(node: NodeReader, last: VTensor, queries: int) -> VTensor:
    """Return the place of each text's first query, given that of its last one."""
    wide = node.add(named("Cast")("s64"), last)
    less = node.made(np.array(1, np.int64), ())
    shift = node.add(named("Sub")(), wide, _count(node, queries))
    return node.add(named("Add")(), shift, less)


def _count(node: NodeReader, size: int) -> VTensor:
    """Return a size, which may be open, as a number of type s64."""
    ones = node.add(named("Expand")((("count", size),)), node.made(np.ones((), np.int64), ()))
    return node.add(named("ReduceSum")(("count",), keepdims=False), ones)


def _query_places(
    node: NodeReader, dims: Dims, queries: int, start: VTensor, prompt: bool
) -> VTensor:
    """Return the places of queries: those of input 9, or, of a prompt, from its first one on."""
    if node.has(9):
        ids = node.input(9, f"{dims.batch} {dims.query}")
        if not prompt:
            return ids
        start = _cut(node, _cut(node, ids, dims.batch, 0, 1), dims.query, 0, 1)
        start = node.reshape(start, {})
    return node.add(named("Add")(), _places(node, dims.query, queries), start)


def _cached(
    node: NodeReader, dims: Dims, index: int, x: VTensor, start: VTensor, total: int
) -> VTensor:
    """Return keys or values: ``x`` from place ``start`` on in the past of input ``index``."""
    last = list(x.dims)[-1]
    order = [dims.batch, dims.head, dims.key, last]
    x = _in_order(node, x, order)
    past = node.input(index, " ".join(order)) if node.has(index) else None
    size, new = 0 if past is None else past.size(dims.key), x.size(dims.key)
    if total > size and total != size + new:
        raise node.refuse(f"{total} keys, {size} of them from the past and {new} new ones")
    if past is None or (size <= new and total == new):
        return x
    if past.dtype != x.dtype:
        raise node.refuse(f"past keys or values of type {past.dtype}, new ones of {x.dtype}")
    if total > size:
        past = node.add(named("Pad")((dims.key,), (0, new)), past)
    return node.add(named("TensorScatter")(dims.key, dims.batch), past, x, start)


def _kept(node: NodeReader, dims: Dims, queries: int, total: int, start: VTensor) -> VTensor:
    """Return the truth values of the keys that each query attends to."""
    keys, window = _places(node, dims.key, total), int(node.attribute("local_window_size", -1))
    if node.attribute("causal", 1) == 0:
        if window != -1:
            raise node.refuse(f"local_window_size {window} without causal")
        ends = node.add(named("Cast")("s64"), node.input(5, dims.batch))
        return node.add(named("LessOrEqual")(), keys, ends)
    own = node.add(named("Add")(), _places(node, dims.query, queries), start)
    keep = node.add(named("LessOrEqual")(), keys, own)
    if window > 0:
        first = node.add(named("Sub")(), own, node.made(np.array(window, np.int64), ()))
        keep = node.add(named("And")(), keep, node.add(named("Greater")(), keys, first))
    return keep


#: How ONNX Runtime's operators of attention are read.
SPELLINGS = [
    Spelling(f"{MICROSOFT}{name}", 1, read, names, rank=rank)
    for name, read, names, rank in (
        ("Attention", _read_attention, _attention_names, lambda _: 3),
        ("QAttention", _read_quantized, _attention_names, lambda _: 3),
        ("MultiHeadAttention", _read_multi_head, _attention_names, lambda _: 3),
        ("GroupQueryAttention", _read_grouped, _attention_names, lambda _: 3),
        ("RotaryEmbedding", _read_rotary, _rotary_names, lambda node: node.rank("x0")),
    )
]
