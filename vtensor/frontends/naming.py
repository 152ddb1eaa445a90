"""Names for dims: axes of values are unified by union-find, and each class gets one name.

ONNX numbers axes; operators here go by names. Every node says, through its operator's ``Spelling``,
which axes are one dim, which names some must have and which names others might have. A class takes
its first fixed name, else a hint, else a fresh one, always so that no value has one name twice. If
that is impossible (x + x^T), the value gets a second name for its second axis, and each node that
needs other names sees the value through a Rename, which moves nothing, under names of its own
(``local_names``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from vtensor.language.records import dataclass

Names = tuple[str, ...]
#: Key of a value while names are found: its name, or for a constant, a key for each use.
Key = Hashable
K = TypeVar("K", bound=Hashable)
#: An axis of a value: the value and the number of the axis.
Position = tuple[Key, int]


class UnionFind:
    """Disjoint sets with path halving; the representative is the member that came first.

    >>> sets = UnionFind()
    >>> sets.join("a", "b"); sets.join("c", "b")
    >>> sets.find("c") == sets.find("a"), sets.find("d") == sets.find("a")
    (True, False)
    """

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}
        self._rank: dict[Hashable, int] = {}

    def find(self, member: Hashable) -> Hashable:
        """Return the representative of a member's set; a new member is a set of its own."""
        parent = self._parent
        if member not in parent:
            parent[member] = member
            self._rank[member] = len(parent)
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def join(self, a: Hashable, b: Hashable) -> None:
        """Unite the sets of ``a`` and ``b``."""
        first, second = sorted((self.find(a), self.find(b)), key=lambda root: self._rank[root])
        self._parent[second] = first


