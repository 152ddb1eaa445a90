"""A layered drawing of a directed acyclic graph: nodes in rows, their order and abscissa in the
row.

Source: Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System
Structures", IEEE Transactions on Systems, Man, and Cybernetics 11(2), 1981: ranks by longest path,
barycentre sweeps. Chains of items are columns, which are placed as a whole, as in Brandes and Köpf,
"Fast and Simple Horizontal Coordinate Assignment", Graph Drawing 2001. The only library in pure
Python that does this, grandalf, is under the GPL.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from vtensor.language.records import dataclass

if TYPE_CHECKING:
    import networkx as nx

#: The number of sweeps over all rows that order items, down and up in turn; and of those that set
#: the abscissae of columns.
ORDER_SWEEPS = 8
PLACE_SWEEPS = 12

#: The most rows that a wire passes in bends between boxes. A longer wire is drawn straight across
#: the boxes: if all nodes had long wires to one node, the number of bends would grow with the
#: square of the number of nodes.
LONGEST = 64


class Wire(NamedTuple):
    """A value with its users: an edge from node number ``source`` to the nodes numbered
    ``targets``.
    """

    source: int
    targets: tuple[int, ...]


class Bend(NamedTuple):
    """The point at which wire number ``wire`` passes row number ``row``; the top row is 0."""

    wire: int
    row: int


Item = int | Bend
Rows = list[list[Item]]
Distances = dict[Item, dict[Item, float]]


@dataclass(frozen=True)
class Arrangement:
    """Where the items of a drawing are; an item is a node, or a bend of a wire.

    Attributes:
        rows: the items of each row, from left to right; the top row first.
        x: the abscissa of each item's centre, in the unit of the widths.
    """

    rows: Rows
    x: Mapping[Item, float]

    def bends(self, wire: int, source_row: int, target_row: int) -> list[float]:
        """Return the abscissa of a wire in each row between two nodes, from the top on.

        Empty if the two rows are more than ``LONGEST`` apart.

        Args:
            wire: number of the wire.
            source_row, target_row: rows of its source and of one of its targets.
        """
        if target_row - source_row > LONGEST:
            return []
        return [self.x[Bend(wire, row)] for row in range(source_row + 1, target_row)]


def arrange(count: int, wires: Sequence[Wire], node_width: float, bend_width: float) -> Arrangement:
    """Arrange the nodes 0 to ``count - 1`` in rows, so that every wire runs downwards.

    Args:
        count: the number of nodes.
        wires: the edges, without a cycle.
        node_width, bend_width: the widths of items, with the gap to the next.
    """
    ranks = _ranks(count, wires)
    graph = _with_bends(wires, ranks)
    graph.add_nodes_from(range(count))
    rows = _ordered(graph, _first_order(graph, count, ranks))
    widths = {item: node_width if isinstance(item, int) else bend_width for item in graph}
    return Arrangement(rows, _placed(graph, rows, widths))


def _ranks(count: int, wires: Sequence[Wire]) -> list[int]:
    """Return the row of each node: the number of edges on the longest path that leads to the node.

    A node that no wire leads to, but that has users, is in the row above the uppermost of them
    instead.
    """
    import networkx as nx  # slow to import: not before the first picture

    graph = nx.DiGraph((wire.source, target) for wire in wires for target in wire.targets)
    graph.add_nodes_from(range(count))
    ranks = [0] * count
    for rank, nodes in enumerate(nx.topological_generations(graph)):
        for node in nodes:
            ranks[node] = rank
    for node in range(count):
        if graph.out_degree(node) and not graph.in_degree(node):
            ranks[node] = min(ranks[user] for user in graph.successors(node)) - 1
    return ranks


def _with_bends(wires: Sequence[Wire], ranks: Sequence[int]) -> nx.DiGraph[Item]:
    """Return the graph of the drawing's items (nodes and bends); edges connect neighbouring rows.

    All users of a wire share its bends. If a user is more than ``LONGEST`` rows below the wire's
    source, the graph has no edges for this way.

    Args:
        wires: the edges between nodes.
        ranks: the row of each node.
    """
    import networkx as nx

    graph: nx.DiGraph[Item] = nx.DiGraph()
    for number, wire in enumerate(wires):
        for target in wire.targets:
            if ranks[target] - ranks[wire.source] > LONGEST:
                continue
            between = range(ranks[wire.source] + 1, ranks[target])
            nx.add_path(graph, [wire.source, *(Bend(number, row) for row in between), target])
    return graph


def _first_order(graph: nx.DiGraph[Item], count: int, ranks: Sequence[int]) -> Rows:
    """Return the items of each row, in the order of a depth-first search from the nodes without
    inputs.

    So the items of one path are near each other in neighbouring rows.
    """
    import networkx as nx

    rows: Rows = [[] for _ in range(max(ranks, default=-1) + 1)]
    seen: set[Item] = set()
    for source in (node for node in range(count) if not graph.in_degree(node)):
        for item in nx.dfs_preorder_nodes(graph, source):
            if item not in seen:
                seen.add(item)
                rows[ranks[item] if isinstance(item, int) else item.row].append(item)
    return rows


def _ordered(graph: nx.DiGraph[Item], rows: Rows) -> Rows:
    """Return the rows in the order of items with the fewest crossings of edges.

    The order is the given one, or the best one of several sweeps, each of which sorts all rows.
    """
    best, fewest = rows, _crossings(graph, rows)
    for sweep in range(ORDER_SWEEPS):
        rows = _sorted_by_neighbours(graph, rows, down=sweep % 2 == 0)
        crossings = _crossings(graph, rows)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _sorted_by_neighbours(graph: nx.DiGraph[Item], rows: Rows, *, down: bool) -> Rows:
    """Return the rows, with the items of each sorted by the mean position of their neighbours.

    If ``down``, rows are sorted from the top on, by the neighbours in the row above. Else they are
    sorted from the bottom on, by the neighbours in the row below.
    """
    at = {item: float(index) for row in rows for index, item in enumerate(row)}
    neighbours = graph.predecessors if down else graph.successors
    result: Rows = []
    for row in rows if down else reversed(rows):
        wanted = {item: _mean([at[near] for near in neighbours(item)], at[item]) for item in row}
        result.append(sorted(row, key=wanted.__getitem__))
        at.update((item, float(index)) for index, item in enumerate(result[-1]))
    return result if down else result[::-1]


def _crossings(graph: nx.DiGraph[Item], rows: Rows) -> int:
    """Return the number of pairs of edges between neighbouring rows that cross."""
    crossings = 0
    for row, below in pairwise(rows):
        at = {item: index for index, item in enumerate(below)}
        ends: list[int] = []
        for item in row:
            targets = [at[target] for target in graph.successors(item)]
            crossings += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return crossings


def _placed(
    graph: nx.DiGraph[Item], rows: Rows, widths: Mapping[Item, float]
) -> Mapping[Item, float]:
    """Return the abscissa of each item.

    Items that form a column (a chain of items below each other) have the same one. It is near the
    mean of the columns that edges connect with it, above or below.

    Args:
        graph: nodes and bends.
        rows: the items of each row, from left to right.
        widths: the width of each item, with the gap to the next.
    """
    columns = _columns(graph, rows)
    distances = _distances(rows, columns, widths)
    linked: dict[Item, list[Item]] = {column: [] for column in distances}
    for ends in graph.edges:
        above, below = (columns[item] for item in ends)
        if above != below:
            linked[above].append(below)
            linked[below].append(above)
    x: Mapping[Item, float] = dict.fromkeys(distances, 0.0)
    for _ in range(PLACE_SWEEPS):
        wanted = {at: _mean([x[near] for near in linked[at]], x[at]) for at in distances}
        x = _without_overlap(distances, wanted)
    return {item: x[column] for item, column in columns.items()}


def _columns(graph: nx.DiGraph[Item], rows: Rows) -> Mapping[Item, Item]:
    """Return the column of each item, given as the column's uppermost item.

    A column is a chain of items, nodes and bends, that are drawn straight below each other. Its
    edges do not cross those of other columns.
    """
    of = {item: item for row in rows for item in row}
    for row, below in pairwise(rows):
        at = {item: index for index, item in enumerate(below)}
        pairs = [(i, item, _only_one(item, graph.successors(item))) for i, item in enumerate(row)]
        parallel: list[tuple[int, int]] = []
        for i, item, under in sorted(pairs, key=lambda pair: isinstance(pair[1], int)):
            if under is None or _only_one(under, graph.predecessors(under)) != item:
                continue
            edge = (i, at[under])
            place = bisect_right(parallel, edge)
            before, after = parallel[:place][-1:], parallel[place : place + 1]
            if all(j < edge[1] for _, j in before) and all(edge[1] < j for _, j in after):
                parallel.insert(place, edge)
                of[under] = of[item]
    return of


def _only_one(item: Item, neighbours: Iterable[Item]) -> Item | None:
    """Return the only one of ``neighbours`` that is of the same kind (node or bend) as ``item``.

    If none is of that kind, return the only neighbour. None if several qualify, or there are none.
    """
    near = list(neighbours)
    alike = [other for other in near if type(other) is type(item)] or near
    return alike[0] if len(alike) == 1 else None


def _distances(rows: Rows, columns: Mapping[Item, Item], widths: Mapping[Item, float]) -> Distances:
    """Return, for each column, the least distance to each column that is next to it on the right.

    Two columns are next to each other if they are so in any row. The keys are in an order in which
    a column comes after all columns on its left.
    """
    import networkx as nx

    right_of: Distances = {column: {} for column in columns.values()}
    for row in rows:
        for left, right in pairwise(row):
            distance, known = (widths[left] + widths[right]) / 2, right_of[columns[left]]
            known[columns[right]] = max(known.get(columns[right], 0.0), distance)
    graph = nx.DiGraph((left, right) for left, known in right_of.items() for right in known)
    graph.add_nodes_from(right_of)
    return {column: right_of[column] for column in nx.topological_sort(graph)}


def _without_overlap(distances: Distances, wanted: Mapping[Item, float]) -> Mapping[Item, float]:
    """Return abscissae of columns near the wanted ones, at which columns do not overlap.

    Once, columns that are too close are pushed to the right; once, to the left. Both results keep
    the least distances, and so does their mean, which is returned.

    Args:
        distances: the least distances of columns, as ``_distances`` returns them.
        wanted: the wanted abscissa of each column.
    """
    right, left = dict(wanted), dict(wanted)
    for column, others in distances.items():
        for other, distance in others.items():
            right[other] = max(right[other], right[column] + distance)
    for column in reversed(distances):
        rooms = [left[other] - distance for other, distance in distances[column].items()]
        left[column] = min([left[column], *rooms])
    return {column: (right[column] + left[column]) / 2 for column in distances}


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
