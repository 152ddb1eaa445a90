"""How ONNX's operators Attention and RotaryEmbedding are read."""

from __future__ import annotations

from functools import partial
from math import inf, sqrt

from ops._caches import integer
from ops._heads import Heads, Scores, do, in_order, number, places, replaced, turned
from ops._microsoft import rank_of_x
from ops._names import same_names
from vtensor.operators import Naming, NodeReader, Spelling, named
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    for place in range(node.rank("x0") - 1):
        node.same("x0", place, "y0", place)


def _read(node: NodeReader) -> list[VTensor]:
    out = node.output_names()
    if len(out) not in (3, 4):
        raise node.refuse(f"its output has {len(out)} dims; expected 3 or 4")
    # The dim "hidden" of four is that of all heads of queries.
    heads = Heads(node, out if len(out) == 3 else (out[0], out[2], out[1], out[3]))
    node.attribute("softmax_precision")  # of f32 at least
    q, k, v = (_divided(heads, index, last) for index, last in enumerate(_lasts(heads)))
    groups = k.size(heads.head)
    if groups < 1 or q.size(heads.head) % groups:
        raise node.refuse(f"{q.size(heads.head)} heads of queries, {groups} of keys")
    queries, before, present = q.size(heads.query), 0, [k, v]
    if node.has(4) != node.has(5) or (node.has(4) and node.has(6)):
        raise node.refuse("past keys without values, or with nonpad_kv_seqlen")
    if node.has(4):
        past = [heads.past(index, last) for index, last in enumerate(_lasts(heads)[1:], 4)]
        before = past[0].size(heads.key)
        join = named("Concat")(heads.key)
        present = [node.add(join, old, x) for old, x in zip(past, present, strict=True)]
    k, v = (node.add(named("Cast")(q.dtype), x) if x.dtype != q.dtype else x for x in present)
    keys, parts = (
        k.size(heads.key),
        {heads.head: groups, heads.member: q.size(heads.head) // groups},
    )
    q = node.reshape(q, replaced(q, heads.head, parts))
    k, v = (node.reshape(x, replaced(x, heads.head, {**parts, heads.member: 1})) for x in (k, v))
    factor = node.attribute("scale")
    by = Scores(
        [*_masks(heads, keys, parts, q.dtype), *_seen(heads, queries, keys, before)],
        -inf,
        float(node.attribute("softcap", 0.0)),
        scale=1 / sqrt(q.size(heads.feature)) if factor is None else float(factor),
        zero=True,
    )
    y = heads.means(q, k, v, by)
    if len(out) == 3:
        results = [heads.merged(y), *present]
    else:
        y = heads.in_heads(y, heads.query, heads.value)
        results = [node.reshape(y, dict(zip(out, y.dims.values(), strict=True))), *present]
    if node.gives(3):
        results.append(_score_output(heads, q, k, by))
    return results


def _lasts(heads: Heads) -> tuple[str, str, str]:
    """Return the names of the last dims of queries, keys and values."""
    return heads.feature, heads.feature, heads.value


def _divided(heads: Heads, index: int, last: str) -> VTensor:
    """Return input ``index``, queries, keys or values, with a dim of heads."""
    node, row = heads.node, heads.key if index else heads.query
    if node.input(index).ndimensions() == 4:
        return node.input(index, f"{heads.batch} {heads.head} {row} {last}")
    count = int(node.attribute("kv_num_heads" if index else "q_num_heads", 0))
    x = heads.divided(node.input(index, f"{heads.batch} {row} {heads.other('rest')}"), count, last)
    return in_order(node, x, heads.batch, heads.head, row, last)


def _masks(heads: Heads, keys: int, parts: dict[str, int], dtype: str) -> list[VTensor]:
    """Return the mask in input 3, in a list; an empty list if it is absent.

    A mask of truth values keeps its type; one of numbers is converted to ``dtype``. From opset 24
    on, a mask with fewer columns than ``keys`` is padded so that it hides the other keys.
    """
    node = heads.node
    if not node.has(3):
        return []
    every = heads.other("every")
    names = (heads.batch, every, heads.query, heads.key)
    rank = node.input(3).ndimensions()
    x = node.input(3, " ".join(names[len(names) - rank :]))
    if x.dtype != "bool" and x.dtype != dtype:
        x = node.add(named("Cast")(dtype), x)
    if rank and node.opset >= 24 and x.size(heads.key) < keys:
        hides = 0.0 if x.dtype == "bool" else -inf
        pads = (0, keys - x.size(heads.key))
        x = node.add(named("Pad")((heads.key,), pads, "constant", hides), x)
    if every in x.dims:
        x = node.reshape(x, replaced(x, every, {} if x.size(every) == 1 else parts))
    return [x]


def _seen(heads: Heads, queries: int, keys: int, before: int) -> list[VTensor]:
    """Return masks of the keys that queries may attend to by their places; none if they all may.

    ``before`` is the number of keys of the past. Each query is at the place of a key.
    """
    node = heads.node
    left, right = (int(node.attribute(f"{side}_window_size", -1)) for side in ("left", "right"))
    right = 0 if node.attribute("is_causal", 0) else right
    if not node.has(6):
        if left < 0 and (right < 0 or (right == 0 and keys <= before + 1)):
            return []
        shape = ((heads.query, queries), (heads.key, keys))
        seen: VTensor = node.add(named("Expand")(shape), number(node, True, "bool"))
        trilu = partial(named("Trilu"), heads.query, heads.key)
        seen = node.add(trilu(before + right, upper=False), seen) if right >= 0 else seen
        seen = node.add(trilu(before - left, upper=True), seen) if left >= 0 else seen
        return [seen]
    at, count = places(node, heads.key, keys), integer(node, 6, heads.batch)
    masks = [do(node, "Less", at, count)]
    last = do(node, "Sub", count, number(node, 1, "s64"))
    own = do(node, "Sub", last, places(node, heads.query, queries, reverse=True))
    if right >= 0:
        far = do(node, "Add", own, number(node, right, "s64"))
        masks.append(do(node, "LessOrEqual", at, far))
    if left >= 0:
        near = do(node, "Sub", own, number(node, left, "s64"))
        masks.append(do(node, "GreaterOrEqual", at, near))
    return masks


def _score_output(heads: Heads, q: VTensor, k: VTensor, by: Scores) -> VTensor:
    """Return the scores before all else (0), before masks (1) or after (2), or weights (3)."""
    mode = int(heads.node.attribute("qk_matmul_output_mode", 0))
    kept = by if mode > 1 else by._replace(masks=(), softcap=by.softcap * mode)
    x = heads.scored(q, k, kept)
    return heads.in_heads(heads.weights(x, by) if mode == 3 else x, heads.query, heads.key)


def _read_rotary(node: NodeReader) -> VTensor:
    batch, *_, row, _ = node.input(0).dims
    names = f"{batch} {row}"
    return turned(node, 1, node.input(3, names) if node.has(3) else names)


#: How ONNX's operators of attention are read.
STANDARD = [
    Spelling("Attention", 23, _read, _names, rank=rank_of_x),
    Spelling("RotaryEmbedding", 23, _read_rotary, same_names, rank=rank_of_x),
]
