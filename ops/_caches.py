"""Keys and values of earlier runs, in the caches of ONNX Runtime's operators of attention."""

from __future__ import annotations

from collections.abc import Sequence

from ops._heads import Heads, cut, do, in_order, number, picked, places, renamed, replaced
from vtensor.operators import NodeReader, named
from vtensor.tensor import VTensor


def integer(node: NodeReader, index: int, dims: str = "") -> VTensor:
    """Return input ``index`` as s64; without ``dims``, its only element."""
    x = node.input(index, dims) if dims else node.reshape(node.input(index), {})
    return node.add(named("Cast")("s64"), x)


def counted(node: NodeReader, size: int) -> VTensor:
    """Return ``size``, which may be open, as a number of a run."""
    return picked(node, places(node, "place", size + 1, reverse=True), "place", 0)


def gathered(node: NodeReader, x: VTensor, axis: str, by: VTensor) -> VTensor:
    """Return the elements of ``x`` along ``axis`` at the indices ``by``, in the order of dims of x.

    Each index of a dim of both, or of another dim of ``by``, has indices of its own.
    """
    rows = node.reshape(by, {**by.dims, "index": 1})
    return node.add(named("GatherND")((axis,), "index"), x, rows)


class Room:
    """A cache of a MultiHeadAttention with room for later keys; an input tells how many it has.

    Args:
        heads: the node's heads.
        index: of the input with the number of past keys.
        queries: the number of queries, which is that of new keys.
    """

    def __init__(self, heads: Heads, index: int, queries: int) -> None:
        self.heads = heads
        self.length = integer(heads.node, index)
        self.own = do(heads.node, "Add", places(heads.node, heads.query, queries), self.length)

    def filled(self, index: int, x: VTensor) -> VTensor:
        """Return the cache of input ``index`` with the new keys or values ``x`` written into it."""
        node, batch = self.heads.node, self.heads.batch
        past = self.heads.past(index, [*x.dims][-1])
        starts = node.add(named("Expand")(((batch, x.size(batch)),)), self.length)
        return node.add(named("TensorScatter")(self.heads.key, batch), past, x, starts)

    def kept(self, keys: int, causal: bool) -> VTensor:
        """Return the truth values of the keys that count, for each query if it is ``causal``."""
        node, query, last = self.heads.node, self.heads.query, self.own
        if not causal:
            last = picked(node, last, query, last.size(query) - 1)
        return do(node, "LessOrEqual", places(node, self.heads.key, keys), last)

    def of_beams(self, index: int, x: VTensor) -> VTensor:
        """Return keys or values, those of the past from the beam that input ``index`` names."""
        node, heads = self.heads.node, self.heads
        group, beam, source = map(heads.other, ("group", "beam", "source"))
        beams = node.input(index, f"{group} {beam} {heads.key}")
        keys, count = x.size(heads.key), beams.size(beam)
        beams = node.add(named("Cast")("s64"), cut(node, beams, heads.key, 0, keys))
        is_past = do(node, "Less", places(node, heads.key, keys), self.length)
        beams = do(node, "Where", is_past, beams, places(node, beam, count))
        parts = {group: beams.size(group), source: count}
        y = gathered(node, node.reshape(x, replaced(x, heads.batch, parts)), source, beams)
        y = in_order(node, y, group, beam, heads.head, heads.key, [*x.dims][-1])
        return node.reshape(y, x.dims)


def longer(
    heads: Heads, past: VTensor | None, x: VTensor, total: int, starts: list[VTensor], exact: bool
) -> VTensor:
    """Return keys or values in the order of a cache, with those of the past before them.

    Args:
        heads: the node's heads.
        past: those of the past; None if there are none.
        x: the new ones.
        total: the largest number of keys of a text.
        starts: for each text, the place of the first new one, in a list; none if it is 0.
        exact: whether ``total`` is the size of the past, or that and all new ones; else, it is at
            least what a text has.
    """
    node = heads.node
    size, new = 0 if past is None else past.size(heads.key), x.size(heads.key)
    if exact and total > size and total != size + new:
        raise node.refuse(f"{total} keys, {size} of them from the past and {new} new ones")
    if past is None or (exact and size <= new and total == new):
        return x
    if total > size:
        past = node.add(named("Pad")((heads.key,), (0, total - size)), past)
    return node.add(named("TensorScatter")(heads.key, heads.batch), past, x, *starts)


