"""What narrower element types are worth for a plan, by estimate."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from libdesc.registry import ready
from optimizer.choice.estimate import Estimate, input_type, operations_of
from resolver.lowered import LoweredGraph
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass

#: Products are taken to be worth narrowing if they are at least this share of all operations.
MIN_SHARE = 0.01


@dataclass(frozen=True)
class Narrower:
    """An element type in which this processor multiplies faster than in f32.

    Attributes:
        instructions: the name of the processor's instructions for it.
        of_time: the estimated time of a run with all products in this type, relative to the plan's.
    """

    instructions: str
    of_time: float


@dataclass(frozen=True)
class Worth:
    """What narrower types are worth for a plan.

    Attributes:
        share: the operations of products in f32, as a share of all operations of the plan.
        types: the types, by name.
    """

    share: float
    types: Mapping[str, Narrower]


def narrow_worth(graph: LoweredGraph) -> Worth | None:
    """Return what narrower types are worth for a plan, by declared rates; None if the plan has
    hardly any products in f32, or if no library multiplies faster in another type on this
    processor.

    Args:
        graph: the plan's lowered graph.
    """
    libraries = ready().libraries
    known = dict(chain.from_iterable(lib.faster().items() for lib in libraries.values()))
    if not known:
        return None
    estimate, values, bare = Estimate(graph.preferences), graph.bare.tensors, graph.bare
    all_operations = products = all_ns = 0
    saved_ns = dict.fromkeys(known, 0)
    for node in bare.operators:
        count, ns = sum(operations_of(node, values)), estimate.node(node, values)
        all_operations, all_ns = all_operations + count, all_ns + ns
        if not info_of(node.op).product or input_type(node, values) != "f32":
            continue
        products, library = products + count, node.variant.library
        rates, speeds = estimate.rates[library], libraries[library].faster()
        names = zip((*node.inputs, *node.outputs), node.variant.layouts, strict=True)
        nbytes = sum(layout.nbytes(values[n].dims, values[n].dtype) for n, layout in names)
        for dtype in known:
            speed, part = speeds.get(dtype, known[dtype]), ITEMSIZE[dtype] / ITEMSIZE["f32"]
            saved_ns[dtype] += max(0, ns - speed.ns(rates, count, round(nbytes * part)))
    if not (all_ns and all_operations) or products < MIN_SHARE * all_operations:
        return None
    types = {
        dtype: Narrower(instructions, 1 - saved_ns[dtype] / all_ns)
        for dtype, (instructions, *_) in known.items()
    }
    return Worth(products / all_operations, types)
