"""What an operator is given to work with: it converts, allocates, and calls its library.

The calls are recorded, not made: a network is planned once and replayed without Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from eval.layout_aware.tensor import Sizes, Tensor, channels_last, lies_as, memory_of, plain
from libdesc.onednn.native import dnnl
from vtensor.runtime.record import RecordedStep

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive
    from ptensor.buffer import TensorStorage

Array = np.ndarray[Any, Any]

#: The kind of the steps that change a layout, where others have their operator's name.
CONVERSION = "conversion"


class Unsupported(Exception):  # it is no error: the next library is asked
    """A library does not do what an operator was asked for; says why."""


class Kernel(Protocol):
    """A native call, as either library makes it."""

    @property
    def kernel(self) -> str:
        """Its name."""

    @property
    def scratch_bytes(self) -> int:
        """The size of its last slot, if that is scratch memory."""

    def __vtensor_step__(self) -> object:
        """The step."""


@dataclass(frozen=True)
class Recorded:
    """A step of the network, and what it is for.

    Attributes:
        kind: the operator's name, or CONVERSION.
        node: whose step it is.
        step: what runs.
        nbytes: what a conversion reads and writes.
    """

    kind: str
    node: str
    step: RecordedStep
    nbytes: int = 0


class Context:
    """Records what operators do, one operator after another.

    Attributes:
        steps: so far, in order.
        loads: pairs of constants: as it lies, and as an operator wants it from the start.
        converting: seconds that went into comparing layouts and inserting conversions.
    """

    def __init__(self) -> None:
        self.steps: list[Recorded] = []
        self.loads: list[tuple[Tensor, Tensor]] = []
        self.converting = 0.0
        self.kind = self.node = self.library = ""
        self._loaded: dict[tuple[object, Desc], Tensor] = {}

    def received(self, x: Tensor) -> Tensor:
        """An input: from another library it comes with channels last, whatever it was before."""
        if x.constant or x.library in ("", self.library):
            return x
        return self.convert(x, channels_last(x.dims))

    def convert(self, x: Tensor, desc: Desc) -> Tensor:
        """The tensor in a layout: itself, or a conversion of it; of a constant, at load."""
        begin = perf_counter()
        try:
            if lies_as(x.desc, desc):
                return replace(x, desc=desc)
            return self._loaded_as(x, desc) if x.constant else self._converted(x, desc)
        finally:
            self.converting += perf_counter() - begin

    def _converted(self, x: Tensor, desc: Desc) -> Tensor:
        y = Tensor(desc, memory_of(desc.nbytes), x.library)
        primitive = dnnl.reorder(x.desc, desc)
        step = _step(self.node, "onednn", primitive, onednn_slots(primitive, {"src": x, "dst": y}))
        self.steps.append(Recorded(CONVERSION, self.node, step, x.desc.nbytes + desc.nbytes))
        return y

    def _loaded_as(self, x: Tensor, desc: Desc) -> Tensor:
        key = (x.memory, desc)
        if key not in self._loaded:
            self._loaded[key] = Tensor(desc, memory_of(desc.nbytes), constant=True)
            self.loads.append((x, self._loaded[key]))
        return self._loaded[key]

    def allocate(self, desc: Desc) -> Tensor:
        """An output in a layout."""
        return Tensor(desc, memory_of(desc.nbytes), self.library)

    def primitive(self, primitive: Primitive, over: str = "", **tensors: Tensor) -> None:
        """Call oneDNN on tensors by argument; the output may be written over one of them."""
        source = tensors.get(over)
        self._call(primitive, onednn_slots(primitive, tensors), tensors["dst"], source)

    def kernel(self, kernel: Kernel, *tensors: Tensor, over: Sequence[Tensor] = ()) -> None:
        """Call Eigen on inputs and output, which may be written over one of these."""
        scratch = [kernel.scratch_bytes] if getattr(kernel, "scratch_bytes", 0) else []
        self._call(kernel, [*(one.memory for one in tensors), *scratch], tensors[-1], *over)

    def _call(
        self,
        kernel: Kernel,
        slots: Sequence[TensorStorage | int],
        dst: Tensor,
        *over: Tensor | None,
    ) -> None:
        replaced = [one.memory for one in over if one and lies_as(one.desc, dst.desc)]
        step = _step(self.node, self.library, kernel, slots)
        step = replace(step, replaces={dst.memory: replaced} if replaced else {})
        self.steps.append(Recorded(self.kind, self.node, step))

    def python(self, compute: Callable[..., Array], dims: Sizes, *inputs: Tensor) -> Tensor:
        """Compute with NumPy, in the order of the axes: inputs are converted to it."""
        rows = [self.convert(x, plain(x.dims)) for x in inputs]
        dst = self.allocate(plain(dims))

        def run() -> None:
            _array(dst)[...] = compute(*map(_array, rows))

        slots = tuple(one.memory for one in (*rows, dst))
        step = RecordedStep(self.node, self.library, "python", None, slots, run)
        self.steps.append(Recorded(self.kind, self.node, step))
        return dst


def onednn_slots(primitive: Primitive, tensors: Mapping[str, Tensor]) -> list[TensorStorage | int]:
    """What a primitive is called with; what has no name here is scratch memory."""
    scratch = primitive.scratch_bytes
    return [tensors[name].memory if name in tensors else scratch for name in primitive.slots]


def _step(
    node: str, library: str, kernel: Kernel, slots: Sequence[TensorStorage | int]
) -> RecordedStep:
    return RecordedStep(node, library, kernel.kernel, kernel, tuple(slots))


def _array(x: Tensor) -> Array:
    """The elements of a tensor that lies in the order of its axes."""
    flat = x.memory.buffer.memory[: x.desc.nbytes].view(np.float32)
    return flat.reshape(x.dims)
