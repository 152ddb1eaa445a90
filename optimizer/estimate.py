"""What nodes and Transforms would take, from what libraries reach on this machine or declare.

Each call is a roofline: its arithmetic or its memory, whichever takes longer, and the call itself.
That tells a reference kernel from a real one and a Transform from none; it does not tell two good
kernels of one library apart.

Source: Williams, Waterman and Patterson, "Roofline", Comm. ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod

from libdesc.library import RegisteredLibrary
from libdesc.preferences import DEFINITION, EVERY, Preferences
from libdesc.registry import ready
from libdesc.schema import Description, Rates
from libdesc.transforms import LayoutChange
from optimizer.problem import Clock
from ptensor.evaluation import Basis
from resolver.lowered import OpNode
from vtensor.language.cached import cached_property
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor

#: How much slower than its other kernels a library's reference code is taken to be.
REFERENCE = 30


#: What libraries reach on this machine, by name; a library that cannot show it is not among them.
Speeds = Callable[[], Mapping[str, Rates]]


@dataclass(frozen=True)
class Estimate(Clock):
    """A clock that times no node.

    Attributes:
        preferences: which libraries may run Transforms.
        speeds: asked once, at the first estimate; None where what libraries declare is to do.
    """

    preferences: Preferences = EVERY
    speeds: Speeds | None = None

    @property
    def basis(self) -> Basis:
        """Calibrated where a library showed what it reaches."""
        return "calibrated" if self._reached else "declared"

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int:
        """Nanoseconds of a node in its variant."""
        names = (*node.inputs, *node.outputs)
        layouts = dict(zip(names, node.variant.layouts, strict=True))
        nbytes = sum(
            layout.nbytes(values[name].dims, values[name].dtype) for name, layout in layouts.items()
        )
        ns = self.rates[node.variant.library].ns(sum(_operations(node, values)), nbytes)
        return ns * REFERENCE if node.variant.reference else ns

    def transform(self, value: VTensor, change: LayoutChange) -> int:
        """Nanoseconds of a Transform on the first library that has a native one."""
        ends = (change.source, change.target)
        nbytes = sum(layout.nbytes(value.dims, value.dtype) for layout in ends)
        return self._transformer.ns(0, nbytes)

    @cached_property
    def rates(self) -> dict[str, Rates]:
        """The speed of each library that is registered."""
        return calibrated([one.description for one in _known()], self._reached)

    @cached_property
    def _reached(self) -> Mapping[str, Rates]:
        return self.speeds() if self.speeds is not None else {}

    @cached_property
    def _transformer(self) -> Rates:
        able = (
            self.rates[one.name]
            for one in _known()
            if one.transforms
            and not (one.absent or one.description.python)
            and self.preferences.allows(one.name)
        )
        return next(able, self.rates[DEFINITION])


def _known() -> list[RegisteredLibrary]:
    return sorted(ready().libraries.values(), key=lambda one: -one.priority)


def calibrated(libraries: Iterable[Description], reached: Mapping[str, Rates]) -> dict[str, Rates]:
    """The speed of each library: what it reached; else what it declares, scaled to this machine.

    The scale is how far those that reached something are from what they declare (the geometric
    mean), which is what the machine's instruction set and memory make of declarations. It is not
    for libraries in Python.

    >>> fast, other = (Description(name, 0, ("cpu",), rates=Rates(100, 10, 1)) for name in "ab")
    >>> calibrated([fast, other], {"a": Rates(50, 20, 1)})["b"]
    Rates(gflops=50.0, gbytes=20.0, call_us=1)
    """
    libraries = list(libraries)
    pairs = [(reached[one.name], one.rates) for one in libraries if one.name in reached]
    if not pairs:
        return {one.name: one.rates for one in libraries}
    arithmetic = prod(here.gflops / said.gflops for here, said in pairs) ** (1 / len(pairs))
    memory = prod(here.gbytes / said.gbytes for here, said in pairs) ** (1 / len(pairs))
    return {
        one.name: reached.get(one.name)
        or (one.rates if one.python else one.rates.scaled(arithmetic, memory))
        for one in libraries
    }


def _operations(node: OpNode, values: Mapping[str, VTensor]) -> Iterator[int]:
    """Of each operator that a node applies."""
    outputs = [values[name] for name in node.outputs]
    own, followers = node.split([values[name] for name in node.inputs])
    yield info_of(node.op).operations(node.op, own, outputs)
    for one in followers:
        yield info_of(one.op).operations(one.op, [outputs[0], *one.operands], outputs[:1])
