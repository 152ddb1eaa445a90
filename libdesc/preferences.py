"""A session's preferences: which libraries may be used, and in what order. A *pin* names the only
library that may take a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from vtensor.errors import InputError
from vtensor.language.records import dataclass
from vtensor.language.tensor import CPU

if TYPE_CHECKING:
    from vtensor.language.graph import Graph

#: The library that defines every operator; it takes the calls that no listed library takes.
DEFINITION = "numpy"


@dataclass(frozen=True)
class Preferences:
    """Which library may take which node.

    Attributes:
        order: the libraries that may be used, in the order of trial; None: all, by priority.
        barred: libraries that are not used, even if ``order`` names them.
        operators: pins by operator: for an operator's name, the only library that may take the
            operator's nodes.
        nodes: pins by node: for a node's name, the only library that may take the node, even if
            ``operators`` has another one.
        wide: True if nodes in f16 are computed in f32, also where a library has a kernel in f16.
        partial: True if ``nodes`` may name nodes of other segments of the model.
    """

    order: tuple[str, ...] | None = None
    barred: tuple[str, ...] = ()
    operators: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    wide: bool = False
    partial: bool = False

    def check_nodes(self, graph: Graph) -> None:
        """Check that each pinned node is in the graph, and that its library has an invoker of its
        operator.

        If ``partial``, a node may be missing in the graph.

        Raises:
            InputError: a node is not in the graph (the message lists the graph's operators and
                nodes), or its library has no invoker.
        """
        from vtensor.language.operators import info_of

        operators = {name: info_of(node.op).name for name, node in graph.nodes.items()}
        for name, library in self.nodes.items():
            if name not in operators:
                if self.partial:
                    continue
                raise InputError(
                    f"pin {name!r}: neither an operator nor a node of {graph.name!r}"
                    f"\n  operators there: {listed(set(operators.values()))}"
                    f"\n  nodes there: {', '.join(operators) or 'none'}"
                )
            device = graph.values[graph.nodes[name].outputs[0]].device
            check_invoker(name, operators[name], library, device)

    def allows(self, library: str) -> bool:
        """Return whether a library may take nodes that are not pinned.

        The library of the definitions, NumPy, always may.
        """
        listed = self.order is None or library in self.order
        return library == DEFINITION or (listed and library not in self.barred)

    def rank(self, library: str) -> int:
        """Return the position of a library in the order in which libraries are asked; the smallest
        is first.

        It is the library's index in ``order``. Libraries that ``order`` lacks come last. Without
        ``order`` it is 0 for all. Among libraries with equal positions, priority decides.
        """
        if self.order is None:
            return 0
        return self.order.index(library) if library in self.order else len(self.order)

    def pinned(self, node: str, op: str) -> str | None:
        """Return the library that a node is pinned to, by name or operator; None without a pin."""
        return self.nodes.get(node, self.operators.get(op))

    def refusal(self, node: str, op: str, library: str) -> str:
        """Return the reason why a library may not take a node; empty if it may."""
        pinned = self.pinned(node, op)
        if pinned is not None:
            return "" if library == pinned else f"pinned to {pinned}"
        if self.allows(library):
            return ""
        if library in self.barred:
            return "excluded from this session"
        return f"not among this session's libraries ({', '.join(self.order or ())})"

    def unlisted(self, node: str, op: str, library: str) -> bool:
        """Return whether a library is not in the given ``order``, for a node that is not pinned to
        any library.
        """
        return self.order is not None and library not in self.order and not self.pinned(node, op)


#: All libraries, by priority.
EVERY = Preferences()


def check_invoker(key: str, op: str, library: str, device: str = CPU) -> None:
    """Check that a library has an invoker of the operator that is pinned to it.

    Args:
        key: the pinned node or operator, for the message.
        op, library, device: names of the operator, the library and the device.

    Raises:
        InputError: the library has no invoker; the message lists the libraries that have one.
    """
    from libdesc.registry import ready

    libraries = [row.library for _, row in ready().candidates(op, device)]
    if library not in libraries:
        raise InputError(
            f"pin {key!r}: {library} has no invoker of {op} on {device}; these have one: "
            f"{listed(libraries)}"
        )


def listed(names: Iterable[str]) -> str:
    """Return names as a text for a message: sorted, with commas; ``none`` if there are none."""
    return ", ".join(sorted(names)) or "none"
