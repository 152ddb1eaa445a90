"""Call kinds: one recording serves all calls that are equal in all that recording depends on.

Networks repeat their layers, so each kind of call is recorded once, on stand-ins for its operands.
Calls are of one kind if they have the same operator, fused followers and variant, and if their
operands agree in element type, dims, layout and in being constant. For symbolic sizes only the
order counts in which they first occur. Such a kind is recorded on symbols of its own, and holds for
all sizes for which the guards of its trace hold. A call that reads the values of constants, or that
calls back into Python, has no kind and is recorded by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from libdesc.native_trace import NativeTrace
from libdesc.registry import ready
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.canonical_dims import Names
from resolver.lowered import LoweredNode, OpNode, Value
from vtensor.language.process.forks import process_lock
from vtensor.language.records import dataclass, replace
from vtensor.language.symbolic.trace import SymbolicSize, substituted
from vtensor.language.tensor import Option, VTensor
from vtensor.runtime.execution.steps import Code, Failure, RecordedStep

#: The number that stands for the first symbolic size in a key; the next sizes have the numbers
#: after it. No size of a network is so large.
FIRST_SYMBOL_CODE = 1 << 48

#: If a session's outer trace has more values than this, the next plan begins another one: each
#: recording of a network may add values.
MAX_OUTER_VALUES = 8192

#: Guards the call kinds of all sessions, for moments; its holder takes no other lock.
_kinds_lock = process_lock(3)


class RecordedOperand(NamedTuple):
    """An input or output of a call.

    Attributes:
        value: the operand's name, element type and dims.
        layout: the layout in which the call reads or writes the operand.
        known: True if the operand is a constant.
        storage: the operand's memory; None for an output.
    """

    value: Value
    layout: Layout
    known: bool = False
    storage: TensorStorage | None = None

    def tensor(self, storage: TensorStorage) -> VTensor:
        """Return the operand as a tensor with this storage: its own, or a stand-in."""
        tensor = VTensor(self.value.dtype, self.value.dims, Option(name=self.value.name))
        tensor.storage = storage
        return tensor


class Recorded(NamedTuple):
    """The recording of a call: its outputs, and the steps that make them."""

    outputs: Sequence[TensorStorage]
    steps: Sequence[RecordedStep]


class Key:
    """The key of a call kind: equal for all calls of the kind. Its hash is computed once.

    Attributes:
        parts: the values that are compared. None if a parameter of the operator cannot be hashed;
            the call then has no kind.
        names: the generated names of dims, in the order in which the call has them; not compared.
        symbols: the symbolic sizes, in the order in which the call has them; not compared.
    """

    __slots__ = ("_hash", "names", "parts", "symbols")

    def __init__(
        self, parts: Hashable, names: tuple[str, ...], symbols: tuple[SymbolicSize, ...]
    ) -> None:
        try:
            self._hash = hash(parts)
        except TypeError:
            parts, self._hash = None, 0
        self.parts, self.names, self.symbols = parts, names, symbols

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._hash == other._hash and self.parts == other.parts


class Keys:
    """A function object that makes the key of each call of a plan.

    Args:
        threads: the number of threads that kernels are made for.
        inexact: True if approximate variants are among the plan's.
    """

    def __init__(self, threads: int, inexact: bool) -> None:
        self._plan = threads, inexact, ready().version

    def of(self, node: LoweredNode, operands: Sequence[RecordedOperand]) -> Key:
        """Return the key of a node's call.

        Args:
            node: the node.
            operands: the inputs of the call, then its outputs.
        """
        names = Names()
        key = self._key(node, operands, names)
        return self._key(node, operands, Names(literal=True)) if names.literal else key

    def _key(self, node: LoweredNode, operands: Sequence[RecordedOperand], names: Names) -> Key:
        symbols = dict[int, SymbolicSize]()
        codes = dict[int, int]()

        def code(size: SymbolicSize) -> int:
            symbols.setdefault(size.place, size)
            return codes.setdefault(size.place, FIRST_SYMBOL_CODE + len(codes))

        kinds = []
        for operand in operands:
            dims = {
                dim: code(size) if type(size) is SymbolicSize else size
                for dim, size in operand.value.dims.items()
            }
            kinds.append(names.kind(operand.value.dtype, dims, operand.layout, operand.known))
        if isinstance(node, OpNode):
            way: Hashable = _way(node.variant)
            call: Hashable = names.of(substituted(node.op, code)), *_fused(node, names, code)
        else:
            way, call = node.library, ()
        parts = self._plan, way, tuple(kinds), call
        return Key(parts, tuple(names.made_up), tuple(symbols.values()))


def _way(variant: Variant) -> Hashable:
    """Return what the key of a call has of the call's variant besides layouts.

    That is the library, device and kernel, and whether the variant is reference code or
    approximate.
    """
    device = variant.forms[0].device  # all operands are on one device
    return variant.library, device, variant.kernel, variant.reference, variant.inexact


def _fused(node: OpNode, names: Names, code: Callable[[SymbolicSize], int]) -> Iterator[Hashable]:
    """Yield what the key of a call has of each fused follower of its node.

    That is the follower's operator, and for each input of the follower whether it is the result of
    the operator before.

    Args:
        node: the node.
        names, code: replace names of dims, and symbolic sizes, by what keys have instead.
    """
    value = node.value
    for follower in node.followers:
        places = tuple([name == value for name in follower.inputs])
        yield names.of(substituted(follower.op, code)), places
        value = follower.outputs[0]


@dataclass(frozen=True, eq=False)
class CallKind:
    """The recording of the calls that have one key, on stand-ins for their operands.

    Attributes:
        inputs: the stand-ins of the inputs.
        recorded: the outputs and the steps. In a kind with symbols, sizes and native steps are
            values of ``trace``.
        names: the generated names of dims, in the order of ``Key.names``.
        trace: the trace of the kind's symbols; None for a kind without symbols.
    """

    inputs: Sequence[TensorStorage]
    recorded: Recorded
    names: tuple[str, ...]
    trace: NativeTrace | None = None

    @classmethod
    def of(
        cls,
        key: Key,
        inputs: Sequence[TensorStorage],
        outputs: Sequence[RecordedOperand],
        recorded: Recorded,
        trace: NativeTrace | None,
    ) -> CallKind | None:
        """Return the call kind of a recording; None if the recording depends on more than the key.

        Args:
            key: the call's key.
            inputs: the stand-ins of the call's inputs.
            outputs: the declared outputs of the call.
            recorded: the recording of the call on the stand-ins.
            trace: the trace of the call's symbols; None if it has none.
        """
        results, steps = recorded
        known = {*inputs, *results}
        touched = {slot for step in steps for slot in step.slots if isinstance(slot, TensorStorage)}
        touched |= {output.root for output in results}
        kinds = [(storage.dtype, [*storage.extents.items()], storage.layout) for storage in results]
        if (
            not touched <= known
            or any(step.native is None for step in steps)
            or any(storage.constant and not storage.untouched for storage in inputs)
            or any(storage.root is not storage for storage in inputs)
            or kinds != [(v.dtype, [*v.dims.items()], layout) for v, layout, *_ in outputs]
        ):
            return None
        for stand_in in inputs:
            stand_in.forget()
        return cls(inputs, recorded, key.names, trace)


@dataclass(eq=False)
class CallUse:
    """The use of a call kind by the calls of one plan.

    Attributes:
        kind: the call kind.
        values: the values of the kind's trace for the present sizes; a value's place is its index.
            Empty without a trace.
        number: returns the plan's size for a size of the kind's trace.
        native: returns the plan's native step, or a reference to it, for a native step of the kind.
        nodes: names of the nodes that make the calls.
    """

    kind: CallKind
    values: Sequence[Any] = ()
    number: Callable[[Any], Any] = field(default=lambda size: size)
    native: Callable[[Any], Any] = field(default=lambda native: native)
    nodes: list[str] = field(default_factory=list)
    _codes: dict[RecordedStep, Code] = field(default_factory=dict)

    def on(
        self,
        node: str,
        names: tuple[str, ...],
        inputs: Sequence[TensorStorage],
        outputs: Sequence[RecordedOperand],
    ) -> Recorded:
        """Return the recording of a node's call: the kind's recording on the node's operands.

        Args:
            node: the node's name.
            names: the generated names of the node's dims, in the order of its key.
            inputs: the memory of the node's inputs.
            outputs: the node's declared outputs.
        """
        self.nodes.append(node)
        kind, number = self.kind, self.number
        templates, steps = kind.recorded
        results = list[TensorStorage]()
        for template, to in zip(templates, outputs, strict=True):
            results.append(TensorStorage.like(template, to.value.dims, to.layout))
            results[-1].nbytes = number(template.nbytes)
        storages = dict(zip((*kind.inputs, *templates), (*inputs, *results), strict=True))
        for template, result in zip(templates, results, strict=True):
            if (root := template.root) is not template:
                result.lie_in(storages[root], number(template.begin))
        renamed = tuple(zip(kind.names, names, strict=True))
        bound = {step: self._step(step, node, storages, renamed) for step in steps}
        return Recorded(results, [*bound.values()])

    def _step(
        self,
        step: RecordedStep,
        node: str,
        storages: Mapping[TensorStorage, TensorStorage],
        renamed: tuple[tuple[str, str], ...],
    ) -> RecordedStep:
        """Return a step of the kind on a node's operands.

        Args:
            step: the step, on stand-ins.
            node: the node's name.
            storages: the node's storage for each stand-in.
            renamed: (name in the kind, name in the node) of generated dims, for error messages.
        """
        reword, code = step.reword, self._codes.get(step)
        if isinstance(reword, Failure):
            reword = Failure(reword.op_name, node, reword.rows, renamed, self.values)
        if code is None:  # a native step on symbols differs from plan to plan
            code = self._codes[step] = step.code if self.kind.trace is None else Code()
        return RecordedStep(
            node,
            step.library,
            code.kernel,
            self.native(step.native),
            tuple(
                [
                    storages[slot] if isinstance(slot, TensorStorage) else self.number(slot)
                    for slot in step.slots
                ]
            ),
            None,
            {
                storages[output]: [storages[x] for x in over]
                for output, over in step.replaces.items()
            },
            reword,
            code,
        )


class Symbolic:
    """A call whose symbolic sizes are replaced by the symbols of a new trace.

    Args:
        key: the call's key.
        node, operands: the call, whose inputs have storages.
        values: the present value of each of the key's symbols.
        outer: the trace of native calls that depend on no symbol.
        now: True puts the present values in place of symbolic sizes; there are then no new symbols.

    Attributes:
        trace: the new trace.
        node, operands: the call after the replacement, with stand-ins for storages.
    """

    def __init__(
        self,
        key: Key,
        node: LoweredNode,
        operands: Sequence[RecordedOperand],
        values: Sequence[int],
        outer: NativeTrace,
        now: bool = False,
    ) -> None:
        self.trace = NativeTrace(outer)
        self._symbols: dict[int, int] = {}
        for size, value in zip(key.symbols, values, strict=True):
            self._symbols[size.place] = value if now else self.trace.size(value)
        self.node = self._on_symbols(node)
        self.operands = [self._operand(operand) for operand in operands]

    def _symbol(self, size: SymbolicSize) -> Any:
        return self._symbols[size.place]

    def _on_symbols(self, node: LoweredNode) -> LoweredNode:
        if not isinstance(node, OpNode):
            return node
        followers = [
            replace(follower, op=substituted(follower.op, self._symbol))
            for follower in node.followers
        ]
        return replace(node, op=substituted(node.op, self._symbol), followers=tuple(followers))

    def _operand(self, operand: RecordedOperand) -> RecordedOperand:
        value, storage = operand.value, operand.storage
        dims = substituted(dict(value.dims), self._symbol)
        value = Value(value.name, value.dtype, dims, value.layout, value.constant)
        if storage is not None:
            storage = TensorStorage.stand_in(storage)
            storage.extents, storage.nbytes = dict(dims), operand.layout.nbytes(dims, storage.dtype)
        return RecordedOperand(value, operand.layout, operand.known, storage)


class CallKinds:
    """The call kinds of a session, and its outer trace. The outer trace has the native calls that
    depend on no symbol.
    """

    def __init__(self) -> None:
        self._kinds: dict[Key, list[CallKind | None]] = {}
        self._outer = NativeTrace()

    def outer(self) -> NativeTrace:
        """Return the outer trace, to which the recording of another plan adds native calls.

        If the trace is too long, a new one replaces it, and all call kinds are dropped.
        """
        with _kinds_lock:
            before = self._kinds
            if len(self._outer.values) > MAX_OUTER_VALUES:
                self._kinds, self._outer = {}, NativeTrace()
            outer = self._outer
        del before  # freed after the lock is released
        return outer

    def of(self, key: Key) -> Sequence[CallKind | None]:
        """Return the call kinds of a key. A key with symbols may have several, whose guards hold
        for different sizes.

        If None is in the list, calls with this key have no kind, and each is recorded by itself.
        """
        with _kinds_lock:
            return tuple(self._kinds.get(key, ()))

    def add(self, key: Key, kind: CallKind | None) -> None:
        """Add a kind of the calls with a key; None says that each is recorded by itself."""
        with _kinds_lock:
            self._kinds.setdefault(key, []).append(kind)
