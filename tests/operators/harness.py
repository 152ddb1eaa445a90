"""One operator on one library, without a resolver: decide, lay out, run, look.

Outputs and scratch memory are full of NaN before the library sees them, pads included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

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
from vtensor.language.dtype import from_numpy
from vtensor.language.operators import Follower, info_of, run_compute
from vtensor.language.tensor import VTensor
from vtensor.runtime import _replay
from vtensor.runtime.execution.evaluations import step_error

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Given:
    """An input: values under dim names, where it lies, and whether it is known before the run."""

    array: Array
    dims: tuple[str, ...]
    layout: Layout
    constant: bool = False

    @property
    def extents(self) -> dict[str, int]:
        """Sizes by name."""
        return dict(zip(self.dims, self.array.shape, strict=True))


@dataclass
class Outcome:
    """What came of a run: values by output, how they lie, what was decided, which kernels ran."""

    variant: Variant
    values: list[Array]
    dims: list[tuple[str, ...]]
    physical: list[TensorStorage]
    kernels: list[str]


class Deciding(Evaluation):
    """Partial evaluation: whatever would touch memory is a fault."""

    mode = Mode.PARTIAL
    tolerance = 1.0  # each library shows all that it has

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Not in partial evaluation."""
        raise AssertionError(f"{call.node} emits a step while it is only decided")

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:
        """Not in partial evaluation."""
        raise AssertionError(f"{call.node} shares memory while it is only decided")

    def callback(self, call: Call, run: Callable[[], None]) -> None:
        """Not in partial evaluation."""
        raise AssertionError(f"{call.node} calls back while it is only decided")


@dataclass
class Running(Evaluation):
    """Execution of each step as it comes, on poisoned scratch memory."""

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
        """The same bytes."""
        storage_of(target).share(storage_of(source))

    def callback(self, call: Call, run: Callable[[], None]) -> None:
        """In place."""
        run()


@dataclass
class RunContext(DispatchContext):
    """Outputs get memory in their decided layouts before the invoker runs."""

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Allocate, poison, dispatch."""
        assert self.variant is not None
        layouts = self.variant.layouts[-len(outputs) :]
        for value, layout in zip(outputs, layouts, strict=True):
            buffer = poisoned(layout.nbytes(value.dims, value.dtype))
            value.storage = TensorStorage(value.dtype, value.dims, layout, buffer)
        dispatcher(info_of(op).name, self.device)(self, op, inputs, outputs)


def poisoned(nbytes: int) -> Buffer:
    """Memory whose every element is NaN in f32, bf16, f16 and f64."""
    buffer = Buffer.allocate(nbytes)
    buffer.memory[...] = 0xFF
    return buffer


def storage_of(tensor: VTensor) -> TensorStorage:
    """The memory of an operand."""
    assert isinstance(tensor.storage, TensorStorage)
    return tensor.storage


#: Operators behind another, and how many of the last inputs are each one's.
Behind = Sequence[tuple[object, int]]


def behind_of(
    tensors: Sequence[VTensor], behind: Behind
) -> tuple[Sequence[VTensor], tuple[Follower, ...]]:
    """An operator's own operands, and what is fused behind it."""
    own = len(tensors) - sum(count for _, count in behind)
    rest = iter(tensors[own:])
    return tensors[:own], tuple(Follower(op, tuple(islice(rest, n))) for op, n in behind)


def decide(library: str, op: object, inputs: Sequence[Given], behind: Behind = ()) -> Variant:
    """What a library wants for a call, and for what is fused behind it.

    Raises:
        NoInvokerError: it does not take the call; says why.
    """
    own, followers = behind_of([_operand(given) for given in inputs], behind)
    preferences = Preferences(nodes={"case": library})
    ctx = DispatchContext(node="case", preferences=preferences, followers=followers)
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
    """What asks a library again, and the node on it."""
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


def variants(library: str, op: object, inputs: Sequence[Given]) -> list[Variant]:
    """What a library has beside what it decides by itself."""
    asking, node = prober(library, op, inputs)
    return asking.variants(node)


def run(
    library: str,
    op: object,
    inputs: Sequence[Given],
    behind: Behind = (),
    variant: Variant | None = None,
) -> Outcome:
    """Run a call in a variant, or as the library decides, on inputs in the layouts that are due."""
    variant = variant or decide(library, op, inputs, behind)
    tensors = []
    for given, layout in zip(inputs, variant.layouts, strict=False):
        tensor = VTensor(from_numpy(given.array.dtype), given.extents)
        tensor.storage = TensorStorage.of_array(given.array, tensor, layout, given.constant)
        tensors.append(tensor)
    evaluation = Running()
    own, followers = behind_of(tensors, behind)
    ctx = RunContext(node="case", variant=variant, followers=followers)
    with installed(evaluation):
        outputs = run_compute(ctx, op, own)
    storages = [storage_of(output) for output in outputs]
    values = [
        unpack(s.data(), s.layout, list(output.dims), output.dims)
        for s, output in zip(storages, outputs, strict=True)
    ]
    dims = [tuple(output.dims) for output in outputs]
    return Outcome(variant, values, dims, storages, evaluation.kernels)


def definition(op: object, inputs: Sequence[Given]) -> list[Array]:
    """What NumPy says in f64, from declared order."""
    wide = [
        Given(_widest(given.array), given.dims, Layout.plain(given.dims), given.constant)
        for given in inputs
    ]
    return run("numpy", _settled(op, inputs), wide).values


def _settled(op: object, inputs: Sequence[Given]) -> object:
    """An operator that rounds as its scale's element type does, unless told, told so: in f64 it
    would round otherwise, and where it rounds decides between two steps.
    """
    if getattr(op, "precision", None) != "" or inputs[1].array.dtype.kind in "iu":
        return op
    return replace(cast(Any, op), precision=from_numpy(inputs[1].array.dtype))


def _widest(array: Array) -> Array:
    """Fractions in f64; integers and truth values as they are."""
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def check_pads(storage: TensorStorage) -> None:
    """The padding contract: lanes past the true extents are exactly zero."""
    assert pads_are_zero(storage.data(), storage.layout, storage.extents), (
        f"pads of {storage.layout} are not zero"
    )


def check_outcome(
    found: Outcome, expected: Sequence[Array], bound: float, scale: float = 0.0
) -> None:
    """Every output close to the definition's, and its pads zero; ``scale`` as for check_close."""
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
