"""One operator on one library, without a resolver: decide, lay out, run, look.

Outputs and scratch memory are full of NaN before the library sees them, pads included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np

from libdesc.dispatcher import DispatchContext, dispatcher
from libdesc.preferences import Preferences
from ptensor.buffer import Buffer, TensorStorage
from ptensor.evaluation import Call, Evaluation, Mode, Step, Variant, installed
from ptensor.layout import Layout
from ptensor.physical import pads_are_zero
from ptensor.transform import unpack
from resolver.lowered import LoweredGraph, OpNode, Value
from resolver.probe import Prober
from vtensor.language.dtype import NARROW_INTEGERS, from_numpy
from vtensor.language.operators import Follower, info_of, result_type, run_compute
from vtensor.language.tensor import VTensor
from vtensor.runtime import _replay
from vtensor.runtime.execution.evaluations import step_error

Array = np.ndarray[Any, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Given:
    """An input: values under dim names, their layout, and whether they are known before a run."""

    array: Array
    dims: tuple[str, ...]
    layout: Layout
    constant: bool = False

    @property
    def extents(self) -> dict[str, int]:
        """Sizes by name."""
        return dict(zip(self.dims, self.array.shape, strict=True))


def plain(array: Array, dims: str, constant: bool = False) -> Given:
    """Return an input in the order of its dims, whose names stand between spaces."""
    return Given(array, tuple(dims.split()), Layout.plain(dims.split()), constant)


@dataclass
class Outcome:
    """The result of a run: values by output, their memory, the variant, the kernels that ran."""

    variant: Variant
    values: list[Array]
    dims: list[tuple[str, ...]]
    physical: list[TensorStorage]
    kernels: list[str]


class Deciding(Evaluation):
    """Partial evaluation, in which whatever would touch memory is a fault."""

    mode = Mode.PARTIAL
    tolerance = 1.0  # each library shows all that it has

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Fail: a call that is only decided emits no step."""
        self._fail(call)

    def _fail(self, call: Call, *arguments: object, **named: object) -> None:
        raise AssertionError(f"{call.node} touches memory while it is only decided")

    share = callback = _fail


@dataclass
class Running(Evaluation):
    """Execution of each step as it comes, on scratch memory full of NaN."""

    mode = Mode.NORMAL
    tolerance = 1.0
    kernels: list[str] = field(default_factory=list)

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Execute the step now."""
        self.kernels.append(str(_replay.describe(step)["kernel"]))
        arrays = [
            poisoned(slot).memory if isinstance(slot, int) else storage_of(slot).buffer.memory
            for slot in slots
        ]
        try:
            _replay.execute(step, arrays)
        except _replay.StepFailed as error:
            raise step_error(error, call.node, str) from error

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:
        """Share the bytes."""
        storage_of(target).share(storage_of(source))

    def callback(self, call: Call, run: Callable[[], None]) -> None:
        """Run it now."""
        run()


@dataclass
class RunContext(DispatchContext):
    """A context that gives outputs memory in their decided layouts before the invoker runs."""

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Allocate, poison, dispatch."""
        assert self.variant is not None
        self.retype(outputs)
        layouts = self.variant.layouts[-len(outputs) :]
        for value, layout in zip(outputs, layouts, strict=True):
            buffer = poisoned(layout.nbytes(value.dims, value.dtype))
            value.storage = TensorStorage(value.dtype, value.dims, layout, buffer)
        dispatcher(info_of(op).name, self.device)(self, op, inputs, outputs)


def poisoned(nbytes: int) -> Buffer:
    """Return memory whose every element is NaN in f32, bf16, f16 and f64."""
    buffer = Buffer.allocate(nbytes)
    buffer.memory[...] = 0xFF
    return buffer


def storage_of(tensor: VTensor) -> TensorStorage:
    """Return the memory of an operand."""
    assert isinstance(tensor.storage, TensorStorage)
    return tensor.storage


#: Operators that follow another, and how many of the last inputs each of them takes.
Behind = Sequence[tuple[object, int]]


def split_off(
    operands: Sequence[T], behind: Behind
) -> tuple[Sequence[T], list[tuple[object, tuple[T, ...]]]]:
    """Return an operator's own operands, and each follower with its operands."""
    own = len(operands) - sum(count for _, count in behind)
    rest = iter(operands[own:])
    return operands[:own], [(op, tuple(islice(rest, count))) for op, count in behind]


def typed(
    op: object, own: Sequence[VTensor], followers: Sequence[tuple[object, tuple[VTensor, ...]]]
) -> tuple[Follower, ...]:
    """Return an operator's followers, each with the element type of the value that it follows."""
    fused, takes = list[Follower](), result_type(op, [tensor.dtype for tensor in own])
    for follower, operands in followers:
        fused.append(Follower(follower, operands, takes=takes))
        takes = fused[-1].gives
    return tuple(fused)


def context(library: str, followers: tuple[Follower, ...] = ()) -> DispatchContext:
    """Return the context of a node ``case`` that goes to a library, with what is fused."""
    preferences = Preferences(nodes={"case": library})
    return DispatchContext(node="case", preferences=preferences, followers=followers)


def decide(library: str, op: object, inputs: Sequence[Given], behind: Behind = ()) -> Variant:
    """Return what a library wants for a call, and for what is fused behind it.

    Raises:
        NoInvokerError: the library does not take the call; the error says why.
    """
    own, followers = split_off([_operand(given) for given in inputs], behind)
    ctx = context(library, typed(op, own, followers))
    with installed(Deciding()):
        run_compute(ctx, op, own)
    assert ctx.variant is not None
    assert ctx.variant.library == library
    return ctx.variant


