"""What a session says of libraries: which may be used, in what order, and what is pinned to one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from libdesc.registry import registry
from vtensor.errors import InputError
from vtensor.language.operators import OPERATORS, info_of
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
        barred: libraries that are not used even so.
        operators: the one library that may take an operator's nodes, by operator.
        nodes: the one library that may take a node, by node; it goes before its operator's.
    """

    order: tuple[str, ...] | None = None
    barred: tuple[str, ...] = ()
    operators: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        libraries: Sequence[str] | None = None,
        pin: Mapping[str, str] | None = None,
        barred: tuple[str, ...] = (),
    ) -> Preferences:
        """What a session was given, checked as far as can be without its graph.

        Args:
            libraries: names in the order of trial; one text is one name.
            pin: a library by operator or node. A key that is an operator's name is the operator,
                also where a node has that name.
            barred: libraries that are not used.

        Raises:
            InputError: a library is not registered or cannot be used here, or has no invoker of
                the operator that is pinned to it; lists those that there are.

        >>> Preferences.of(["numpy"], {"Relu": "numpy", "conv1": "numpy"}).nodes
        {'conv1': 'numpy'}
        """
        order, pins = _order(libraries, barred), _pins(pin, barred)
        operators = {key: library for key, library in pins.items() if key in OPERATORS}
        for op, library in operators.items():
            _check_invoker(op, op, library)
        nodes = {key: library for key, library in pins.items() if key not in OPERATORS}
        return cls(order, barred, operators, nodes)

    def check_nodes(self, graph: Graph) -> None:
        """See that each pinned node is in the graph, and that its library has an invoker of it.

        Raises:
            InputError: it is not; lists the graph's operators and nodes.
        """
        operators = {name: info_of(node.op).name for name, node in graph.nodes.items()}
        for name, library in self.nodes.items():
            if name not in operators:
                raise InputError(
                    f"pin {name!r}: neither an operator nor a node of {graph.name!r}"
                    f"\n  operators there: {_listed(set(operators.values()))}"
                    f"\n  nodes there: {', '.join(operators) or 'none'}"
                )
            device = graph.values[graph.nodes[name].outputs[0]].device
            _check_invoker(name, operators[name], library, device)

    def allows(self, library: str) -> bool:
        """True where a library may be used without a pin; the definition always may."""
        listed = self.order is None or library in self.order
        return library == DEFINITION or (listed and library not in self.barred)

    def rank(self, library: str) -> int:
        """Its place in the order of trial, behind which priority decides."""
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
            return "barred from this session"
        return f"not among this session's libraries ({', '.join(self.order or ())})"

    def unlisted(self, node: str, op: str, library: str) -> bool:
        """True where the definition takes a node because no listed library does."""
        return self.order is not None and library not in self.order and not self.pinned(node, op)


#: All libraries, by priority.
EVERY = Preferences()


def _order(libraries: Sequence[str] | None, barred: tuple[str, ...]) -> tuple[str, ...] | None:
    if libraries is None:
        return None
    listed = f"registered are {_listed(registry().libraries)}"
    if not isinstance(libraries, Sequence):
        raise InputError(f"libraries={libraries!r} is no list of names; {listed}")
    names = (libraries,) if isinstance(libraries, str) else tuple(libraries)
    if not names:
        raise InputError(f"libraries= (--libraries on the command line) is empty; {listed}")
    for name in names:
        _check_library("libraries:", name)
        if name in barred:
            raise InputError(f"libraries: {name} is barred from this session")
    return names


def _pins(pin: Mapping[str, str] | None, barred: tuple[str, ...]) -> dict[str, str]:
    if not (pin is None or isinstance(pin, Mapping)):
        raise InputError(f"pin={pin!r} is no {{operator or node: library}}")
    for key, library in (pin or {}).items():
        if not isinstance(key, str):
            raise InputError(f"pin {key!r}: no name of an operator or a node")
        _check_library(f"pin {key!r}:", library)
        if library in barred:
            raise InputError(f"pin {key!r}: {library} is barred from this session")
    return dict(pin or {})


def _check_library(what: str, name: object) -> None:
    """See that a library is registered, and can be used here."""
    known = registry().libraries
    if not isinstance(name, str) or name not in known:
        raise InputError(f"{what} {name} is not registered; registered are {_listed(known)}")
    if known[name].absent:
        able = _listed(one for one, library in known.items() if not library.absent)
        raise InputError(
            f"{what} {name} cannot be used here ({known[name].absent}); these can: {able}"
        )


def _check_invoker(key: str, op: str, library: str, device: str = CPU) -> None:
    able = [row.library for _, row in registry().candidates(op, device)]
    if library not in able:
        raise InputError(
            f"pin {key!r}: {library} has no invoker of {op} on {device}; these have one: "
            f"{_listed(able)}"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