@dataclass(eq=False)
class NodeNaming:
    """A node while names are found: the ``Naming`` that its operator's ``Spelling`` gets and fills.

    Args:
        opset: version of ONNX's operators.
        keys: the key of each value, by the value's role: ``x0`` for input 0, ``y0`` for output 0.
        ranks: number of axes by role.
        read_attribute: returns an attribute's value, or the default.
        pairs: pairs of axes that are one dim; an axis is a role and a number.
        fixed: by role, the names that the axes must have.
        hints: by role, names for axes that get no other name.
    """

    opset: int
    keys: Mapping[str, Key]
    ranks: Mapping[str, int]
    read_attribute: Callable[[str, Any], Any]
    pairs: list[tuple[tuple[str, int], tuple[str, int]]] = field(default_factory=list)
    fixed: dict[str, Names] = field(default_factory=dict)
    hints: dict[str, Names] = field(default_factory=dict)

    @property
    def roles(self) -> list[str]:
        """The roles of the inputs, without optional ones that are left out, in order: ``x0 x1
        ...``.
        """
        return [role for role in self.keys if role.startswith("x")]

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value, or the default if it is absent."""
        return self.read_attribute(name, default)

    def rank(self, role: str) -> int:
        """Return the number of axes of ``x0`` (input 0) or ``y0`` (output 0); 0 if it is absent."""
        return self.ranks.get(role, 0)

    def name(self, role: str, names: str) -> None:
        """Fix the names of the axes of a role; ``names`` has them in order, separated by spaces.

        Without effect if there are not as many names as axes.
        """
        if len(names.split()) == self.rank(role):
            self.fixed.setdefault(role, tuple(names.split()))

    def same(self, role: str, position: int, other: str, other_position: int) -> None:
        """Declare that two axes, of the roles ``role`` and ``other``, are one dim.

        Negative positions count from the end. Ignored if an axis does not exist.
        """
        a, b = self._position(role, position), self._position(other, other_position)
        if a is not None and b is not None:
            self.pairs.append((a, b))

    def hint(self, role: str, names: str) -> None:
        """Suggest names for axes of a role that get no other name; ``names`` is as for ``name``."""
        if len(names.split()) == self.rank(role):
            self.hints.setdefault(role, tuple(names.split()))

    def _position(self, role: str, position: int) -> tuple[str, int] | None:
        """Return an axis of a role, counted from the start, or None if it does not exist."""
        rank = self.rank(role)
        return (role, position % rank) if -rank <= position < rank else None


@dataclass
class _Class:
    """A set of axes that are one dim.

    Attributes:
        fixed: the first name that is prescribed for one of the axes; empty if there is none.
        hint: the first name that is suggested for one of the axes; empty if there is none.
        name: the name that all the axes get.
        neighbours: representatives of the classes that must not have the same name.
    """

    fixed: str = ""
    hint: str = ""
    name: str = ""
    neighbours: set[Hashable] = field(default_factory=set)


def assign_names(
    ranks: Mapping[K, int], nodes: Iterable[NodeNaming], pinned: Mapping[K, Names] | None = None
) -> dict[K, Names]:
    """Name every axis of every value.

    Args:
        ranks: number of axes by value, in the order in which values appear.
        nodes: the nodes, in running order, with what their spellings have declared.
        pinned: prescribed names of the axes of some values; they come before all fixed names.

    Returns:
        The names of each value's axes, no name twice in a value.
    """
    sets = UnionFind()
    for key, rank in ranks.items():
        for position in range(rank):
            sets.find((key, position))
    nodes = list(nodes)
    for node in nodes:
        for (role, position), (other, other_position) in node.pairs:
            sets.join((node.keys[role], position), (node.keys[other], other_position))
    classes: dict[Hashable, _Class] = {}
    for key, rank in ranks.items():
        roots = [sets.find((key, position)) for position in range(rank)]
        for root in roots:
            classes.setdefault(root, _Class()).neighbours.update(set(roots) - {root})
    _collect(sets, classes, nodes, pinned or {})
    _name_classes(classes)
    return {
        key: _distinct([classes[sets.find((key, p))].name for p in range(rank)])
        for key, rank in ranks.items()
    }


def _collect(
    sets: UnionFind,
    classes: Mapping[Hashable, _Class],
    nodes: Sequence[NodeNaming],
    pinned: Mapping[K, Names],
) -> None:
    """Set the first fixed name and the first hint of each class: of ``pinned``, then of the nodes.

    Args:
        sets: the unified axes, each a value and a number.
        classes: the classes by representative, which are changed.
        nodes: the nodes, in running order.
        pinned: prescribed names of the axes of some values.
    """
    rows: list[tuple[Key, Names, bool]] = [(key, names, True) for key, names in pinned.items()]
    for node in nodes:
        rows += [(node.keys[role], names, True) for role, names in node.fixed.items()]
        rows += [(node.keys[role], names, False) for role, names in node.hints.items()]
    for key, names, fixed in rows:
        for position, name in enumerate(names):
            entry = classes.get(sets.find((key, position)))
            if entry is not None and fixed:
                entry.fixed = entry.fixed or name
            elif entry is not None:
                entry.hint = entry.hint or name


def _name_classes(classes: Mapping[Hashable, _Class]) -> None:
    """Name classes: fixed names first, then hints, then fresh ones.

    Classes of axes of one value get different names.
    """
    for entry in classes.values():
        if all(classes[root].name != entry.fixed for root in entry.neighbours):
            entry.name = entry.fixed
    for entry in classes.values():
        if not entry.name and (stem := entry.fixed or entry.hint):
            around = {classes[root].name for root in entry.neighbours}
            entry.name = _first_free(stem, around.__contains__)
    taken, numbers = {entry.name for entry in classes.values()}, itertools.count()
    for entry in classes.values():
        if not entry.name:  # D0, D1, ...: the first that is not taken
            entry.name = next(name for name in map("D{}".format, numbers) if name not in taken)


def _first_free(stem: str, taken: Callable[[str], bool]) -> str:
    """Return the first of ``C``, ``C1``, ``C2``, ... that is not taken, if ``stem`` is ``C``."""
    name, count = stem, 0
    while taken(name):
        count += 1
        name = f"{stem}{count}"
    return name


def _distinct(names: Sequence[str]) -> Names:
    """Return the names, with a number appended to each one that occurs before.

    >>> _distinct(["A", "A", "B"])
    ('A', 'A1', 'B')
    """
    result: list[str] = []
    for position, name in enumerate(names):
        others = {*result, *names[position + 1 :]}
        result.append(_first_free(name, others.__contains__) if name in result else name)
    return tuple(result)


def local_names(node: NodeNaming, assigned: Mapping[Any, Names]) -> dict[str, Names]:
    """Return the names under which one node sees its operands, by role.

    They are the assigned ones, unless the node fixes other names, or two axes that are one dim to
    the node have different names. Then its fixed names come first, next those of its outputs; dims
    that are different to the node get different names.

    Args:
        node: the node, with what its spelling has declared.
        assigned: names of the axes of each value.
    """
    result = {role: assigned[key] for role, key in node.keys.items()}
    agree = all(result[a][p] == result[b][q] for (a, p), (b, q) in node.pairs)
    if agree and all(result[role] == names for role, names in node.fixed.items()):
        return result
    sets = UnionFind()
    for first, second in node.pairs:
        sets.join(first, second)
    roles = sorted(result, key=lambda role: (role not in node.fixed, not role.startswith("y")))
    chosen: dict[Hashable, str] = {}
    for role in roles:
        names = node.fixed.get(role, result[role])
        for position, name in enumerate(names):
            root = sets.find((role, position))
            if root not in chosen:
                names_taken = {chosen[r] for r in _neighbours(sets, node, root) if r in chosen}
                chosen[root] = _first_free(name, names_taken.__contains__)
    for role in roles:
        if role not in node.fixed:
            row = [chosen[sets.find((role, p))] for p in range(len(result[role]))]
            result[role] = _distinct(row)
    return {**result, **node.fixed}


def _neighbours(sets: UnionFind, node: NodeNaming, root: Hashable) -> Iterable[Hashable]:
    """Yield the classes that share an operand of the node with class ``root``, by
    representative.
    """
    for role in node.keys:
        roots = [sets.find((role, position)) for position in range(node.rank(role))]
        if root in roots:
            yield from (other for other in roots if other != root)