class Window:
    """A cache of the latest keys of each text, from its begin on, of a GroupQueryAttention.

    It holds L(T) of T keys: all up to its capacity C, then those without as many blocks of
    G = C - W + 1 as leave a window of W: L(T) = T - G * (max(T - W, 0) // G).

    Args:
        heads: the node's heads.
        capacity: C.
        window: W.
        queries: the number of queries, which is that of new keys.
        ends: for each text, the number of keys after the node.
        starts: for each text, the number of keys before it, in a list; none if it is 0.
    """

    def __init__(
        self,
        heads: Heads,
        capacity: int,
        window: int,
        queries: int,
        ends: VTensor,
        starts: Sequence[VTensor],
    ) -> None:
        node = self._node = heads.node
        if not 0 < window <= capacity:
            raise node.refuse(f"a window of {window} keys in a cache of {capacity}")
        self._heads, self._capacity, self._queries = heads, capacity, queries
        self._window = number(node, window, "s64")
        self._block = counted(node, capacity - window + 1)
        zero = number(node, 0, "s64")
        start = starts[0] if starts else do(node, "Mul", ends, zero)
        self._resident = self._held(start)
        # The number of keys before the first one that is in the cache.
        self._gone = do(node, "Sub", start, self._resident)
        self._shift = do(node, "Sub", do(node, "Sub", ends, self._held(ends)), self._gone)
        #: For each text and query, its place among the keys of ``staged``.
        self.own = do(node, "Add", self._resident, places(node, heads.query, queries))

    def _held(self, keys: VTensor) -> VTensor:
        node = self._node
        over = do(node, "Max", do(node, "Sub", keys, self._window), number(node, 0, "s64"))
        blocks = do(node, "Div", over, self._block)
        return do(node, "Sub", keys, do(node, "Mul", blocks, self._block))

    def staged(self, past: VTensor, x: VTensor) -> VTensor:
        """Return the keys or values of the cache, and new ones after them."""
        key = self._heads.key
        past = self._node.add(named("Pad")((key,), (0, self._queries)), past)
        scatter = named("TensorScatter")(key, self._heads.batch)
        return self._node.add(scatter, past, x, self._resident)

    def latest(self, staged: VTensor) -> VTensor:
        """Return the cache after the node."""
        node, key, slot = self._node, self._heads.key, self._heads.other("slot")
        last = counted(node, staged.size(key) - 1)
        at = do(node, "Add", self._shift, places(node, slot, self._capacity))
        y = gathered(node, staged, key, do(node, "Min", at, last))
        return self._heads.cached(renamed(node, y, {slot: key}), [*staged.dims][-1])

    def masked(self, x: VTensor, keys: int) -> VTensor:
        """Return a mask with columns for all keys as one for those of ``staged``."""
        node, heads = self._node, self._heads
        slot, last = heads.other("slot"), counted(node, x.size(heads.key) - 1)
        at = do(node, "Add", self._gone, places(node, slot, keys))
        at = do(node, "Min", at, last)
        if x.size(heads.batch) == 1:
            x = node.reshape(x, replaced(x, heads.batch, {}))
        return renamed(node, gathered(node, x, heads.key, at), {slot: heads.key})


#: By the attribute kv_cache_bit_width: the element type of a cache of integers.
_CODES = {8: "s8", 4: "u8"}


def codes(heads: Heads, index: int, x: VTensor, past: VTensor | None) -> VTensor:
    """Return new keys or values in the element type of those of the past.

    Input ``index`` is the scale of integers. Those of 4 bits are two in a byte, the first one in
    the low bits, and 8 more than the number.

    Raises:
        NodeRefused: the past has another type, or is quantised without a scale.
    """
    node, name = heads.node, "k" if index == 12 else "v"
    to = _CODES.get(int(node.attribute("kv_cache_bit_width", 0)) or 8)
    kind = str(node.attribute(f"{name}_quant_type", "NONE"))
    if kind == "NONE" and past is not None and past.dtype != x.dtype:
        raise node.refuse(f"past keys or values of type {past.dtype}, new ones of {x.dtype}")
    if kind == "NONE":
        return x
    if to is None or past is None or past.dtype != to or not node.has(index):
        raise node.refuse(f"{name}_quant_type {kind} without a past of s8 or u8 and a scale")
    quantize = named("QuantizeLinear")(to)
    if to == "s8":
        return node.add(quantize, x, *_code(heads, index, x, to))
    x = do(node, "Min", node.add(quantize, x, *_code(heads, index, x, to)), number(node, 15, to))
    last, half = [*x.dims][-1], heads.other("half")
    x = node.reshape(x, replaced(x, last, {last: x.size(last) // 2, half: 2}))
    high = node.add(named("BitShift")("LEFT"), picked(node, x, half, 1), number(node, 4, to))
    return do(node, "BitwiseOr", picked(node, x, half, 0), high)


def numbers(heads: Heads, index: int, x: VTensor, dtype: str) -> VTensor:
    """Return keys or values as numbers; input ``index`` is the scale of integers."""
    if x.dtype == dtype:
        return x
    node, kind = heads.node, x.dtype
    if kind == "u8":
        low = do(node, "BitwiseAnd", x, number(node, 15, kind))
        high = node.add(named("BitShift")("RIGHT"), x, number(node, 4, kind))
        last, half = [*x.dims][-1], heads.other("half")
        both = [node.reshape(part, {**x.dims, half: 1}) for part in (low, high)]
        pairs = in_order(node, node.add(named("Concat")(half), *both), *x.dims, half)
        x = node.reshape(pairs, {**x.dims, last: 2 * x.size(last)})
    return node.add(named("DequantizeLinear")(dtype), x, *_code(heads, index, x, kind))


def _code(heads: Heads, index: int, x: VTensor, kind: str) -> list[VTensor]:
    """Return the scale in input ``index``, and the zero point of integers of type ``kind``.

    There is one scale, or one for each channel of each head.
    """
    node, last = heads.node, [*x.dims][-1]
    each = {heads.head: x.size(heads.head), last: x.size(last)}
    scale = node.input(index)
    scale = node.reshape(scale, {} if scale.num_elements == 1 else each)
    return [scale] if kind == "s8" else [scale, number(node, 8, kind)]
