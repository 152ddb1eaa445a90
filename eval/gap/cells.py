"""A program: how far each solver is from the optimum, under a cap on the instruction set.

``python -m eval.gap.cells CAP NETWORKS MIXES SIZE COSTS`` prints a line of JSON for each network
and mix. SIZE is that of the images of the twelve in pixels, 0 their own. COSTS are ``estimated`` or
``measured``.
``eval/processes.py`` says why it is a process of its own.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from eval.gap.problem import MEASURES, Problem
from eval.gap.program import TIME_LIMIT
from eval.gap.randoms import random_problem
from eval.gap.reading import parse
from eval.gap.score import Score, Solution, score
from eval.gap.solvers import SOLVERS
from eval.mixes import mixes
from eval.models_today.__main__ import FOLDER
from eval.networks import NAMES, build
from eval.networks.models import light_model, light_names, seeded
from vtensor import limit_isa
from vtensor.commands.problem_file import problem_text_of
from vtensor.commands.shared import Mix, Passes
from vtensor.errors import VTensorError
from vtensor.frontends.onnx import Model
from vtensor.language.graph import Graph

#: The solver that finds the optimum, and the plan of the optimiser's own choice, which takes fewer
#: alternatives.
OPTIMUM, PLAN = "joint ILP", "session's plan"

#: Where the costs of kernels and conversions come from.
ESTIMATED, MEASURED = "estimated", "measured"

#: By which fraction two optima may differ, as solvers of integer programs round.
ROUNDING = 1e-7

#: The prefixes of networks that are not among the twelve: those of the ``onnx`` package, models of
#: today that were made before, and random problems.
LIGHT, TODAY, RANDOM = "onnx/", "today/", "random/"

#: The name that stands for mix and cap of a random problem, and its number of nodes.
NONE, NODES = "-", 120


def networks() -> list[str]:
    """Return the names of all networks: those of the package ``onnx``, the twelve, and the models
    of today whose files exist.
    """
    light = [f"{LIGHT}{name}" for name in light_names()]
    files = sorted(FOLDER.glob("*.dynamo.npz"))
    today = [f"{TODAY}{file.name.removesuffix('.dynamo.npz')}" for file in files]
    return [*light, *NAMES, *today]


def graph_of(name: str, size: int | None = None) -> Graph:
    """Return the graph of a network; ``size`` is that of the images of the twelve."""
    if name.startswith(LIGHT):
        return Model(seeded(light_model(name.removeprefix(LIGHT)), 0)).graph({})
    if name.startswith(TODAY):
        path = FOLDER / f"{name.removeprefix(TODAY)}.dynamo.onnx"
        with np.load(path.with_suffix(".npz")) as feeds:
            model = Model(path)
            shapes = {key: feeds[key].shape for key in feeds}
            deciding = {key: feeds[key] for key in model.deciding}
            return model.graph(shapes, deciding)
    return build(name, size=size)


def problem_data_of(graph: Graph, mix: Mix, costs: str, **about: str) -> dict[str, Any]:
    """Return the layout problem of a graph as plain data, with the certificates of its optima.

    Args:
        graph, mix: the network and its libraries.
        costs: ``estimated`` or ``measured``: on one thread.
        about: what the data says of its origin.
    """
    passes = Passes.parse("all", "", tune=costs == MEASURED)
    text = problem_text_of(graph, about, passes, mix, 1, TIME_LIMIT)
    data: dict[str, Any] = json.loads(text)
    return data


def check_plan(problem: Problem, plan: dict[str, Any]) -> Score | None:
    """Return the score of the optimiser's plan, which has to be what the optimiser reports of it.

    Returns None if the file has no choice of the plan.

    Raises:
        AssertionError: the score differs from the report.
    """
    if "choice" not in plan:
        return None
    scored = score(problem, Solution(plan["choice"]))
    told = Score(plan["bytes"], plan.get("ns", scored.ns), plan["conversions"])
    assert scored == told, f"the plan reports {told}, the checker scores {scored}"
    return scored


def row(data: dict[str, Any]) -> dict[str, Any]:
    """Return the results of all solvers on a problem.

    ``bytes`` and ``ns`` have the cost of each solver that minimises this measure. ``conversions``
    and ``seconds``, the processor's time, are those of minimising nanoseconds. ``certified`` lists
    the measures of which the optimiser's certificate proves the same optimum.

    Raises:
        AssertionError: a solver is below the optimum, or the plan reports another score.
    """
    problem = parse(data)
    planned = check_plan(problem, data["plan"]) if "plan" in data else None
    counts = [len(node.alternatives) for node in problem.nodes]
    result: dict[str, Any] = {"nodes": len(counts), "alternatives": sum(counts), "certified": []}
    for measure in MEASURES:
        scores, seconds = dict[str, Score](), dict[str, float]()
        for name, solver in SOLVERS.items():
            begin = time.process_time()
            scores[name] = score(problem, solver(problem, measure))
            seconds[name] = round(time.process_time() - begin, 4)
        if planned:
            scores[PLAN] = planned
        least = getattr(scores[OPTIMUM], measure)
        certificate = problem.optima.get(measure, {"cost": -1, "status": ""})
        same = abs(certificate["cost"] - least) <= ROUNDING * least
        if same and certificate["status"] == "optimal":
            result["certified"].append(measure)
        low = least * (1 - ROUNDING)
        below = [name for name, scored in scores.items() if getattr(scored, measure) < low]
        assert not below, f"{below} are below the optimum, {least} {measure}"
        result[measure] = {name: getattr(scored, measure) for name, scored in scores.items()}
    conversions = {name: scored.conversions for name, scored in scores.items()}
    return {**result, "conversions": conversions, "seconds": seconds}


def main(cap: str, names: str, mix_names: str, size: str, costs: str) -> None:
    """Cap the instruction set (unless ``cap`` is ``max``), solve the problems and print the rows.

    A network that cannot be planned in a mix gets a row with the reason. The arguments are those of
    the program, in the module's docstring.
    """
    if cap not in ("max", NONE):
        limit_isa(cap)
    for name in names.split(","):
        if name.startswith(RANDOM):
            key = {"network": name, "cap": NONE, "mix": NONE, "costs": costs}
            seed = int(name.removeprefix(RANDOM))
            print(json.dumps({**key, **row(random_problem(seed, NODES))}), flush=True)
            continue
        graph = graph_of(name, int(size) or None)
        for mix in mix_names.split(","):
            key = {"network": name, "cap": cap, "mix": mix, "costs": costs}
            try:
                data = problem_data_of(graph, mixes()[mix], costs, model=name, cap=cap)
            except VTensorError as error:
                line = str(error).partition("\n")[0]
                print(json.dumps({**key, "failed": line}), flush=True)
            else:
                print(json.dumps({**key, **row(data)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
