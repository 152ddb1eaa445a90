"""Solutions of a layout problem, and their score by a checker that no solver shares code with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from eval.gap.problem import Problem
from vtensor.errors import VTensorError


class SolutionError(VTensorError):
    """A solution does not fit its problem; the message names the node or value."""


@dataclass(frozen=True)
class Solution:
    """A choice of alternatives.

    Attributes:
        choice: index of the alternative by node; a node that it lacks has the first one.
        repeats: how often a conversion runs, by (value, layout); once unless stated. A solver that
            does not share the conversions of one value among its readers states it here.
    """

    choice: Mapping[str, int] = field(default_factory=dict)
    repeats: Mapping[tuple[str, str], int] = field(default_factory=dict)


class Score(NamedTuple):
    """The cost of a solution in both measures, and its number of conversions."""

    bytes: float
    ns: float
    conversions: int


def score(problem: Problem, solution: Solution) -> Score:
    """Return the cost of a solution.

    A value is converted into each layout in which it is wanted but not made, once for all readers
    or as often as the solution says. Constants are not part of a problem: their conversions are
    free.

    Raises:
        SolutionError: the solution names a node, an alternative or a conversion that does not
            exist, or repeats a conversion more often than the value has readers.
    """
    choice, count = solution.choice, {node.name: len(node.alternatives) for node in problem.nodes}
    for name, number in choice.items():
        if name not in count:
            raise SolutionError(f"choice: there is no node {name!r}")
        if type(number) is not int or not 0 <= number < count[name]:
            text = f"{number!r} is none of its {count[name]} alternatives, 0 to {count[name] - 1}"
            raise SolutionError(f"choice[{name!r}]: {text}")
    chosen = [node.alternatives[choice.get(node.name, 0)] for node in problem.nodes]
    moved = sum(alternative.bytes for alternative in chosen)
    ns = sum(alternative.ns for alternative in chosen)
    number = sum(alternative.conversions for alternative in chosen)
    made = dict(problem.given)
    for node, alternative in zip(problem.nodes, chosen, strict=True):
        made.update(zip(node.writes, alternative.writes, strict=True))
    wanted = Counter[tuple[str, str]](problem.outputs)
    for node, alternative in zip(problem.nodes, chosen, strict=True):
        wanted.update(zip(node.reads, alternative.reads, strict=True))
    needed = {edge: uses for edge, uses in wanted.items() if made[edge[0]] != edge[1]}
    for (value, layout), times in solution.repeats.items():
        uses = needed.get((value, layout), 0)
        if type(times) is not int or not 1 <= times <= uses:
            text = f"{times!r} times, but {uses} readers need it"
            raise SolutionError(f"repeats[{value!r}][{layout!r}]: {text}")
    for value, layout in needed:
        times, tensor = solution.repeats.get((value, layout), 1), problem.values[value]
        moved += times * (tensor.layouts[made[value]] + tensor.layouts[layout])
        ns += times * tensor.ns[made[value], layout]
        number += times
    return Score(moved, ns, number)


def read_solution(path: Path) -> Solution:
    """Return the solution in a file: ``{"choice": {NODE: INDEX}}``, and perhaps ``"repeats":
    {VALUE: {LAYOUT: TIMES}}``.

    Raises:
        SolutionError: the file is no such JSON.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SolutionError(f"{path}: cannot be read as JSON: {error}") from error
    entries = data if isinstance(data, dict) else {"choice": None}
    choice: Any = entries.get("choice", {})
    repeats: Any = entries.get("repeats", {})
    mappings = [choice, repeats, *(repeats.values() if isinstance(repeats, dict) else ())]
    if not all(isinstance(part, dict) for part in mappings):
        raise SolutionError(f"{path}: choice and repeats are mappings, repeats one of mappings")
    flat = {(value, layout): n for value, by in repeats.items() for layout, n in by.items()}
    return Solution(choice, flat)


def solution_data(solution: Solution) -> dict[str, Any]:
    """Return a solution as plain data, as ``read_solution`` takes it."""
    repeats: dict[str, dict[str, int]] = {}
    for (value, layout), times in solution.repeats.items():
        repeats.setdefault(value, {})[layout] = times
    return {"choice": dict(solution.choice), **({"repeats": repeats} if repeats else {})}
