"""The context of an operator: it converts and allocates tensors, and records calls of libraries.

The calls are made when the network runs: a network is planned once and replayed without Python.
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
#: The arguments of a step: memory, and the sizes in bytes of scratch memory.
Slots = Sequence[TensorStorage | int]

#: The kind of the steps that change a layout; the kind of others is their operator's name.
CONVERSION = "conversion"


class Unsupported(Exception):  # not named an error: the next library is tried
    """A library does not support an operator with its parameters; the message has the reason."""


@dataclass(frozen=True)
class Recorded:
    """A step of the network, and its kind.

    Attributes:
        kind: the operator's name, or CONVERSION.
        step: the step.
        nbytes: the bytes that a conversion reads and writes; 0 for other steps.
    """

    kind: str
    step: RecordedStep
    nbytes: int = 0


class Context:
    """A recorder of the calls of operators, one operator after another.

    Attributes:
        steps: the steps so far, in order.
        loads: conversions of constants while a network is loaded: source and target of each.
        converting: the seconds spent on comparing layouts and inserting conversions.
        kind, node, library: the name of the current operator, of its node, and of the library that
            it calls.
    """

    def __init__(self) -> None:
        self.steps: list[Recorded] = []
        self.loads: list[tuple[Tensor, Tensor]] = []
        self.converting = 0.0
        self.kind = self.node = self.library = ""
        self._loaded: dict[tuple[TensorStorage, Desc], Tensor] = {}

    def received(self, x: Tensor) -> Tensor:
        """Return an input of the current operator; channels last if another library made it."""
        if x.library in ("", self.library):
            return x
        return self.convert(x, channels_last(x.dims))

    def convert(self, x: Tensor, desc: Desc) -> Tensor:
        """Return a tensor in a layout: the same memory if it has the layout, else a conversion.

        Constants are converted once, while the network is loaded.

        Args:
            x: the tensor.
            desc: the sizes and the layout.
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
        """Return a new tensor of the current library for an output, with these sizes and layout."""
        return Tensor(desc, memory_of(desc.nbytes), self.library)

    def call_onednn(
        self, primitive: Primitive, tensors: Mapping[str, Tensor], over: Iterable[str] = ()
    ) -> None:
        """Record a call of oneDNN.

        Args:
            primitive: the kernel.
            tensors: the tensors, by the names of the kernel's arguments.
            over: names of inputs over whose memory ``dst`` may be written.
        """
        slots = slots_of(primitive, tensors)
        self._call(primitive, slots, tensors["dst"], [tensors[name] for name in over])

    def call_eigen(self, kernel: Kernel, *tensors: Tensor, over: Iterable[Tensor] = ()) -> None:
        """Record a call of Eigen.

        Args:
            kernel: the kernel.
            tensors: the inputs, then the output.
            over: inputs over whose memory the output may be written.
        """
        scratch = [kernel.scratch_bytes] if kernel.scratch_bytes else []
        self._call(kernel, [*(tensor.memory for tensor in tensors), *scratch], tensors[-1], over)

    def call_python(self, compute: Callable[..., Any], dims: Sizes, *inputs: Tensor) -> Tensor:
        """Record a call of a function of NumPy arrays, and return its output.

        The inputs are converted to the plain layout, and the output has it.

        Args:
            compute: maps the inputs' arrays to the output's.
            dims: the sizes of the output.
            inputs: the inputs.
        """
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
    """Return the arguments of a primitive; one that ``tensors`` lacks is scratch memory."""
    scratch = primitive.scratch_bytes
    return [tensors[name].memory if name in tensors else scratch for name in primitive.slots]
