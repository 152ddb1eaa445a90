"""A layered drawing of a directed acyclic graph: rows, the order in each row, and abscissae.

Source: Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System
Structures", IEEE Transactions on Systems, Man, and Cybernetics 11(2), 1981: ranks by longest path,
barycentre sweeps. Items that belong straight below each other are columns, which are placed as a
whole, as in Brandes and Köpf, "Fast and Simple Horizontal Coordinate Assignment", Graph Drawing
2001. The one such library that is pure Python, grandalf, is under the GPL.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from vtensor.language.records import dataclass

if TYPE_CHECKING:
    import networkx as nx

#: Down and up in turn; of the orders, the one with the fewest crossings is kept.
ORDER_SWEEPS = 8
PLACE_SWEEPS = 12

#: Rows that a wire passes between boxes. A longer one is drawn across them: wires from everywhere
#: to one node would have as many bends as there are pairs of nodes.
LONGEST = 64


class Wire(NamedTuple):
    """What joins one node to others: a value with its users."""

    source: int
    targets: tuple[int, ...]


class Bend(NamedTuple):
    """Where a wire passes a row."""

    wire: int
    row: int


Item = int | Bend
Rows = list[list[Item]]
Distances = dict[Item, dict[Item, float]]


@dataclass(frozen=True)
class Arrangement:
    """Where nodes and bends are: the items of each row from left to right, and their middles."""

    rows: Rows
    x: Mapping[Item, float]

    def bends(self, wire: int, source_row: int, target_row: int) -> list[float]:
        """The middles of a wire in the rows between two of its nodes; none if it is too long."""
        if target_row - source_row > LONGEST:
            return []
        return [self.x[Bend(wire, row)] for row in range(source_row + 1, target_row)]


def arrange(count: int, wires: Sequence[Wire], node_width: float, bend_width: float) -> Arrangement:
    """Draw the nodes 0 to ``count - 1`` so that every wire runs downwards.

    Args:
        count: how many nodes there are.
        wires: from node to nodes, without a cycle.
        node_width, bend_width: what an item takes of its row, with the gap to the next.
    """
    ranks = _ranks(count, wires)
    graph = _with_bends(wires, ranks)
    graph.add_nodes_from(range(count))
    rows = _ordered(graph, _first_order(graph, count, ranks))
    widths = {item: node_width if isinstance(item, int) else bend_width for item in graph}
    return Arrangement(rows, _placed(graph, rows, widths))


def _ranks(count: int, wires: Sequence[Wire]) -> list[int]:
    """Longest path from a source; a source itself stands right above its first user."""
    import networkx as nx  # it is loaded with the first graph

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
    """The graph whose edges go from row to row; the users of a wire share its bends."""
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
    """Depth first, so that what belongs together starts side by side."""
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
    """Rows sorted by the barycentres of their neighbours, those above and those below in turn."""
    best, fewest = rows, _crossings(graph, rows)
    for sweep in range(ORDER_SWEEPS):
        rows = _swept(graph, rows, down=sweep % 2 == 0)
        crossings = _crossings(graph, rows)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _swept(graph: nx.DiGraph[Item], rows: Rows, *, down: bool) -> Rows:
    at = {item: float(index) for row in rows for index, item in enumerate(row)}
    neighbours = graph.predecessors if down else graph.successors
    result: Rows = []
    for row in rows if down else reversed(rows):
        wanted = {item: _mean([at[one] for one in neighbours(item)], at[item]) for item in row}
        result.append(sorted(row, key=wanted.__getitem__))
        at.update((item, float(index)) for index, item in enumerate(result[-1]))
    return result if down else result[::-1]


def _crossings(graph: nx.DiGraph[Item], rows: Rows) -> int:
    """How many pairs of edges between neighbouring rows cross."""
    found = 0
    for row, below in pairwise(rows):
        at = {item: index for index, item in enumerate(below)}
        ends: list[int] = []
        for item in row:
            targets = [at[one] for one in graph.successors(item)]
            found += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return found


def _placed(
    graph: nx.DiGraph[Item], rows: Rows, widths: Mapping[Item, float]
) -> Mapping[Item, float]:
    """Abscissae of columns, each near the mean of its neighbours in others."""
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
        x = _spread(
            distances, {at: _mean([x[one] for one in linked[at]], x[at]) for at in distances}
        )
    return {item: x[column] for item, column in columns.items()}


def _columns(graph: nx.DiGraph[Item], rows: Rows) -> Mapping[Item, Item]:
    """The column of each item, by its first: chains of nodes, and the bends of a wire."""
    of = {item: item for row in rows for item in row}
    for row, below in pairwise(rows):
        at = {item: index for index, item in enumerate(below)}
        found = [(i, item, _sole(item, graph.successors(item))) for i, item in enumerate(row)]
        parallel: list[tuple[int, int]] = []
        for i, item, under in sorted(found, key=lambda one: isinstance(one[1], int)):
            if under is None or _sole(under, graph.predecessors(under)) != item:
                continue
            edge = (i, at[under])
            place = bisect_right(parallel, edge)
            before, after = parallel[:place][-1:], parallel[place : place + 1]
            if all(j < edge[1] for _, j in before) and all(edge[1] < j for _, j in after):
                parallel.insert(place, edge)
                of[under] = of[item]
    return of


def _sole(item: Item, neighbours: Iterable[Item]) -> Item | None:
    """The only neighbour, among those of the item's own kind if there are any."""
    found = list(neighbours)
    alike = [one for one in found if type(one) is type(item)] or found
    return alike[0] if len(alike) == 1 else None


def _distances(rows: Rows, columns: Mapping[Item, Item], widths: Mapping[Item, float]) -> Distances:
    """The columns right of each and how far they must be, in topological order."""
    import networkx as nx

    right_of: Distances = {column: {} for column in columns.values()}
    for row in rows:
        for left, right in pairwise(row):
            distance, known = (widths[left] + widths[right]) / 2, right_of[columns[left]]
            known[columns[right]] = max(known.get(columns[right], 0.0), distance)
    graph = nx.DiGraph((left, right) for left, known in right_of.items() for right in known)
    graph.add_nodes_from(right_of)
    return {column: right_of[column] for column in nx.topological_sort(graph)}


def _spread(distances: Distances, wanted: Mapping[Item, float]) -> Mapping[Item, float]:
    """Places near those wanted at which columns do not overlap.

    Pushing to the right keeps the distances, and so does pushing to the left; so does the mean.
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
