"""How ONNX Runtime's operators of attention are read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from math import inf

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

    refuse(node, {6: "past_sequence_length, for a shared buffer"})
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
    pair, part = heads.other("pair"), heads.other("part")
    if node.has(past):
        both = node.input(past, f"{pair} {heads.batch} {heads.head} {heads.key} {heads.feature}")
        join, own = named("Concat")(heads.key), {heads.feature: heads.value}
        k = node.add(join, picked(node, both, pair, 0), k)
        v = node.add(join, renamed(node, picked(node, both, pair, 1), own), v)
    queries, keys = q.size(heads.query), k.size(heads.key)
    padding = heads.padding(mask, q.size(heads.batch), keys, starts=True)
    y = heads.attended(q, k, v, Scores([*padding, *added, *heads.causal(queries, keys)]))
    if sizes[0] != sizes[2]:
        return [y]
    present = []
    for x, last in ((k, heads.feature), (v, heads.value)):
        x = renamed(node, heads.cached(x, last), {last: part})
        present.append(node.reshape(x, {pair: 1, **x.dims}))
    return [y, node.add(named("Concat")(pair), *present)]


def _read_multi_head(node: NodeReader) -> list[VTensor]:
    heads = Heads(node)
    refuse(node, {8: "past_sequence_length, for a shared buffer", 9: "cache_indirection"})
    if node.has(6) != node.has(7):
        raise node.refuse("past keys without values, or values without keys")
    q, k, v = _three(heads)
    for index, last in ((6, heads.feature), (7, heads.value)):
        if node.has(index):
            past = node.input(index, f"{heads.batch} {heads.head} {heads.key} {last}")
            longer = node.add(named("Concat")(heads.key), past, k if index == 6 else v)
            k, v = (longer, v) if index == 6 else (k, longer)
    queries, keys = q.size(heads.query), k.size(heads.key)
    if node.attribute("unidirectional", 0) and keys != queries and not node.has(6):
        raise node.refuse(f"unidirectional from {queries} queries to {keys} keys")
    masks = [
        *heads.padding(4, q.size(heads.batch), keys),
        *heads.added(5, {heads.head: heads.count}),
        *heads.causal(queries, keys),
    ]
    y = heads.attended(q, k, v, Scores(masks))
    results = [y, heads.cached(k, heads.feature), heads.cached(v, heads.value)]
    if node.output_count > 3:
        scores = heads.scored(q, k, Scores(masks))
        results.append(in_order(node, scores, heads.batch, heads.head, heads.query, heads.key))
    return results


def _three(heads: Heads) -> list[VTensor]:
    """Return queries, keys and values of a MultiHeadAttention.

    Each is an input. But input 0 may hold all three, or input 1 keys and values, without a bias;
    keys and values may be those of a cache.
    """
    node, results, start = heads.node, list[VTensor](), 0
    bias = node.input(3, heads.hidden) if node.has(3) else None
    rows = [(heads.query, heads.feature), (heads.key, heads.feature), (heads.key, heads.value)]
    for index, (row, last) in enumerate(rows):
        if len(results) == 3:
            return results
        if not node.has(index):
            raise node.refuse("queries without keys or values")
        rank = node.input(index).ndimensions()
        if rank == 5 and bias is None:
            one, pack, part = map(heads.other, ("row", "pack", "part"))
            x = node.input(index, f"{heads.batch} {one} {heads.head} {pack} {part}")
            for at, (own, last_one) in enumerate(rows[index:]):
                names = {one: own, part: last_one}
                results.append(renamed(node, picked(node, x, pack, at), names))
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
    norms = {14: "q_norm_weight", 15: "k_norm_weight"}
    refuse(
        node,
        {12: "k_scale", 13: "v_scale", 16: "query_seqlens", **norms},
        sliding_window_cache=0,
        k_quant_type="NONE",
        v_quant_type="NONE",
    )
    for name in ("kv_cache_bit_width", "qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"):
        node.attribute(name)  # of inputs that are refused
    q, k, v = _rows(heads, groups)
    totals, queries = node.constant(6).tolist(), q.size(heads.query)
    total = totals[0] if isinstance(totals, list) else totals
    prompt = total == queries
    own = places(node, heads.query, queries, reverse=not prompt)
    last = node.add(named("Cast")("s64"), node.input(5, heads.batch))
    own = own if prompt else do(node, "Sub", last, own)
    turn = bool(node.attribute("rotary_interleaved", 0))
    if node.attribute("do_rotary", 0):
        angles = node.input(9, f"{heads.batch} {heads.query}") if node.has(9) else own
        if node.has(9) and prompt:  # only the first number counts, as in ONNX Runtime
            first = picked(node, picked(node, angles, heads.batch, 0), heads.query, 0)
            angles = do(node, "Add", own, first)
        q, k = (rotated(node, x, 7, angles, turn) for x in (q, k))
    starts = [] if prompt else [picked(node, own, heads.query, 0)]
    k, v = (_longer(heads, index, heads.keyed(x), total, starts) for index, x in ((3, k), (4, v)))
    results = [k, v]
    k, v = (cut(node, x, heads.key, 0, total) if x.size(heads.key) > total else x for x in (k, v))
    parts = {heads.head: groups, heads.member: heads.count // groups}
    q = node.reshape(q, replaced(q, heads.head, parts))
    k, v = (node.reshape(x, replaced(x, heads.head, {**parts, heads.member: 1})) for x in (k, v))
    sink = None
    if node.has(11):
        sink = node.reshape(node.input(11, heads.head), parts)
    elif node.attribute("smooth_softmax", 0) == 1:
        sink = number(node, 0.0, q.dtype)
    keep = _kept(heads, total, own, last)
    softcap = float(node.attribute("softcap", 0.0))
    by = Scores([*heads.added(10, parts), keep], -inf, softcap, sink)
    results.insert(0, heads.attended(q, k, v, by))
    if kind := int(node.attribute("qk_output", 0)):
        x = heads.scored(q, k, by)
        x = (
            heads.weights(x, by)
            if kind == 2
            else do(node, "Where", keep, x, number(node, 0, x.dtype))
        )
        x = in_order(node, x, heads.batch, heads.head, heads.member, heads.query, heads.key)
        merged = replaced(x, heads.member, {})
        results.append(node.reshape(x, {**merged, heads.head: heads.count}))
    return results


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


def _longer(heads: Heads, index: int, x: VTensor, total: int, starts: list[VTensor]) -> VTensor:
    """Return keys or values in the order of a cache, with those of the past before them.

    Args:
        heads: the node's heads.
        index: the index of the input that is the past.
        x: the new keys or values.
        total: the largest number of keys of a text.
        starts: for each text, the place of the first new one, in a list; none if it is 0.
    """
    node, last = heads.node, [*x.dims][-1]
    x, order = heads.cached(x, last), f"{heads.batch} {heads.head} {heads.key} {last}"
    past = node.input(index, order) if node.has(index) else None
    size, new = 0 if past is None else past.size(heads.key), x.size(heads.key)
    if total > size and total != size + new:
        raise node.refuse(f"{total} keys, {size} of them from the past and {new} new ones")
    if past is None or (size <= new and total == new):
        return x
    if past.dtype != x.dtype:
        raise node.refuse(f"past keys or values of type {past.dtype}, new ones of {x.dtype}")
    if total > size:
        past = node.add(named("Pad")((heads.key,), (0, new)), past)
    return node.add(named("TensorScatter")(heads.key, heads.batch), past, x, *starts)


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
        ("MultiHeadAttention", _read_multi_head, *_THREE),
        ("GroupQueryAttention", _read_grouped, *_THREE),
        ("RotaryEmbedding", _read_rotary, same_names, rank_of_x),
    )
]
