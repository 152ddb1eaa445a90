"""What a session says of libraries: which may be used, in what order, and what is pinned to one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from vtensor.errors import InputError
from vtensor.language.records import dataclass
from vtensor.language.tensor import CPU

if TYPE_CHECKING:
    from vtensor.language.graph import Graph

#: The library that defines every operator: where no listed library takes a call, it does.
DEFINITION = "numpy"


@dataclass(frozen=True)
class Preferences:
    """Which library may take which node.

    Attributes:
        order: the libraries that may be used, in the order of trial; None is all, by priority.
        barred: libraries that are never used, even if ``order`` names them.
        operators: the one library that may take an operator's nodes, by operator.
        nodes: the one library that may take a node, by node; it goes before its operator's.
    """

    order: tuple[str, ...] | None = None
    barred: tuple[str, ...] = ()
    operators: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)

    def check_nodes(self, graph: Graph) -> None:
        """See that each pinned node is in the graph, and that its library has an invoker of it.

        Raises:
            InputError: it is not; lists the graph's operators and nodes.
        """
        from vtensor.language.operators import info_of

        operators = {name: info_of(node.op).name for name, node in graph.nodes.items()}
        for name, library in self.nodes.items():
            if name not in operators:
                raise InputError(
                    f"pin {name!r}: neither an operator nor a node of {graph.name!r}"
                    f"\n  operators there: {listed(set(operators.values()))}"
                    f"\n  nodes there: {', '.join(operators) or 'none'}"
                )
            device = graph.values[graph.nodes[name].outputs[0]].device
            check_invoker(name, operators[name], library, device)

    def allows(self, library: str) -> bool:
        """True where a library may be used without a pin; the definition always may."""
        listed = self.order is None or library in self.order
        return library == DEFINITION or (listed and library not in self.barred)

    def rank(self, library: str) -> int:
        """A library's place in the order of trial; among equals, priority decides."""
        if self.order is None:
            return 0
        return self.order.index(library) if library in self.order else len(self.order)

    def pinned(self, node: str, op: str) -> str | None:
        """The library that a node is pinned to."""
        return self.nodes.get(node, self.operators.get(op))

    def refusal(self, node: str, op: str, library: str) -> str:
        """Why a library may not take a node; empty where it may."""
        pinned = self.pinned(node, op)
        if pinned is not None:
            return "" if library == pinned else f"pinned to {pinned}"
        if self.allows(library):
            return ""
        if library in self.barred:
            return "excluded from this session"
        return f"not among this session's libraries ({', '.join(self.order or ())})"

    def unlisted(self, node: str, op: str, library: str) -> bool:
        """True where the definition takes a node because no listed library does."""
        return self.order is not None and library not in self.order and not self.pinned(node, op)


#: All libraries, by priority.
EVERY = Preferences()


def check_invoker(key: str, op: str, library: str, device: str = CPU) -> None:
    """See that a library has an invoker of the operator that is pinned to it.

    Raises:
        InputError: it has none; lists the libraries that have one.
    """
    from libdesc.registry import ready

    able = [row.library for _, row in ready().candidates(op, device)]
    if library not in able:
        raise InputError(
            f"pin {key!r}: {library} has no invoker of {op} on {device}; these have one: "
            f"{listed(able)}"
        )


def listed(names: Iterable[str]) -> str:
    """Names in a message."""
    return ", ".join(sorted(names)) or "none"
