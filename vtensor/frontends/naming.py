"""Names for dims: axes of values are unified by union-find, and each class gets one name.

ONNX numbers axes; operators here go by names. Every node declares, through its operator's
``Spelling``, which axes are one dim, which names some axes must have (fixed) and which names others
might have (hints). All axes that are one dim form a class. A class takes its first fixed name, else
a hint, else a fresh name, always so that no value has one name twice. If that is impossible (x +
x^T), the value's second axis gets another name. A node that needs other names sees the value
through a Rename, which moves no data, under names of its own (``local_names``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from vtensor.language.records import dataclass

Names = tuple[str, ...]
#: Key of a value while dim names are found: its name; a constant has one key for each node input
#: that reads it.
Key = Hashable
K = TypeVar("K", bound=Hashable)
#: An axis of a value: the value and the number of the axis.
Position = tuple[Key, int]


class UnionFind:
    """Disjoint sets with path halving; a set's representative is its member that was added first.

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
    """What one node declares about the dim names of its inputs and outputs.

    It is the ``Naming`` that the ``Spelling`` of the node's operator gets and fills.

    Args:
        opset: version of ONNX's operators.
        keys: the key of each value of the node, by the value's role: ``x0`` for input 0, ``y0`` for
            output 0.
        ranks: number of axes of each value, by role.
        read_attribute: returns an attribute's value, given its name and a default.
        pairs: pairs of axes that are one dim; an axis is (role, index from 0).
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
        """Fix the dim names of the axes of a value, given by its role (``x0``: input 0).

        ``names`` has a name for each axis, in order, separated by spaces. If there are more or
        fewer names than axes, the call has no effect.
        """
        if len(names.split()) == self.rank(role):
            self.fixed.setdefault(role, tuple(names.split()))

    def same(self, role: str, position: int, other: str, other_position: int) -> None:
        """Declare that two axes of the node's values are one dim.

        They are axis ``position`` of the value with role ``role`` (``x0``: input 0), and axis
        ``other_position`` of ``other``. A negative index counts from the end. If an axis does not
        exist, the call has no effect.
        """
        a, b = self._position(role, position), self._position(other, other_position)
        if a is not None and b is not None:
            self.pairs.append((a, b))

    def hint(self, role: str, names: str) -> None:
        """Suggest dim names for those axes of a value that get no other name.

        The arguments are those of ``name``.
        """
        if len(names.split()) == self.rank(role):
            self.hints.setdefault(role, tuple(names.split()))

    def _position(self, role: str, position: int) -> tuple[str, int] | None:
        """Return (role, index from 0) of a value's axis; None if it does not exist.

        A negative ``position`` counts from the last axis.
        """
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
    """Return a dim name for every axis of every value.

    Args:
        ranks: number of axes of each value, by its key, in the order in which values appear.
        nodes: the declarations of the nodes, in the order in which the nodes run.
        pinned: prescribed names of the axes of some values; they take precedence over fixed names.

    Returns:
        The names of each value's axes, by the value's key. No name is twice in a value.
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
    """Set ``fixed`` and ``hint`` of each class to the first fixed name and the first hint of its
    axes.

    Names in ``pinned`` count as fixed and come before those of the nodes.

    Args:
        sets: the sets of axes that are one dim; an axis is (key of its value, index from 0).
        classes: the class of each set, by the set's representative; they are changed.
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
    """Set the name of each class: classes with a fixed name first, then those with a hint, then
    others.

    Two classes that share a value get different names.
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
    """Return the names; a name that has occurred earlier in the list gets a number appended.

    >>> _distinct(["A", "A", "B"])
    ('A', 'A1', 'B')
    """
    result: list[str] = []
    for position, name in enumerate(names):
        others = {*result, *names[position + 1 :]}
        result.append(_first_free(name, others.__contains__) if name in result else name)
    return tuple(result)


def local_names(node: NodeNaming, assigned: Mapping[Any, Names]) -> dict[str, Names]:
    """Return the dim names under which one node sees its operands, by role (``x0``: input 0).

    They are the assigned names if these agree with what the node declares. They do not agree if the
    node fixes other names, or if two axes that are one dim to the node have different names. Then
    the node's fixed names take precedence, next the names of its outputs. Axes that are different
    dims of one operand get different names.

    Args:
        node: what the node declares.
        assigned: dim names of the axes of each value, by the value's key.
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
    """Yield the representative of each other set that has an axis in an operand together with
    ``root``.

    ``root`` is the representative of a set of ``sets``; the operands are those of ``node``.
    """
    for role in node.keys:
        roots = [sets.find((role, position)) for position in range(node.rank(role))]
        if root in roots:
            yield from (other for other in roots if other != root)