def _operand(given: Given) -> VTensor:
    tensor = VTensor(from_numpy(given.array.dtype), given.extents)
    if given.constant:
        tensor.storage = TensorStorage.of_array(given.array, tensor, given.layout, True)
    tensor.produced_layout = given.layout
    return tensor


def prober(library: str, op: object, inputs: Sequence[Given]) -> tuple[Prober, OpNode]:
    """Return a prober that asks the library again, and the node that is on the library."""
    variant = decide(library, op, inputs)
    names = tuple(f"x{place}" for place in range(len(inputs)))
    values = {name: _operand(given) for name, given in zip(names, inputs, strict=True)}
    info = info_of(op)
    outputs = ("y",) * (len(variant.layouts) - len(names))
    node = OpNode("case", op, info.name, names, outputs, (), variant)
    graph = LoweredGraph(
        "case",
        {name: replace(Value.of(tensor), name=name) for name, tensor in values.items()},
        constants={n: t.storage for n, t in values.items() if isinstance(t.storage, TensorStorage)},
    )
    return Prober(graph), node


def variants(
    library: str, op: object, inputs: Sequence[Given], inexact: bool = False
) -> list[Variant]:
    """Return the variants that a library has beside what it decides by itself; with ``inexact``,
    the approximate ones, too.
    """
    asking, node = prober(library, op, inputs)
    return asking.variants(replace(node, variant=replace(node.variant, inexact=inexact)))


def run(
    library: str,
    op: object,
    inputs: Sequence[Given],
    behind: Behind = (),
    variant: Variant | None = None,
) -> Outcome:
    """Run a call in a variant, or as the library decides, on inputs in the variant's layouts."""
    variant = variant or decide(library, op, inputs, behind)
    tensors = []
    for given, layout in zip(inputs, variant.layouts, strict=False):
        tensor = VTensor(from_numpy(given.array.dtype), given.extents)
        tensor.storage = TensorStorage.of_array(given.array, tensor, layout, given.constant)
        tensors.append(tensor)
    evaluation = Running()
    own, followers = split_off(tensors, behind)
    ctx = RunContext(node="case", variant=variant, followers=typed(op, own, followers))
    with installed(evaluation):
        outputs = run_compute(ctx, op, own)
    storages = [storage_of(output) for output in outputs]
    values = [
        unpack(s.data(), s.layout, list(output.dims), output.dims)
        for s, output in zip(storages, outputs, strict=True)
    ]
    dims = [tuple(output.dims) for output in outputs]
    return Outcome(variant, values, dims, storages, evaluation.kernels)


def definition(
    op: object, inputs: Sequence[Given], behind: Behind = (), between: str = "f8"
) -> list[Array]:
    """Return what NumPy says in f64, from declared order, of an operator and then its followers.

    Each follower takes the first result before it, rounded to the type ``between``.
    """
    own, followers = split_off(inputs, behind)
    outcome = run("numpy", _settled(op, own), [_widest(given) for given in own])
    for follower, operands in followers:
        before = plain(outcome.values[0].astype(between), " ".join(outcome.dims[0]))
        outcome = run("numpy", follower, [_widest(given) for given in (before, *operands)])
    return outcome.values


def _settled(op: object, inputs: Sequence[Given]) -> object:
    """Return a quantisation that rounds as the element type of its scale does, by its parameter.

    In f64 it would round otherwise, and where it rounds decides between two steps.
    """
    if getattr(op, "precision", None) != "" or inputs[1].array.dtype.kind in "iu":
        return op
    return replace(cast(Any, op), precision=from_numpy(inputs[1].array.dtype))


def _widest(given: Given) -> Given:
    """Return an input in declared order, fractions in f64, integers and truth values as is."""
    dtype = given.array.dtype
    whole = dtype.kind in "iub" or from_numpy(dtype) in NARROW_INTEGERS
    array = given.array if whole else given.array.astype(np.float64)
    return plain(array, " ".join(given.dims), given.constant)


def check_pads(storage: TensorStorage) -> None:
    """Check the padding contract: lanes past the true extents are exactly zero."""
    assert pads_are_zero(storage.data(), storage.layout, storage.extents), (
        f"pads of {storage.layout} are not zero"
    )


def check_outcome(
    found: Outcome, expected: Sequence[Array], bound: float, scale: float = 0.0
) -> None:
    """Check that each output is close to the definition's, as check_close, and its pads zero."""
    for value, storage, wanted in zip(found.values, found.physical, expected, strict=True):
        check_close(value, wanted, bound, scale)
        check_pads(storage)


def check_close(actual: Array, expected: Array, bound: float, scale: float = 0.0) -> None:
    """Check that each element is within ``bound`` times the largest, or ``scale`` if larger.

    A NaN must be where the expected one is, as in a mean of nothing, and nowhere else.
    """
    assert actual.shape == expected.shape
    if actual.size == 0:
        return
    expected = expected.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # what the type cannot hold is infinite
        exact = actual == expected.astype(actual.dtype)
        exact |= np.isnan(expected) & np.isnan(actual.astype(np.float64))
        error = np.where(exact, 0.0, np.abs(actual.astype(np.float64) - expected)).max()
    scale = max(float(np.abs(np.where(np.isnan(expected), 0, expected)).max()), scale, 1e-30)
    assert error <= bound * scale, f"off by {error / scale:.2e}, allowed is {bound:.0e}"
