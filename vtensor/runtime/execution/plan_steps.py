"""The nodes of a plan as ``plan.steps`` shows them."""

from __future__ import annotations

from collections.abc import Sequence

from libdesc.preferences import Preferences
from libdesc.routine import reference_kernel
from resolver.lowered import LoweredGraph, LoweredNode, OpNode, TransformNode
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass
from vtensor.runtime.execution.steps import RecordedStep


@dataclass(frozen=True)
class PlanStep:
    """A node of the lowered graph as a plan shows it.

    Attributes:
        node: the node.
        kernels: the library's names of the kernels that run. Empty if none runs: the output has no
            elements, or the output is a view of the input, or the input is a view of the output.
        library: the library that runs the node.
        unlisted: True if the operator's definition in NumPy runs the node because none of the
            session's libraries does.
    """

    node: LoweredNode
    kernels: tuple[str, ...]
    library: str
    unlisted: bool = False

    @property
    def is_transform(self) -> bool:
        """True if the node is a Transform."""
        return isinstance(self.node, TransformNode)

    @property
    def op(self) -> str:
        """The operator's name, ``Transform`` for a Transform."""
        return self.node.op_name if isinstance(self.node, OpNode) else "Transform"

    @property
    def ns(self) -> int | None:
        """The node's measured time in nanoseconds; None if it was not measured."""
        variant = self.node.variant if isinstance(self.node, OpNode) else None
        return variant.ns if variant is not None and variant.basis == "measured" else None

    @property
    def tuned(self) -> bool:
        """True if the kernel was chosen by measurements instead of by the library."""
        return isinstance(self.node, OpNode) and bool(self.node.variant.kernel)

    @property
    def error(self) -> float | None:
        """The measured error of the node's approximate variant; None if the variant is strict."""
        variant = self.node.variant if isinstance(self.node, OpNode) else None
        return variant.error if variant is not None and variant.inexact else None

    @property
    def is_reference(self) -> bool:
        """True if one of ``kernels`` is the library's slow reference code."""
        return any(map(reference_kernel, self.kernels))

    @property
    def python(self) -> bool:
        """True if the node calls back into Python."""
        return "python" in self.kernels


def steps_of(
    graph: LoweredGraph, recorded: Sequence[RecordedStep], preferences: Preferences
) -> list[PlanStep]:
    """Return the nodes that each run executes, in order. Transforms of constants run once and are
    left out.

    Args:
        graph: the checked and optimised graph.
        recorded: the steps of the graph.
        preferences: the libraries that could run each node.
    """
    kernels: dict[str, list[str]] = {}
    for step in recorded:
        kernels.setdefault(step.node, []).append(step.kernel)
    ahead = {node.name for node in graph.ahead()}
    return [
        _step(preferences, node, tuple(kernels.get(node.name, ())))
        for node in graph.nodes
        if node.name not in ahead
    ]


def _step(preferences: Preferences, node: LoweredNode, kernels: tuple[str, ...]) -> PlanStep:
    op = info_of(node.op).name if isinstance(node, OpNode) else ""
    library = node.variant.library if isinstance(node, OpNode) else node.library
    unlisted = bool(kernels) and preferences.unlisted(node.name, op, library)
    return PlanStep(node, kernels, library, unlisted)
