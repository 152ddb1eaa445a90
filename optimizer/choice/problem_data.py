"""A layout problem as plain data, for a file that other solvers read: ``docs/layout-problem.md``.

The data has the alternatives of each node, the cost of each kernel and of each conversion, the plan
that the optimiser chose, and the least costs that the integer program proved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from optimizer.choice.elsewhere import FurtherVariants
from optimizer.choice.estimate import Estimate
from optimizer.choice.ilp import choose
from optimizer.choice.posed import Posed
from optimizer.choice.problem import Clock, Problem
from optimizer.settings import TIME_LIMIT
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.lowered import OpNode, Value, in_variant
from resolver.modes import channels_last
from vtensor.language.operators import info_of
from vtensor.language.tensor import VTensor

#: The version of the format. A reader refuses other versions.
VERSION = 1

#: The two measures of a solution, and the objective of the integer program for each.
MEASURES = {"bytes": "shared", "ns": "time"}


def problem_data(
    posed: Posed, about: Mapping[str, object], time_limit: float = TIME_LIMIT
) -> dict[str, Any]:
    """Return a problem as plain data, in the format of ``docs/layout-problem.md``.

    Args:
        posed: the problem and the plan.
        about: what the file says of its origin, such as the model and the passes.
        time_limit: seconds of the solver for each of the two optima; 0 leaves the optima out.
    """
    problem, clock = posed.problem, _clock(posed.problem)
    tensors = _Tensors(problem)
    values = dict[str, dict[str, str]]()
    given = [name for name in problem.uses if name not in problem.makers]
    made = (name for node in problem.graph.operators for name in node.outputs)
    for name in (*given, *made):
        if not problem.value(name).constant:
            values[name] = {"tensor": tensors.key(name)}
            if name not in problem.makers:
                values[name]["given"] = str(problem.made(name, 0))
    outputs = [
        {"value": value, "layout": str(problem.wanted(value, use, 0))}
        for value, uses in problem.uses.items()
        for use in uses
        if not use.node
    ]
    inner = FurtherVariants(problem.graph, clock, {}, Estimate()).graph.tensors
    data = {
        "version": VERSION,
        "about": {**about, "costs": clock.basis},
        "tensors": dict(tensors.rows()),
        "values": values,
        "nodes": [_node(problem, node, inner) for node in problem.graph.operators],
        "outputs": outputs,
        "plan": _plan(posed),
    }
    if time_limit:
        data["optima"] = {name: optimum(problem, name, time_limit) for name in MEASURES}
    return data


def _plan(posed: Posed) -> dict[str, Any]:
    """Return what the optimiser reports of its plan: Transforms, their bytes, and the nanoseconds
    if it minimised time.

    The choice has the plan's alternatives; it is left out if a node runs in none of them.
    """
    problem, plan = posed.problem, posed.plan
    ends = [(plan.values[node.input], plan.values[node.output]) for node in plan.transforms()]
    running = [(source, target) for source, target in ends if not source.constant]
    row: dict[str, Any] = {
        "conversions": len(running),
        "bytes": sum(source.nbytes + target.nbytes for source, target in running),
    }
    certificate = plan.certificate
    if (
        certificate
        and certificate.ns_after
        and certificate.open_nodes == len(posed.planner.variants)
    ):
        row["ns"] = certificate.ns_after + fixed_ns(posed.planner)
    nodes = {node.name: node for node in plan.operators}
    choice = dict[str, int]()
    for name, variants in problem.variants.items():
        node, seen = problem.nodes[name], problem.graph.values
        matching = (i for i, v in enumerate(variants) if _runs(node, v, nodes, seen))
        number = next(matching, None)
        if number is None:
            return row
        choice |= {name: number} if number else {}
    return row | {"choice": choice}


def _runs(
    node: OpNode, variant: Variant, nodes: Mapping[str, OpNode], values: Mapping[str, Value]
) -> bool:
    """Return whether the nodes of a plan run a node in a variant, layouts of constants aside."""
    for piece in in_variant(node, variant):
        other = nodes.get(piece.name)
        if other is None or other.variant.library != piece.variant.library:
            return False
        if len(other.followers) != len(piece.followers):
            return False
        names = (*piece.inputs, *piece.outputs)
        for name, own, theirs in zip(
            names, piece.variant.layouts, other.variant.layouts, strict=True
        ):
            seen = name in values and not values[name].constant
            if seen and not own.same(theirs, values[name].dims):
                return False
    return True


def _clock(problem: Problem) -> Clock:
    assert problem.clock is not None, "a problem file has times"
    return problem.clock


def optimum(problem: Problem, measure: str, time_limit: float = TIME_LIMIT) -> dict[str, Any]:
    """Return the certificate of the least cost in a measure: the best choice, its cost, and a bound
    that no choice is below.

    Nodes whose alternative is the first are left out of the choice.

    Args:
        problem: the problem.
        measure: ``bytes`` or ``ns``.
        time_limit: seconds for the solver.

    Raises:
        SolverError: the solver is missing, or finds nothing within its time.
    """
    objective = MEASURES[measure]
    solution = choose(problem, objective, time_limit=time_limit)
    fixed = fixed_ns(problem) if measure == "ns" else 0
    cost = problem.objective(objective)(solution.chosen)
    return {
        "solver": solution.solved.solver,
        "status": solution.solved.status,
        "cost": cost + fixed,
        "bound": solution.bound + fixed,
        "choice": {name: number for name, number in solution.chosen.items() if number},
    }


def fixed_ns(problem: Problem) -> int:
    """Return the nanoseconds of the nodes that have one alternative, which the objective ``time``
    of a problem leaves out.
    """
    clock, tensors = _clock(problem), problem.graph.tensors
    fixed = (node for node in problem.graph.operators if node.name not in problem.variants)
    return sum(clock.node(node, tensors) or 0 for node in fixed)


def problem_text(data: Mapping[str, Any]) -> str:
    """Return data as JSON with a line for each tensor, value and alternative.

    >>> print(problem_text({"version": 1, "values": {"x": {"tensor": "t"}}, "nodes": []}), end="")
    {
    "version": 1,
    "values": {
     "x": {"tensor": "t"}
    },
    "nodes": []
    }
    """
    return (
        "{\n" + ",\n".join(f'"{name}": {_section(item)}' for name, item in data.items()) + "\n}\n"
    )


def _section(item: Any) -> str:
    """Return a part of the file: a mapping or list with a line for each entry."""
    if isinstance(item, dict) and item:
        lines = (f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in item.items())
        return "{\n" + ",\n".join(lines) + "\n}"
    if isinstance(item, list) and item:
        return "[\n" + ",\n".join(map(_entry, item)) + "\n]"
    return json.dumps(item)


def _entry(item: Mapping[str, Any]) -> str:
    """Return an entry of a list; a node has a line for each of its alternatives."""
    if "alternatives" not in item:
        return f" {json.dumps(item)}"
    head = json.dumps({name: value for name, value in item.items() if name != "alternatives"})
    rows = ",\n".join(f"  {json.dumps(row)}" for row in item["alternatives"])
    return f' {head[:-1]}, "alternatives": [\n{rows}]}}'


class _Tensors:
    """The tensors of a problem: values of equal type and sizes share a row.

    Args:
        problem: the problem; it has a clock.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._rows: dict[str, tuple[str, dict[Layout, None]]] = {}
        made = (name for node in problem.graph.operators for name in node.outputs)
        for value in dict.fromkeys(chain(problem.uses, made)):
            if not problem.value(value).constant:
                layouts = self._row(value)[1]
                layouts.update(dict.fromkeys(self._ends(value)))

    def key(self, value: str) -> str:
        """Return the key of a value's row: its type and sizes."""
        problem = self._problem
        text, doubt = problem.graph.tensors[value].summary(), problem.doubt(value)
        return f"{text}, {doubt} ns more for a conversion" if doubt else text

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the key and the row of each tensor: the bytes of each layout, and the nanoseconds
        of each conversion.
        """
        problem = self._problem
        for value, layouts in self._rows.values():
            tensor = problem.value(value)
            names = {
                name: str(layout)
                for name, wanted in (
                    ("plain", Layout.plain(tensor.dims)),
                    ("channels_last", channels_last(tensor.dims)),
                )
                if (layout := problem.same(value, wanted)) in layouts
            }
            costs = [
                [0 if source == target else problem.ns(value, source, target) for target in layouts]
                for source in layouts
            ]
            sizes = {str(la): la.nbytes(tensor.dims, tensor.dtype) for la in layouts}
            yield self.key(value), {"layouts": sizes, "ns": costs, **names}

    def _row(self, value: str) -> tuple[str, dict[Layout, None]]:
        return self._rows.setdefault(self.key(value), (value, {}))

    def _ends(self, value: str) -> Iterator[Layout]:
        """Yield the layouts in which a value may be made or wanted."""
        problem = self._problem
        maker = problem.makers.get(value)
        for number in range(len(problem.variants_of(maker)) if maker else 1):
            yield problem.made(value, number)
        for use in problem.uses.get(value, ()):
            for number in range(len(problem.variants_of(use.node)) if use.node else 1):
                yield problem.wanted(value, use, number)


def _node(problem: Problem, node: OpNode, tensors: Mapping[str, VTensor]) -> dict[str, Any]:
    """Return a node with its alternatives as plain data, constants left out."""
    info = info_of(node.op)
    visible = [not problem.value(name).constant for name in (*node.inputs, *node.outputs)]
    count = len(node.inputs)
    alternatives = list[dict[str, Any]]()
    for number, variant in enumerate(problem.variants_of(node.name)):
        names = [
            str(problem.same(name, layout))
            for name, layout in zip((*node.inputs, *node.outputs), variant.layouts, strict=True)
        ]
        shown = [name if seen else None for name, seen in zip(names, visible, strict=True)]
        row: dict[str, Any] = {"library": variant.library, "kernel": variant.kernel}
        row["reads"] = [name for name in shown[:count] if name is not None]
        row["writes"] = [name for name in shown[count:] if name is not None]
        row["ns"] = _alternative_ns(problem, node, number)
        if inside := _inside(node, variant, tensors):
            row |= {"bytes": sum(inside), "conversions": len(inside)}
        alternatives.append(row)
    return {
        "name": node.name,
        "op": node.op_name,
        "kind": "product" if info.product else "elementwise" if info.elementwise else "other",
        "reads": [name for name in node.inputs if not problem.value(name).constant],
        "writes": [name for name in node.outputs if not problem.value(name).constant],
        "alternatives": alternatives,
    }


def _alternative_ns(problem: Problem, node: OpNode, number: int) -> int:
    """Return what an alternative costs in the objective ``time``, in nanoseconds."""
    if node.name in problem.variants:
        return problem.charged(node.name, number)
    return _clock(problem).node(node, problem.graph.tensors) or 0


def _inside(node: OpNode, variant: Variant, tensors: Mapping[str, VTensor]) -> list[int]:
    """Return the bytes of each conversion between the pieces of a variant; empty if it has none."""
    moved, made = list[int](), dict[str, Layout]()
    for piece in in_variant(node, variant) if variant.pieces else ():
        for name, layout in zip(piece.inputs, piece.variant.layouts, strict=False):
            tensor, before = tensors[name], made.get(name)
            if before is not None and not layout.same(before, tensor.dims):
                ends = (before, layout)
                moved.append(sum(end.nbytes(tensor.dims, tensor.dtype) for end in ends))
        made[piece.outputs[0]] = piece.variant.layouts[len(piece.inputs)]
    return moved
