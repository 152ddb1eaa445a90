"""What nodes and Transforms would take by what their libraries declare; nothing is measured.

Each call is a roofline: its arithmetic or its memory, whichever takes longer, and the call itself.
That tells a reference kernel from a real one and a Transform from none; it does not tell two good
kernels of one library apart.

Source: Williams, Waterman and Patterson, "Roofline", Comm. ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from libdesc.preferences import DEFINITION, EVERY, Preferences
from libdesc.registry import registry
from libdesc.schema import Rates
from libdesc.transforms import LayoutChange
from resolver.lowered import OpNode
from vtensor.language.operators import info_of
from vtensor.language.tensor import VTensor

#: How much slower than its other kernels a library's reference code is taken to be.
REFERENCE = 30


@dataclass(frozen=True)
class Estimate:
    """A clock that asks nobody.

    Attributes:
        preferences: which libraries may run Transforms.
    """

    preferences: Preferences = EVERY
    measured = False

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int:
        """Nanoseconds of a node in its variant."""
        names = (*node.inputs, *node.outputs)
        layouts = dict(zip(names, node.variant.layouts, strict=True))
        nbytes = sum(
            layout.nbytes(values[name].dims, values[name].dtype) for name, layout in layouts.items()
        )
        ns = rates_of(node.variant.library).ns(sum(_operations(node, values)), nbytes)
        return ns * REFERENCE if node.variant.reference else ns

    def transform(self, value: VTensor, change: LayoutChange) -> int:
        """Nanoseconds of a Transform on the first library that has a native one."""
        ends = (change.source, change.target)
        nbytes = sum(layout.nbytes(value.dims, value.dtype) for layout in ends)
        return self._transformer.ns(0, nbytes)

    @cached_property
    def _transformer(self) -> Rates:
        known = sorted(registry().libraries.values(), key=lambda one: -one.priority)
        able = (
            one.rates
            for one in known
            if one.transforms
            and not (one.absent or one.description.python)
            and self.preferences.allows(one.name)
        )
        return next(able, rates_of(DEFINITION))


def rates_of(library: str) -> Rates:
    """What a library declares."""
    return registry().libraries[library].rates


def _operations(node: OpNode, values: Mapping[str, VTensor]) -> Iterator[int]:
    """Of each operator that a node applies."""
    outputs = [values[name] for name in node.outputs]
    own, followers = node.split([values[name] for name in node.inputs])
    yield info_of(node.op).operations(node.op, own, outputs)
    for one in followers:
        yield info_of(one.op).operations(one.op, [outputs[0], *one.operands], outputs)
