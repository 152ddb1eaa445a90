"""Estimated times of nodes and Transforms, from rates that libraries reach or declare.

A call takes the longer of its arithmetic and its memory traffic (a roofline), plus a constant. This
distinguishes reference code from a real kernel and a Transform from none, but not two good kernels
of one library.

Source: Williams, Waterman and Patterson, "Roofline", Comm. ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod

from libdesc.library import RegisteredLibrary
from libdesc.preferences import DEFINITION, EVERY, Preferences
from libdesc.registry import ready
from libdesc.schema import Description, Rates, Speed
from libdesc.transforms import LayoutChange
from optimizer.choice.problem import Clock
from ptensor.evaluation import Basis
from resolver.lowered import OpNode
from vtensor.language.cached import cached_property
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor

#: The factor by which a library's reference code is taken to be slower than its other kernels.
REFERENCE = 30

#: Returns the rates that libraries reach on this machine, by name of library, for measured ones.
Speeds = Callable[[], Mapping[str, Rates]]


@dataclass(frozen=True)
class Estimate(Clock):
    """A clock that estimates times and runs nothing.

    Attributes:
        preferences: the libraries that may run Transforms.
        speeds: returns the measured rates, called once, at the first estimate; None uses the
            declared rates.
    """

    preferences: Preferences = EVERY
    speeds: Speeds | None = None

    @property
    def basis(self) -> Basis:
        """``calibrated`` if the rates of a library were measured, else ``declared``."""
        return "calibrated" if self._reached else "declared"

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int:
        """Return the estimated nanoseconds of a node in its variant."""
        names = (*node.inputs, *node.outputs)
        layouts = dict(zip(names, node.variant.layouts, strict=True))
        nbytes = sum(
            layout.nbytes(values[name].dims, values[name].dtype) for name, layout in layouts.items()
        )
        library, operations = node.variant.library, sum(operations_of(node, values))
        dtype = "f32" if info_of(node.op).light else input_type(node, values)
        ns = self._speed(library, dtype).ns(self.rates[library], operations, nbytes)
        return ns * REFERENCE if node.variant.reference else ns

    def call(
        self, library: str, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]
    ) -> int:
        """Return the estimated nanoseconds of a call on a library, whatever the layouts are."""
        operations = info_of(op).operations(op, inputs, outputs)
        nbytes = sum(value.num_elements * ITEMSIZE[value.dtype] for value in (*inputs, *outputs))
        return self._speed(library, inputs[0].dtype).ns(self.rates[library], operations, nbytes)

    def conversion(self, elements: int, *types: str) -> int:
        """Return the estimated nanoseconds of a conversion of a value between two types."""
        return self._transformer.ns(0, elements * sum(ITEMSIZE[dtype] for dtype in types))

    def transform(self, value: VTensor, change: LayoutChange) -> int:
        """Return the estimated nanoseconds of a Transform on the first library that transforms in
        native code.
        """
        ends = (change.source, change.target)
        nbytes = sum(layout.nbytes(value.dims, value.dtype) for layout in ends)
        return self._transformer.ns(0, nbytes)

    def _speed(self, library: str, dtype: str) -> Speed:
        return self._speeds.get(library, {}).get(dtype, Speed())

    @cached_property
    def _speeds(self) -> dict[str, Mapping[str, Speed]]:
        return {name: library.speeds() for name, library in ready().libraries.items()}

    @cached_property
    def rates(self) -> dict[str, Rates]:
        """The rates of each registered library, by name."""
        return calibrated([library.description for library in _by_priority()], self._reached)

    @cached_property
    def _reached(self) -> Mapping[str, Rates]:
        return self.speeds() if self.speeds is not None else {}

    @cached_property
    def _transformer(self) -> Rates:
        able = (
            self.rates[library.name]
            for library in _by_priority()
            if library.transforms
            and not (library.absent or library.description.python)
            and self.preferences.allows(library.name)
        )
        return next(able, self.rates[DEFINITION])


def _by_priority() -> list[RegisteredLibrary]:
    return sorted(ready().libraries.values(), key=lambda library: -library.priority)


def calibrated(libraries: Iterable[Description], reached: Mapping[str, Rates]) -> dict[str, Rates]:
    """Return the rates of each library by name: those it reached; else those it declares, scaled.

    The scale is the geometric mean of reached over declared rates of the measured libraries: the
    effect of this machine's instruction set and memory. The rates of libraries in Python are not
    scaled.

    Args:
        libraries: descriptions, with declared rates.
        reached: the rates of measured libraries by name.

    >>> fast, other = (Description(name, 0, ("cpu",), rates=Rates(100, 10, 1)) for name in "ab")
    >>> calibrated([fast, other], {"a": Rates(50, 20, 1)})["b"]
    Rates(gflops=50.0, gbytes=20.0, call_us=1)
    """
    libraries = list(libraries)
    pairs = [(reached[lib.name], lib.rates) for lib in libraries if lib.name in reached]
    if not pairs:
        return {library.name: library.rates for library in libraries}
    arithmetic = prod(measured.gflops / declared.gflops for measured, declared in pairs) ** (
        1 / len(pairs)
    )
    memory = prod(measured.gbytes / declared.gbytes for measured, declared in pairs) ** (
        1 / len(pairs)
    )
    return {
        library.name: reached.get(library.name)
        or (library.rates if library.python else library.rates.scaled(arithmetic, memory))
        for library in libraries
    }


def input_type(node: OpNode, values: Mapping[str, VTensor]) -> str:
    """Return the element type in which a node's first input is stored."""
    return node.variant.layouts[0].stored(values[node.inputs[0]].dtype).dtype


def operations_of(node: OpNode, values: Mapping[str, VTensor]) -> Iterator[int]:
    """Yield the number of operations of each operator of a node, its followers included."""
    outputs = [values[name] for name in node.outputs]
    inputs, followers = node.split([values[name] for name in node.inputs])
    yield info_of(node.op).operations(node.op, inputs, outputs)
    for follower in followers:
        operands = [outputs[0], *follower.operands]
        yield info_of(follower.op).operations(follower.op, operands, outputs[:1])
