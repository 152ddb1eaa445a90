"""How ONNX Runtime's operators of attention are read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from math import inf
from typing import NamedTuple

from ops._caches import Room, Window, codes, integer, longer, numbers
from ops._codes import MICROSOFT, check_bytes, parameter
from ops._heads import (
    Heads,
    Scores,
    cut,
    do,
    in_order,
    number,
    picked,
    places,
    refuse,
    renamed,
    replaced,
    rotated,
)
from ops._microsoft import rank_of_x
from ops._names import fresh, same_names
from vtensor.operators import Naming, NodeReader, Spelling, named
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    node.same("x0", 0, "y0", 0)
    node.same("x0", 1, "y0", 1)


def _read_attention(node: NodeReader) -> list[VTensor]:
    heads = Heads(node)
    row = fresh("input", (heads.batch, heads.query, heads.hidden))
    x, w = (
        node.input(0, f"{heads.batch} {heads.query} {row}"),
        node.input(1, f"{row} {heads.hidden}"),
    )

    def projected(start: int, end: int) -> VTensor:
        return node.add(named("MatMul")(row), x, cut(node, w, heads.hidden, start, end))

    added = heads.added(5, {heads.head: heads.count})
    return _self_attention(heads, w.size(heads.hidden), projected, (3, 4), added)


def _read_quantized(node: NodeReader) -> list[VTensor]:
    heads, decode = Heads(node), named("DequantizeLinear")("f32")
    row = fresh("input", (heads.batch, heads.query, heads.hidden))
    check_bytes(node, 0, 1)
    x, w = (
        node.input(0, f"{heads.batch} {heads.query} {row}"),
        node.input(1, f"{row} {heads.hidden}"),
    )
    x = node.add(decode, x, *(parameter(node, i, ()) for i in (3, 6) if node.has(i)))
    codes = [parameter(node, i, (row, heads.hidden), row) for i in (4, 7) if node.has(i)]

    def projected(start: int, end: int) -> VTensor:
        own = (cut(node, t, heads.hidden, start, end) if t.dims else t for t in codes)
        numbers = node.add(decode, cut(node, w, heads.hidden, start, end), *own)
        return node.add(named("MatMul")(row), x, numbers)

    return _self_attention(heads, w.size(heads.hidden), projected, (5, 8), [])


def _self_attention(
    heads: Heads,
    width: int,
    projected: Callable[[int, int], VTensor],
    indices: tuple[int, int],
    added: list[VTensor],
) -> list[VTensor]:
    """Read an attention of texts to themselves; input 2 is the bias of all projections.

    Args:
        heads: the node's heads.
        width: the number of columns of the weights of queries, keys and values together.
        projected: returns the products of the texts with columns of the weights.
        indices: of the inputs mask, and past keys and values.
        added: masks of numbers.
    """
    node, (mask, past) = heads.node, indices
    refuse(node, do_rotary=0, past_present_share_buffer=0)
    node.attribute("rotary_embedding_dim")  # of the rotation, which is refused
    sizes = [*(node.attribute("qkv_hidden_sizes") or [width // 3] * 3)]
    if len(sizes) != 3 or sum(sizes) != width or sizes[0] != sizes[1]:
        raise node.refuse(f"qkv_hidden_sizes {sizes} of weights of {width} columns")
    bias = node.input(2, heads.hidden) if node.has(2) else None
    parts = list[VTensor]()
    for start, end in pairwise(accumulate(sizes, initial=0)):
        x = projected(start, end)
        if bias is not None:
            x = do(node, "BiasAdd", x, cut(node, bias, heads.hidden, start, end))
        parts.append(heads.divided(x, heads.count, (heads.feature, heads.value)[len(parts) > 1]))
    q, k, v = parts[0], *map(heads.keyed, parts[1:])
    pair, part, before = heads.other("pair"), heads.other("part"), 0
    if node.has(past):
        both = node.input(past, f"{pair} {heads.batch} {heads.head} {heads.key} {heads.feature}")
        join, own = named("Concat")(heads.key), {heads.feature: heads.value}
        before = both.size(heads.key)
        k = node.add(join, picked(node, both, pair, 0), k)
        v = node.add(join, renamed(node, picked(node, both, pair, 1), own), v)
    queries, keys = q.size(heads.query), k.size(heads.key)
    padding = heads.padding(mask, q.size(heads.batch), keys, starts=True)
    y = heads.attended(q, k, v, Scores([*padding, *added, *heads.causal(queries, keys, before)]))
    if sizes[0] != sizes[2]:
        return [y]
    present = []
    for x, last in ((k, heads.feature), (v, heads.value)):
        x = renamed(node, heads.cached(x, last), {last: part})
        present.append(node.reshape(x, {pair: 1, **x.dims}))
    return [y, node.add(named("Concat")(pair), *present)]


class _Inputs(NamedTuple):
    """Indices of the inputs of MultiHeadAttention, or of an operator that orders them otherwise.

    Attributes:
        bias: of queries, keys and values.
        mask: of padding.
        added: a mask of numbers.
        keys, values: of the past.
        length: the number of past keys, in a cache with room for later ones.
        beams: for each beam and place in the cache, the beam that has the key.
    """

    bias: int = 3
    mask: int = 4
    added: int = 5
    keys: int = 6
    values: int = 7
    length: int = 8
    beams: int = 9


def _read_multi_head(node: NodeReader, at: _Inputs) -> list[VTensor]:
    heads = Heads(node)
    if node.has(at.keys) != node.has(at.values):
        raise node.refuse("past keys without values, or values without keys")
    q, k, v = _three(heads, at.bias)
    queries, before, kept = q.size(heads.query), 0, list[VTensor]()
    present = [heads.cached(k, heads.feature), heads.cached(v, heads.value)]
    if node.has(at.keys) and node.has(at.length):
        cache = Room(heads, at.length, queries)
        present = [cache.filled(i, x) for i, x in zip((at.keys, at.values), present, strict=True)]
        total = _known_keys(heads, at) or present[0].size(heads.key)
        k, v = (cut(node, x, heads.key, 0, total) for x in present)
        if node.has(at.beams) and queries == 1:  # ONNX Runtime reads it for one query alone
            k, v = (cache.of_beams(at.beams, x) for x in (k, v))
        kept = [cache.kept(total, bool(node.attribute("unidirectional", 0)))]
        if node.gives(3) and not _known_keys(heads, at):
            raise node.refuse("scores of a number of keys that no mask tells")
    elif node.has(at.beams):
        raise node.refuse(f"input {at.beams}, cache_indirection, without past_sequence_length")
    elif node.has(at.keys):
        before = node.input(at.keys).size([*node.input(at.keys).dims][2])
        k, v = present = [
            node.add(named("Concat")(heads.key), heads.past(index, [*x.dims][-1]), x)
            for index, x in zip((at.keys, at.values), present, strict=True)
        ]
    keys = k.size(heads.key)
    masks = [
        *heads.padding(at.mask, q.size(heads.batch), keys),
        *heads.added(at.added, {heads.head: heads.count}),
        *(kept or heads.causal(queries, keys, before)),
    ]
    results = [heads.attended(q, k, v, Scores(masks)), *present]
    if node.gives(3):
        scores = heads.scored(q, k, Scores(masks))
        results.append(in_order(node, scores, heads.batch, heads.head, heads.query, heads.key))
    return results


def _known_keys(heads: Heads, at: _Inputs) -> int | None:
    """Return the number of keys that a mask has columns for; None if no mask tells."""
    for index in (at.mask, at.added):
        if heads.node.has(index) and heads.node.input(index).ndimensions() > 1:
            return [*heads.node.input(index).dims.values()][-1]
    return None


def _read_decoder(node: NodeReader) -> list[VTensor]:
    for name in ("past_present_share_buffer", "output_qk"):
        node.attribute(name)  # a cache with room has a length; an output is computed if it is used
    at = _Inputs(bias=10, mask=3, added=4, keys=5, values=6, length=7, beams=9)
    return _read_multi_head(node, at)


def _three(heads: Heads, bias_index: int) -> list[VTensor]:
    """Return queries, keys and values of a MultiHeadAttention.

    Each is an input. But input 0 may hold all three, or input 1 keys and values, without a bias;
    keys and values may be those of a cache.
    """
    node, results, start = heads.node, list[VTensor](), 0
    bias = node.input(bias_index, heads.hidden) if node.has(bias_index) else None
    rows = [(heads.query, heads.feature), (heads.key, heads.feature), (heads.key, heads.value)]
    for index, (row, last) in enumerate(rows):
        if len(results) == 3:
            return results
        if not node.has(index):
            raise node.refuse("queries without keys or values")
        rank = node.input(index).ndimensions()
        if rank == 5:
            one, pack, part = map(heads.other, ("row", "pack", "part"))
            packed = node.input(index, f"{heads.batch} {one} {heads.head} {pack} {part}")
            width = heads.count * packed.size(part)
            for at, (own, last_one) in enumerate(rows[index:]):
                x = renamed(node, picked(node, packed, pack, at), {one: own, part: last_one})
                if bias is not None:
                    added = cut(node, bias, heads.hidden, start, start + width)
                    dims = {heads.head: heads.count, last_one: packed.size(part)}
                    x = do(node, "BiasAdd", x, node.reshape(added, dims))
                results.append(x)
                start += width
        elif rank == 4:
            results.append(node.input(index, f"{heads.batch} {heads.head} {row} {last}"))
        else:
            x = node.input(index, f"{heads.batch} {row} {heads.hidden}")
            end = start + x.size(heads.hidden)
            if bias is not None:
                x = do(node, "BiasAdd", x, cut(node, bias, heads.hidden, start, end))
            start = end
            results.append(heads.divided(x, heads.count, last))
    return results


def _read_rotary(node: NodeReader) -> VTensor:
    count, width = (int(node.attribute(n, 0)) for n in ("num_heads", "rotary_embedding_dim"))
    for name in ("scale", "is_packed_batching"):
        node.attribute(name)  # they change nothing in ONNX Runtime either
    x, ids = node.input(0), node.input(1)
    batch, *_, row, _ = x.dims
    half = [*node.input(2).dims.values()][-1]
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
    if ids.ndimensions() == 1:
        by = do(node, "Add", places(node, row, x.size(row)), node.reshape(ids, {}))
    else:
        by = node.input(1, f"{batch} {row}")
    y = rotated(node, x, 2, by, bool(node.attribute("interleaved", 0)))
    return node.reshape(y, node.input(0).dims)


def _read_grouped(node: NodeReader) -> list[VTensor]:
    heads, groups = Heads(node), int(node.attribute("kv_num_heads", 0))
    if groups < 1 or heads.count < groups or heads.count % groups:
        raise node.refuse(f"{heads.count} heads of queries, {groups} of keys")
    refuse(node, {14: "q_norm_weight", 15: "k_norm_weight"})
    for name in ("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"):
        node.attribute(name)  # of inputs that are refused
    q, k, v = _rows(heads, groups)
    totals, queries = node.constant(6).tolist(), q.size(heads.query)
    total = totals[0] if isinstance(totals, list) else totals
    padded, past = node.has(16), [_past(heads, index) for index in (3, 4)]
    if (past[0] is None) != (past[1] is None):
        raise node.refuse("past keys without values, or values without keys")
    if padded and (past[0] is None or node.attribute("causal", 1) != 1):
        raise node.refuse("query_seqlens without past keys, or with causal 0")
    prompt, last = not padded and total == queries, integer(node, 5, heads.batch)
    ends = do(node, "Add", last, number(node, 1, "s64"))
    own = places(node, heads.query, queries, reverse=not (prompt or padded))
    if padded:
        own = do(node, "Add", do(node, "Sub", ends, integer(node, 16, heads.batch)), own)
    elif not prompt:
        own = do(node, "Sub", last, own)
    if node.attribute("do_rotary", 0):
        q, k = _turned(heads, own, prompt, q, k)
    starts = [] if prompt else [picked(node, own, heads.query, 0)]
    new = [heads.cached(heads.keyed(x), [*x.dims][-1]) for x in (k, v)]
    new = [codes(heads, 12 + i, x, past[i]) for i, x in enumerate(new)]
    parts = {heads.head: groups, heads.member: heads.count // groups}
    width, added = int(node.attribute("local_window_size", -1)), heads.added(10, parts)
    if node.attribute("sliding_window_cache", 0):
        if past[0] is None or past[1] is None:
            raise node.refuse("sliding_window_cache without past keys")
        window = Window(heads, past[0].size(heads.key), width, queries, ends, starts)
        k, v = (window.staged(p, x) for p, x in zip(past, new, strict=True) if p is not None)
        results, own, total = [window.latest(x) for x in (k, v)], window.own, k.size(heads.key)
        added = [window.masked(x, total) for x in added]
    else:
        results = [
            longer(heads, p, x, total, starts, not padded) for p, x in zip(past, new, strict=True)
        ]
        k, v = (
            cut(node, x, heads.key, 0, total) if x.size(heads.key) > total else x for x in results
        )
    k, v = (numbers(heads, 12 + i, x, q.dtype) for i, x in enumerate((k, v)))
    q = node.reshape(q, replaced(q, heads.head, parts))
    k, v = (node.reshape(x, replaced(x, heads.head, {**parts, heads.member: 1})) for x in (k, v))
    sink = None
    if node.has(11):
        sink = node.reshape(node.input(11, heads.head), parts)
    elif node.attribute("smooth_softmax", 0) == 1:
        sink = number(node, 0.0, q.dtype)
    masks = [*added, _kept(heads, total, own, last)]
    by = Scores(masks, -inf, float(node.attribute("softcap", 0.0)), sink)
    results.insert(0, heads.attended(q, k, v, by))
    if kind := int(node.attribute("qk_output", 0)):
        results.append(_score_output(heads, heads.scored(q, k, by), by, kind))
    return results


def _turned(heads: Heads, own: VTensor, prompt: bool, *both: VTensor) -> list[VTensor]:
    """Return queries and keys rotated by their places, those of an input or ``own``."""
    node, turn = heads.node, bool(heads.node.attribute("rotary_interleaved", 0))
    angles = node.input(9, f"{heads.batch} {heads.query}") if node.has(9) else own
    if node.has(9) and prompt:  # only the first number counts, as in ONNX Runtime
        first = picked(node, picked(node, angles, heads.batch, 0), heads.query, 0)
        angles = do(node, "Add", own, first)
    return [rotated(node, x, 7, angles, turn) for x in both]


def _score_output(heads: Heads, x: VTensor, by: Scores, kind: int) -> VTensor:
    """Return the output of scores, for ``kind`` 1, or of their weights, for 2."""
    node, [*_, keep] = heads.node, by.masks
    x = heads.weights(x, by) if kind == 2 else do(node, "Where", keep, x, number(node, 0, x.dtype))
    return heads.in_heads(x, heads.query, heads.key)


def _rows(heads: Heads, groups: int) -> list[VTensor]:
    """Return queries, keys and values, of which input 0 may hold all, divided into heads."""
    node, counts = heads.node, (heads.count, groups, groups)
    names = f"{heads.batch} {heads.query} {heads.hidden}"
    if node.has(1) and node.has(2):
        parts = [node.input(index, names) for index in range(3)]
    else:
        x = node.input(0, names)
        size, rest = divmod(x.size(heads.hidden), sum(counts))
        if rest:
            raise node.refuse(f"{x.summary()} packs {heads.count} + 2 * {groups} heads")
        ends = accumulate((count * size for count in counts), initial=0)
        parts = [cut(node, x, heads.hidden, start, end) for start, end in pairwise(ends)]
    last = (heads.feature, heads.feature, heads.value)
    return [heads.divided(*row) for row in zip(parts, counts, last, strict=True)]


def _past(heads: Heads, index: int) -> VTensor | None:
    """Return input ``index``, past keys (3) or values (4); None if it is absent."""
    last = heads.feature if index == 3 else heads.value
    return heads.past(index, last) if heads.node.has(index) else None


def _kept(heads: Heads, total: int, own: VTensor, last: VTensor) -> VTensor:
    """Return the truth values of the keys that each query attends to.

    Args:
        heads: the node's heads.
        total: the number of keys.
        own: the places of queries.
        last: for each text, the place of its last key.
    """
    node, window = heads.node, int(heads.node.attribute("local_window_size", -1))
    keys, causal = places(node, heads.key, total), node.attribute("causal", 1)
    if (window < 1 or not causal) and window != -1:
        raise node.refuse(f"local_window_size {window} with causal {causal}")
    if not causal:
        return do(node, "LessOrEqual", keys, last)
    keep = do(node, "LessOrEqual", keys, own)
    if window == -1:
        return keep
    first = do(node, "Sub", own, number(node, window, "s64"))
    return do(node, "And", keep, do(node, "Greater", keys, first))


_THREE = (_names, lambda _: 3)
#: How ONNX Runtime's operators of attention are read.
SPELLINGS = [
    Spelling(f"{MICROSOFT}{name}", 1, read, names, rank=rank)
    for name, read, names, rank in (
        ("Attention", _read_attention, *_THREE),
        ("QAttention", _read_quantized, *_THREE),
        ("MultiHeadAttention", lambda node: _read_multi_head(node, _Inputs()), *_THREE),
        ("DecoderMaskedMultiHeadAttention", _read_decoder, *_THREE),
        ("GroupQueryAttention", _read_grouped, *_THREE),
        ("RotaryEmbedding", _read_rotary, same_names, rank_of_x),
    )
]
