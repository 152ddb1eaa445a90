"""Integers stay integers between operators that have kernels for them, or only move elements.

    quantize(move(dequantize(x)))  becomes  move(x)
    product(dequantize(x), dequantize(w))  becomes  dequantize(integer product(x, w))

A tensor of integers stands for (integer - zero point) * scale. Operators declare that they store
numbers as integers or make numbers of them (the trait ``Encodes``), and that they only move or
select elements (``Moves``). The pass moves the former past the latter, gives each reader of a
dequantized value a dequantization of its own, and removes those that cancel. Then rewrite rules
with ``early`` put products of integers in place of products of numbers, unless declared speeds say
that these are slower than products of numbers and their conversions. Where they are slower, rules
put products of numbers in place of those of integers that a model has, if f32 holds each sum
exactly. Constants that are still dequantized at the end become constants of numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from libdesc.dispatcher import has_kernel
from libdesc.preferences import EVERY, Preferences
from optimizer.constants.originals import Original, Originals
from optimizer.readers import Readers
from optimizer.rewrite import BYTES, rewrite
from ptensor.background_work import checkpoint
from ptensor.encoding import integer_range
from vtensor.errors import VTensorError
from vtensor.language.dtype import from_numpy
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.symbolic.symbolic_arrays import SymbolicArray
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import Encodes, Moves

Array = np.ndarray[Any, Any]

#: A smaller scale makes products that f32 does not hold exactly enough to quantize back.
MIN_SCALE = 1e-30


def integers(
    graph: Graph,
    preferences: Preferences = EVERY,
    *,
    off: Collection[str] = (),
    only: Collection[tuple[str, str]] | None = None,
) -> Graph:
    """Return the same network with as many of its operators on integers as have kernels for them.

    Args:
        graph: sealed; it is not changed.
        preferences: which nodes are pinned, and which libraries may be used.
        off, only: as for ``rewrite``.
    """
    if any(_encodes(node) is not None for node in graph.nodes.values()):
        graph = _QuantizedGraph.of(graph, preferences).moved()
    graph = rewrite(graph, preferences, off=off, only=only, early=True)
    return decoded(graph, merge=True)


def decoded(graph: Graph, merge: bool = False) -> Graph:
    """Return the same network in which no constant is dequantized: it is a constant of numbers.

    Args:
        graph: sealed; it is not changed.
        merge: True makes equal dequantizations one, unless their reader may be fused to them.
    """
    if not any(_decodes(node) for node in graph.nodes.values()):
        return graph
    work = _QuantizedGraph.of(graph, EVERY)
    work.decode()
    if merge:
        work.merge(back=True)
    return work.ordered()


def _encodes(node: Node) -> Encodes | None:
    return info_of(node.op).trait(Encodes)


def _decodes(node: Node) -> bool:
    encodes = _encodes(node)
    return encodes is not None and encodes.back


class _Code(NamedTuple):
    """How integers stand for numbers, by constants.

    Attributes:
        dtype: the element type of the integers.
        key: the elements of the scale and of the zero point.
        dims: the dims along which one of them varies; empty if both are one number.
        scale, zero: the least scale, and the first zero point.
    """

    dtype: str
    key: tuple[bytes, bytes]
    dims: tuple[str, ...]
    scale: float
    zero: float

    def integer(self, number: float) -> float | None:
        """Return the integer that stands for exactly this number; None if there is none."""
        step = self.nearest(number)
        exact = np.float32((step - self.zero) * self.scale) == np.float32(number)
        return step if exact else None

    def nearest(self, number: float) -> float:
        """Return the integer to which a number is quantized."""
        low, high = integer_range(self.dtype)
        steps = float(np.rint(np.float32(number) / np.float32(self.scale))) + self.zero
        return min(max(steps, low), high)


@dataclass(eq=False)
class _QuantizedGraph:
    """A graph whose quantizations and dequantizations are being moved, merged or removed.

    Attributes:
        graph: the graph.
        readers: the makers and readers of its values.
        constants: its constants.
        preferences: which nodes are pinned, and which libraries may be used.
        places: the index of each node of the given graph, by its name.
    """

    graph: Graph
    readers: Readers
    constants: Originals
    preferences: Preferences
    places: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph, preferences: Preferences) -> _QuantizedGraph:
        """Return a copy of a graph that can be changed."""
        given: Any = graph.constants
        constants = Originals(given.origins() if isinstance(given, Originals) else given)
        changed = replace(
            graph,
            values=dict(graph.values),
            constants=constants,
            nodes=dict(graph.nodes),
            merged=dict(graph.merged),
        )
        places = {name: place for place, name in enumerate(graph.nodes)}
        return cls(changed, Readers(changed), constants, preferences, places)

    def moved(self) -> Graph:
        """Move quantizations up and dequantizations down as far as possible, and return the graph
        without those that cancel.
        """
        waiting = [node for node in self._nodes() if _encodes(node) and not _decodes(node)]
        while waiting:
            checkpoint()
            waiting += self._raised(waiting.pop())
        self.merge(back=False)
        self._cancel()
        waiting = [node for node in self._nodes() if _decodes(node)]
        while waiting:
            checkpoint()
            waiting += self._lowered(waiting.pop())
        self._cancel()
        return self.ordered()

    def decode(self) -> None:
        """Replace each dequantization of a constant by a constant of numbers."""
        for node in self._nodes():
            arrays = [self.constants.origins().get(name) for name in node.inputs]
            known = not any(each is None or isinstance(each, SymbolicArray) for each in arrays)
            if not _decodes(node) or not known:
                continue
            value, dims = node.outputs[0], self.graph.values[node.inputs[0]].dims
            by = [self._along(name, dims) for name in node.inputs[1:]]
            scale, zero = (*by, np.zeros((1,) * len(dims), np.int8))[:2]
            dtype = self.graph.values[value].dtype
            self._remove(node)
            self.constants.put(value, self._original(node.inputs[0]).decoded(scale, zero, dtype))

    def merge(self, back: bool) -> None:
        """Make equal quantizations one, or equal dequantizations whose reader is not fused to them.

        Args:
            back: True merges dequantizations.
        """
        first: dict[object, Node] = {}
        for node in self._nodes():
            encodes, alone = _encodes(node), self.readers.alone(node.outputs[0])
            if encodes is None or encodes.back != back or self.readers.delivered(node.outputs[0]):
                continue
            if back and alone is not None and info_of(alone.op).light:
                continue
            known = first.setdefault((node.op, node.inputs), node)
            if known is not node:
                self._redirect(node.outputs[0], known.outputs[0])
                self._remove(node)
                del self.graph.values[node.outputs[0]]
                self.graph.merged[node.name] = known.name

    def _nodes(self) -> list[Node]:
        return list(self.graph.nodes.values())

    # Quantizations

    def _raised(self, node: Node) -> Iterator[Node]:
        """Move a quantization to before the node that makes its input, if that only moves elements.
        Yield the new quantizations.
        """
        source = node.inputs[0]
        mover, code = self.readers.maker(source), self._code(node)
        if mover is None or code is None or code.dims or self.readers.only(source) is not node:
            return
        taken = self._taken(mover)
        if taken is None or not all(self._may_raise(mover.inputs[at]) for at in taken):
            return
        names = {at: self._free(f"{mover.inputs[at]}:{code.dtype}") for at in taken}
        known = {mover.inputs[at]: name for at, name in names.items()}
        values = {
            name: VTensor(code.dtype, self.graph.values[read].dims, Option(name=name))
            for read, name in known.items()
        }
        moved = self._mover(mover, code.nearest, known, values)
        if moved is None or self._pinned(node):
            return
        self._remove(node)
        self._remove(mover)
        del self.graph.values[source]
        self.graph.values.update(values)
        for at, (read, name) in enumerate(known.items()):
            own = node.name if not at else self._free(f"{node.name}:{at}")
            made = replace(node, name=own, inputs=(read, *node.inputs[1:]), outputs=(name,))
            self._add(made)
            yield made
        self._add(replace(moved, outputs=node.outputs))

    def _may_raise(self, value: str) -> bool:
        """Return whether a value may be quantized before it is moved: it is dequantized, or has one
        reader, or only readers that move elements.
        """
        maker = self.readers.maker(value)
        if value in self.constants:
            return False
        if maker is not None and _decodes(maker):
            return True
        others = self.readers.every(value)
        alone = len(others) == 1 and not self.readers.delivered(value)
        return alone or all(info_of(node.op).trait(Moves) for node in others)

    def _cancel(self) -> None:
        """Remove each quantization of a dequantized value with the same code."""
        for node in self._nodes():
            encodes = _encodes(node)
            maker = self.readers.maker(node.inputs[0]) if node.inputs else None
            if encodes is None or encodes.back or maker is None or not _decodes(maker):
                continue
            code = self._code(node)
            if code is None or code != self._code(maker):
                continue
            if self._pinned(node) or self._pinned(maker):
                continue
            integers, value = maker.inputs[0], node.outputs[0]
            if self.readers.delivered(value):
                op = OPERATORS.structural("identity").cls()
                self._swap(node, replace(node, op=op, op_name=label_of(op), inputs=(integers,)))
            else:
                self._redirect(value, integers)
                self._remove(node)
                del self.graph.values[value]
            self._drop_unread(maker)

    # Dequantizations

    def _lowered(self, node: Node) -> Iterator[Node]:
        """Move a dequantization to after its reader, if that only moves elements. Yield the
        dequantizations that may be moved further.

        If several nodes read its result, each of them gets a dequantization of its own first.
        """
        if self.graph.nodes.get(node.name) is not node:
            return
        value, code = node.outputs[0], self._code(node)
        every = self.readers.every(value)
        kept = self.readers.delivered(value)
        if kept or len(every) > 1:
            if code is None or self._pinned(node):
                return
            for at, reader in enumerate(every):
                if kept or at:
                    yield self._own(node, reader)
            if not kept:
                yield node
            return
        if code is None or not every or self._pinned(node):
            return
        [mover] = every
        taken = self._taken(mover)
        makers = [self.readers.maker(mover.inputs[at]) for at in taken or ()]
        if not makers or value not in [mover.inputs[at] for at in taken or ()]:
            return
        known: dict[str, str] = {}
        for maker in makers:
            if maker is None or maker.op != node.op or self._code(maker) != code:
                return
            if self.readers.alone(maker.outputs[0]) is not mover:
                return
            known[maker.outputs[0]] = maker.inputs[0]
        by = self._parameters_after(node, mover) if code.dims else node.inputs[1:]
        moved = None if by is None else self._mover(mover, code.integer, known, {})
        if moved is None or by is None:
            return
        name = self._free(f"{mover.outputs[0]}:{code.dtype}")
        [out] = self._computed(moved, {})
        self.graph.values[name] = VTensor(out.dtype, out.dims, Option(name=name))
        for maker in {maker.name: maker for maker in makers if maker is not None}.values():
            self._remove(maker)
            del self.graph.values[maker.outputs[0]]
        self._remove(mover)
        moved = replace(moved, outputs=(name,))
        if not self._folded(moved):
            self._add(moved)
        lowered = replace(node, inputs=(name, *by), outputs=mover.outputs)
        self._add(lowered)
        yield lowered

    def _own(self, node: Node, reader: Node) -> Node:
        """Give a reader of a dequantized value a dequantization of its own, and return that."""
        value = node.outputs[0]
        name = self._free(f"{value}:{reader.name}")
        self.graph.values[name] = VTensor(
            self.graph.values[value].dtype, self.graph.values[value].dims, Option(name=name)
        )
        own = replace(node, name=name, outputs=(name,))
        self._add(own)
        inputs = tuple(name if read == value else read for read in reader.inputs)
        self._swap(self.graph.nodes[reader.name], replace(reader, inputs=inputs))
        return own

    def _parameters_after(self, node: Node, mover: Node) -> tuple[str, ...] | None:
        """Return the names of a dequantization's scale and zero point after a mover of its result.

        They vary along a dim. None unless the mover renames, splits or merges dims of a constant,
        and the dim stays one, or is split.
        """
        kind = info_of(mover.op).structural
        if node.inputs[0] not in self.constants or kind not in ("rename", "reshape"):
            return None
        before, after = (
            self.graph.values[name].dims for name in (node.outputs[0], mover.outputs[0])
        )
        if kind == "rename":
            op: Any = mover.op
            new = dict(op.names)
            parts = {dim: [new.get(dim, dim)] for dim in before}
        else:
            parts = {dim: _parts(before, after, dim) for dim in before}
        names = []
        for name in node.inputs[1:]:
            value = self.graph.values[name]
            dims = [part for dim in value.dims for part in parts[dim]]
            if not all(parts[dim] for dim in value.dims):
                return None
            new_name = self._free(f"{name}:{mover.name}")
            sizes = {dim: after[dim] for dim in dims} if value.num_elements > 1 else {}
            origin = self._original(name).reshape(tuple(sizes.values()))
            self._constant(new_name, origin, sizes)
            names.append(new_name)
        return tuple(names)

    def _folded(self, node: Node) -> bool:
        """Make the output of a node a constant, if it renames or reshapes a constant. Return
        whether it does.
        """
        kind, [source] = info_of(node.op).structural, node.inputs[:1]
        if kind not in ("rename", "reshape") or source not in self.constants:
            return False
        value, origin = self.graph.values[node.outputs[0]], self._original(source)
        if kind == "rename":
            op: Any = node.op
            old = {new: old for old, new in op.names}
            axes = list(self.graph.values[source].dims)
            origin = origin.turned(tuple(axes.index(old.get(dim, dim)) for dim in value.dims))
        else:
            origin = origin.reshape(tuple(value.dims.values()))
        self.constants.put(node.outputs[0], origin)
        return True

    def _along(self, name: str, dims: Mapping[str, int]) -> Array:
        """Return a constant as an array with an axis for each of ``dims``."""
        own = self.graph.values[name].dims
        array = np.asarray(self.constants[name]).transpose(
            [list(own).index(dim) for dim in dims if dim in own]
        )
        return array.reshape([own.get(dim, 1) for dim in dims])

    # Nodes that move elements

    def _taken(self, mover: Node) -> list[int] | None:
        """Return the indices of the inputs whose elements a node moves; None if it does more."""
        moves = info_of(mover.op).trait(Moves)
        if moves is None or len(mover.outputs) != 1 or self._pinned(mover):
            return None
        roles = info_of(mover.op).roles(len(mover.inputs), 0)
        return [at for at, role in enumerate(roles) if role.rstrip("0123456789") in moves.inputs]

    def _mover(
        self, mover: Node, function: Any, known: Mapping[str, str], values: Mapping[str, VTensor]
    ) -> Node | None:
        """Return the node that moves integers; None if no library has a kernel for them.

        Args:
            mover: the node that moves numbers.
            function: the integer that stands for a number, for constants that the node has.
            known: the value of integers by the value of numbers.
            values: values that are not in the graph yet.
        """
        moves = info_of(mover.op).trait(Moves)
        op = None if moves is None else moves.made(mover.op, function)
        if op is None:
            return None
        inputs = tuple(known.get(name, name) for name in mover.inputs)
        moved = replace(mover, op=op, inputs=inputs)
        try:
            outputs = self._computed(moved, values)
        except VTensorError:
            return None
        tensors = [values.get(name) or self.graph.values[name] for name in inputs]
        native = has_kernel(mover.name, op, tensors, outputs, self.preferences)
        return moved if native else None

    def _computed(self, node: Node, values: Mapping[str, VTensor]) -> tuple[VTensor, ...]:
        """Return the outputs that a node makes, with their dims and types.

        ``values`` are its inputs that are not in the graph yet.
        """
        inputs = [values.get(name) or self.graph.values[name] for name in node.inputs]
        return run_compute(Context(node=node.name), node.op, inputs)

    # The graph

    def _code(self, node: Node) -> _Code | None:
        """Return how a quantization or dequantization encodes numbers in bytes; None unless by
        constants, and by scales above 0.
        """
        back = _decodes(node)
        integers = self.graph.values[node.inputs[0] if back else node.outputs[0]].dtype
        rows = list[Array]()
        for name in node.inputs[1:] if integers in BYTES else ():
            origin = self.constants.origins().get(name)
            if origin is None or isinstance(origin, SymbolicArray):
                return None
            rows.append(np.asarray(self.constants[name]))
        scale, zero = (*rows, np.zeros(1, np.int8), np.zeros(1, np.int8))[:2]
        if scale.dtype != np.float32 or getattr(node.op, "precision", "") or not scale.size:
            return None
        if not (np.isfinite(scale) & (scale > MIN_SCALE)).all():
            return None  # the operator may decrease, or may not be undone
        dims = [d for n in node.inputs[1:] for d, s in self.graph.values[n].dims.items() if s != 1]
        key = scale.tobytes(), zero.astype(np.float64).tobytes()
        numbers = float(scale.min()), float(zero.reshape(-1)[0])
        return _Code(integers, key, tuple(dict.fromkeys(dims)), *numbers)

    def _pinned(self, node: Node) -> bool:
        return self.preferences.pinned(node.name, info_of(node.op).name) is not None

    def _original(self, name: str) -> Original:
        origin = self.constants.origin(name)
        if not isinstance(origin, Original):
            origin = Original(origin)
            self.constants.put(name, origin)
        return origin

    def _constant(self, name: str, origin: Original, dims: Mapping[str, int]) -> None:
        self.constants.put(name, origin)
        self.graph.values[name] = VTensor(from_numpy(origin.dtype), dims, Option(name=name))

    def _add(self, node: Node) -> None:
        self.graph.nodes[node.name] = node
        self.readers.add(node)

    def _remove(self, node: Node) -> None:
        del self.graph.nodes[node.name]
        self.readers.drop(node)

    def _swap(self, old: Node, new: Node) -> None:
        self.readers.drop(old)
        self._add(new)

    def _redirect(self, value: str, source: str) -> None:
        """Let the readers of a value read another value."""
        for reader in self.readers.every(value):
            inputs = tuple(source if name == value else name for name in reader.inputs)
            self._swap(reader, replace(reader, inputs=inputs))

    def _drop_unread(self, node: Node) -> None:
        value = node.outputs[0]
        if not self.readers.every(value) and not self.readers.delivered(value):
            self._remove(node)
            del self.graph.values[value]

    def ordered(self) -> Graph:
        """Return the graph with its nodes in running order."""
        nodes, end = dict[str, Node](), len(self.places)
        for node in sorted(self._nodes(), key=lambda node: self.places.get(node.name, end)):
            waiting = [node]
            while waiting:
                last = waiting[-1]
                makers = (self.readers.maker(name) for name in last.inputs)
                missing = [made for made in makers if made and made.name not in nodes]
                if missing:
                    waiting += missing[:1]
                else:
                    nodes[waiting.pop().name] = last
        return replace(self.graph, nodes=nodes)

    def _free(self, name: str) -> str:
        """Return ``name``, with apostrophes added until no node or value has the name."""
        while name in self.graph.values or name in self.graph.nodes or name in self.constants:
            name += "'"
        return name


def _parts(before: Mapping[str, int], after: Mapping[str, int], dim: str) -> list[str]:
    """Return the dims into which a reshape splits a dim, slowest first; empty if it does not.

    >>> _parts({"O": 6, "I": 4}, {"G": 2, "O": 3, "I": 4}, "O")
    ['G', 'O']
    >>> _parts({"O": 6, "I": 1}, {"G": 6, "O": 1, "I": 1}, "O")
    ['G', 'O']
    """
    names, sizes = list(before), list(before.values())
    outer, place = prod(sizes[: names.index(dim)]), 1
    parts, begin, size = list[str](), -1, 1
    for name, count in after.items():
        own = name == dim or name not in before
        if place >= outer and (size < before[dim] or (own and count == 1 and parts)):
            begin = begin if parts else place
            parts.append(name)
            size *= count
        place *= count
    return parts if begin == outer and size == before[dim] else []
