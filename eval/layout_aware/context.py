"""The context of an operator: it converts, allocates, and calls the operator's library.

The calls are recorded, not made: a network is planned once and replayed without Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.layout_aware.tensor import Sizes, Tensor, channels_last, lies_as, memory_of, plain
from libdesc.onednn.native import dnnl
from ptensor.buffer import TensorStorage
from vtensor.runtime.execution.steps import RecordedStep

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Kernel
    from libdesc.onednn._onednn import Desc, Primitive

Array = np.ndarray[Any, Any]
#: What a step is called with: memory, and the sizes of scratch memory.
Slots = Sequence[TensorStorage | int]

#: The kind of the steps that change a layout, where others have their operator's name.
CONVERSION = "conversion"


class Unsupported(Exception):  # it is no error: the next library is asked
    """A library lacks what an operator needs; the message has the reason."""


@dataclass(frozen=True)
class Recorded:
    """A step of the network, and what it is for.

    Attributes:
        kind: the operator's name, or CONVERSION.
        step: what runs.
        nbytes: what a conversion reads and writes.
    """

    kind: str
    step: RecordedStep
    nbytes: int = 0


class Context:
    """Records what operators do, one operator after another.

    Attributes:
        steps: so far, in order.
        loads: pairs of constants: as it lies, and as an operator wants it from the start.
        converting: seconds that went into comparing layouts and inserting conversions.
        kind, node, library: the operator that records now, its node, and whose code it calls.
    """

    def __init__(self) -> None:
        self.steps: list[Recorded] = []
        self.loads: list[tuple[Tensor, Tensor]] = []
        self.converting = 0.0
        self.kind = self.node = self.library = ""
        self._loaded: dict[tuple[TensorStorage, Desc], Tensor] = {}

    def received(self, x: Tensor) -> Tensor:
        """Return an input of an operator; from another library it comes with channels last."""
        if x.library in ("", self.library):
            return x
        return self.convert(x, channels_last(x.dims))

    def convert(self, x: Tensor, desc: Desc) -> Tensor:
        """Return the tensor in a layout: itself, or a conversion of it; constants are converted at
        load.
        """
        begin = perf_counter()
        try:
            if lies_as(x.desc, desc):
                return replace(x, desc=desc)
            return self._loaded_as(x, desc) if x.constant else self._converted(x, desc)
        finally:
            self.converting += perf_counter() - begin

    def _loaded_as(self, x: Tensor, desc: Desc) -> Tensor:
        key = (x.memory, desc)
        if key not in self._loaded:
            self._loaded[key] = Tensor(desc, memory_of(desc.nbytes), constant=True)
            self.loads.append((x, self._loaded[key]))
        return self._loaded[key]

    def _converted(self, x: Tensor, desc: Desc) -> Tensor:
        y = Tensor(desc, memory_of(desc.nbytes), x.library)
        primitive = dnnl.reorder(x.desc, desc)
        step = self._step("onednn", primitive, slots_of(primitive, {"src": x, "dst": y}))
        self.steps.append(Recorded(CONVERSION, step, x.desc.nbytes + desc.nbytes))
        return y

    def allocate(self, desc: Desc) -> Tensor:
        """Return an output in a layout."""
        return Tensor(desc, memory_of(desc.nbytes), self.library)

    def call_onednn(
        self, primitive: Primitive, tensors: Mapping[str, Tensor], over: Iterable[str] = ()
    ) -> None:
        """Call oneDNN on tensors by argument; ``dst`` may be written over some of them."""
        slots = slots_of(primitive, tensors)
        self._call(primitive, slots, tensors["dst"], [tensors[name] for name in over])

    def call_eigen(self, kernel: Kernel, *tensors: Tensor, over: Iterable[Tensor] = ()) -> None:
        """Call Eigen on inputs and an output, which may be written over some of the inputs."""
        scratch = [kernel.scratch_bytes] if kernel.scratch_bytes else []
        self._call(kernel, [*(tensor.memory for tensor in tensors), *scratch], tensors[-1], over)

    def call_python(self, compute: Callable[..., Any], dims: Sizes, *inputs: Tensor) -> Tensor:
        """Compute with NumPy, in the order of the axes: inputs are converted to it."""
        sources, dst = [self.convert(x, plain(x.dims)) for x in inputs], self.allocate(plain(dims))

        def run() -> None:
            dst.array()[...] = compute(*(x.array() for x in sources))

        slots = tuple(tensor.memory for tensor in (*sources, dst))
        step = RecordedStep(self.node, self.library, "python", None, slots, run)
        self.steps.append(Recorded(self.kind, step))
        return dst

    def _call(
        self, kernel: Kernel | Primitive, slots: Slots, dst: Tensor, over: Iterable[Tensor]
    ) -> None:
        alike = [tensor.memory for tensor in over if lies_as(tensor.desc, dst.desc)]
        step = self._step(self.library, kernel, slots)
        self.steps.append(Recorded(self.kind, replace(step, replaces={dst.memory: alike})))

    def _step(self, library: str, kernel: Kernel | Primitive, slots: Slots) -> RecordedStep:
        return RecordedStep(self.node, library, kernel.kernel, kernel, tuple(slots))


def slots_of(primitive: Primitive, tensors: Mapping[str, Tensor]) -> Slots:
    """Return the arguments of a primitive; a slot without a name here is scratch memory."""
    scratch = primitive.scratch_bytes
    return [tensors[name].memory if name in tensors else scratch for name in primitive.slots]
