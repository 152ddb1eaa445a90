"""Layout problems: what is read and refused, scores, and solvers beside brute force."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.experiment import Store
from eval.gap import cells, gap
from eval.gap.__main__ import main
from eval.gap.problem import MEASURES, Measure, Problem
from eval.gap.program import joint_program
from eval.gap.randoms import random_problem
from eval.gap.reading import ProblemError, parse, read
from eval.gap.rules import hoisted, one_layout, producer_wins
from eval.gap.score import (
    Score,
    Solution,
    SolutionError,
    read_solution,
    score,
    solution_data,
)
from eval.gap.search import beam, tree_programming
from eval.gap.solvers import SOLVERS
from eval.networks import build
from eval.store import Table
from optimizer.choice.posed import Posed, posed
from optimizer.choice.problem_data import fixed_ns, problem_data, problem_text
from optimizer.pipeline import LEVELS
from tests.libraries.bench import Bench
from tests.libraries.command import vtensor
from tests.optimizer.graphs import extended_of, random_graph
from vtensor.frontends.export import export

PAGE = Path(__file__).parents[2] / "docs" / "layout-problem.md"
BLOCKS: list[tuple[str, str]] = re.findall(
    r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)
EXAMPLE: dict[str, Any] = json.loads(next(code for kind, code in BLOCKS if kind == "json"))
seeds = st.integers(0, 10**6)


def best(problem: Problem, measure: Measure) -> float:
    """Return the least cost over all choices."""
    names = [node.name for node in problem.nodes]
    ways = (range(len(node.alternatives)) for node in problem.nodes)
    choices = (Solution(dict(zip(names, numbers, strict=True))) for numbers in product(*ways))
    return min(float(getattr(score(problem, choice), measure)) for choice in choices)


def cost(problem: Problem, solver: str, measure: Measure) -> float:
    """Return the cost of a solver's solution."""
    return float(getattr(score(problem, SOLVERS[solver](problem, measure)), measure))


@settings(max_examples=12, deadline=None)
@given(seeds, st.integers(1, 6))
def test_brute_force_finds_the_optimum_of_the_program_and_nothing_is_below(
    seed: int, n: int
) -> None:
    problem = parse(random_problem(seed, n))
    for measure in MEASURES:
        least = best(problem, measure)
        assert cost(problem, cells.OPTIMUM, measure) == least
        assert all(cost(problem, name, measure) >= least for name in SOLVERS)
        whole = beam(problem, measure, width=10**6)  # nothing is ever cut
        assert getattr(score(problem, whole), measure) == least


@settings(max_examples=12, deadline=None)
@given(seeds)
def test_programming_is_exact_on_trees(seed: int) -> None:
    data = random_problem(seed, 8)
    for number, node in enumerate(data["nodes"]):  # a chain: no conversion can be shared
        node["reads"] = [f"v{number - 1}" if number else "x"]
        data["values"][f"v{number}"] = {"tensor": "C=64"}
        for row in node["alternatives"]:
            row["reads"] = row["reads"][:1]
    data["values"]["x"]["tensor"] = "C=64"
    problem = parse({**data, "outputs": [{"value": "v7", "layout": "NHWC"}]})
    for measure in MEASURES:
        found = getattr(score(problem, tree_programming(problem, measure)), measure)
        assert found == cost(problem, cells.OPTIMUM, measure)


def posed_of(seed: int, level: str = "all") -> Posed:
    """Return the problem of a random graph of toy operators."""
    return posed(extended_of(random_graph(seed)), LEVELS[level])


@pytest.mark.parametrize("seed", range(6))
def test_file_scores_choices_as_the_optimiser_does(bench: Bench, seed: int) -> None:
    """The optimiser's cost functions and the checker of files share no code."""
    own = posed_of(seed)
    data = problem_data(own, {"model": "random"})
    assert problem_data(posed_of(seed), {"model": "random"}) == data
    assert json.loads(problem_text(data)) == data
    problem, fixed = parse(data), fixed_ns(own.problem)
    for shift in range(4):
        choice = {n: (i + shift) % len(v) for i, (n, v) in enumerate(own.problem.variants.items())}
        moved = own.problem.shared_cost(choice)
        time = own.problem.time_cost(choice) + fixed
        assert score(problem, Solution(choice)) == Score(moved.bytes, time, moved.transforms)
    row = cells.row(data)
    assert row["certified"] == [*MEASURES]
    assert row["bytes"][cells.PLAN] >= row["bytes"][cells.OPTIMUM]


def test_wrong_scores_and_optima_are_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twins: a plan that reports a byte less, a solver that is no optimum, a false bound."""
    data = next(d for d in (problem_data(posed_of(seed), {}) for seed in range(9)) if better(d))
    cells.row(data)
    lying = deepcopy(data)
    lying["plan"]["bytes"] -= 1
    with pytest.raises(AssertionError, match="the checker scores"):
        cells.row(lying)
    lying = deepcopy(data)
    lying["optima"]["ns"]["cost"] += 1
    assert cells.row(lying)["certified"] == ["bytes"]
    monkeypatch.setitem(SOLVERS, cells.OPTIMUM, producer_wins)
    with pytest.raises(AssertionError, match="below the optimum"):
        cells.row(data)


def better(data: dict[str, Any]) -> bool:
    """Return whether the resolver's own alternatives move more bytes than needed."""
    problem = parse(data)
    return score(problem, producer_wins(problem)).bytes > cost(problem, cells.OPTIMUM, "bytes")


def test_readers_share_a_conversion_unless_the_solution_says_otherwise() -> None:
    branch = deepcopy(EXAMPLE)
    way = {"reads": ["NCHW"], "writes": ["NCHW"], "ns": 1}
    for name in "ab":
        branch["values"][name] = branch["values"]["y"]
        node = {"name": name, "reads": ["c"], "writes": [name], "alternatives": [way]}
        branch["nodes"].append(node)
    problem = parse(branch)
    assert score(problem, Solution()) == Score(2048, 722, 2)
    assert score(problem, producer_wins(problem)) == Score(4096, 902, 4)
    assert score(problem, hoisted(problem)) == Score(2048, 722, 2)
    branch["nodes"][-1]["alternatives"] = [{**way, "reads": ["NCHW8c"]}]
    mixed = parse(branch)  # not all readers of the branch want the same: nothing is hoisted
    assert score(mixed, hoisted(mixed)) == Score(3072, 812, 3)
    assert score(mixed, Solution({"conv": 1})) == Score(1024, 732, 1)


def test_one_layout_takes_the_better_of_two() -> None:
    data = deepcopy(EXAMPLE)
    [tensor] = data["tensors"].values()
    tensor |= {"plain": "NCHW", "channels_last": "NCHW8c"}  # whatever its name
    assert one_layout(parse(data), "ns").choice == {"conv": 1, "next": 0}
    data["nodes"][0]["alternatives"][1]["ns"] = 900
    assert one_layout(parse(data), "ns").choice == {"conv": 0, "next": 0}


Change = Callable[[dict[str, Any]], object]
TENSOR, CONV = next(iter(EXAMPLE["tensors"])), "nodes[0] 'conv'"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda d: d.update(version=2), "version: 2 is not 1"),
        (lambda d: d.pop("nodes"), "'nodes' is missing"),
        (lambda d: d.update(nodes={}), r"nodes: \{\} is no list"),
        (lambda d: d["nodes"][0].update(reads=["y"]), "cycle, (conv -> next|next -> conv)"),
        (
            lambda d: d["nodes"][1].update(alternatives=[]),
            r"nodes\[1\] 'next'.alternatives: a node",
        ),
        (lambda d: d["nodes"][1].pop("alternatives"), "'next': 'alternatives' is missing"),
        (lambda d: d["nodes"][0]["alternatives"][1].update(ns=-1), r"\[1\].ns: a cost of -1"),
        (lambda d: d["nodes"][0]["alternatives"][1].update(ns=float("nan")), "cost of nan"),
        (lambda d: d["nodes"][0]["alternatives"][1].update(ns="5"), r"\[1\].ns: '5' is no number"),
        (lambda d: d["tensors"][TENSOR]["ns"][0].pop(), "2 rows of 2 costs"),
        (lambda d: d["tensors"][TENSOR]["ns"][1].__setitem__(0, -3), r"ns\[1\]\[0\]: a cost of -3"),
        (lambda d: d["tensors"][TENSOR].update(plain="NC"), "plain: there is no layout 'NC'"),
        (lambda d: d["values"]["c"].update(tensor="t"), r"\['c'\].tensor: there is no tensor 't'"),
        (lambda d: d["values"].update(z=d["values"]["y"]), r"values\['z'\]: no node writes it"),
        (lambda d: d["values"]["y"].update(given="NCHW"), "'y' is made by an input, too"),
        (lambda d: d["nodes"][1].update(name="conv"), "the name 'conv' comes twice"),
        (lambda d: d["nodes"][0]["alternatives"][0].update(reads=[]), "0 layouts for 1 values"),
        (lambda d: d["nodes"][0]["alternatives"][0].update(reads=["NHWC"]), "no layout 'NHWC'"),
        (lambda d: d["outputs"][0].update(value="w"), r"outputs\[0\].value: there is no value 'w'"),
        (lambda d: d["nodes"][0].update(reads=["w"]), r"'conv'.reads\[0\]: there is no value 'w'"),
    ],
)
def test_bad_problem_names_the_place(change: Change, place: str) -> None:
    data = deepcopy(EXAMPLE)
    parse(data)
    change(data)
    with pytest.raises(ProblemError, match=place):
        parse(data)


@pytest.mark.parametrize(
    ("solution", "place"),
    [
        (Solution({"no": 0}), "there is no node 'no'"),
        (Solution({"conv": 2}), r"choice\['conv'\]: 2 is none of its 2 alternatives, 0 to 1"),
        (Solution({"conv": -1}), "-1 is none"),
        (Solution({"conv": True}), "True is none"),
        (Solution({}, {("x", "NCHW8c"): 2}), r"repeats\['x'\]\['NCHW8c'\]: 2 times, but 1"),
        (Solution({}, {("x", "NCHW"): 1}), "1 times, but 0 readers"),
    ],
)
def test_bad_solution_names_the_place(solution: Solution, place: str) -> None:
    with pytest.raises(SolutionError, match=place):
        score(parse(EXAMPLE), solution)


@pytest.mark.parametrize("text", ["", "[1]", '{"choice": 1}', '{"repeats": {"x": 1}}'])
def test_bad_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text)
    with pytest.raises(SolutionError, match=r"file\.json"):
        read_solution(file)
    with pytest.raises(ProblemError, match=r"file\.json"):
        read(file)


def test_nodes_in_any_order_are_sorted() -> None:
    turned = {**EXAMPLE, "nodes": EXAMPLE["nodes"][::-1]}
    assert parse(turned).nodes == parse(EXAMPLE).nodes


def test_solution_is_written_as_it_is_read(tmp_path: Path) -> None:
    solution = Solution({"conv": 1}, {("x", "NCHW8c"): 1})
    (tmp_path / "s.json").write_text(json.dumps(solution_data(solution)))
    assert read_solution(tmp_path / "s.json") == solution


def test_solver_of_the_page_scores_what_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = [code for kind, code in BLOCKS if kind == "python"]
    [_, said] = [json.loads(code) for kind, code in BLOCKS if kind == "json"]
    files = [str(tmp_path / name) for name in ("problem.json", "solution.json")]
    Path(files[0]).write_text(json.dumps(EXAMPLE))
    (tmp_path / "solver.py").write_text(code)
    subprocess.run([sys.executable, str(tmp_path / "solver.py"), *files], check=True, timeout=60)
    main(scored=(Path(files[0]), Path(files[1])))
    assert json.loads(capsys.readouterr().out) == said
    problem = parse(EXAMPLE)
    assert score(problem, joint_program(problem, "ns")) == Score(0, 640, 0)
    Path(files[1]).write_text('{"choice": {"conv": 7}}')
    with pytest.raises(Exception, match="1"):
        main(scored=(Path(files[0]), Path(files[1])))
    assert "7 is none of its 2 alternatives" in capsys.readouterr().err


def test_solvers_of_the_page_are_those_that_there_are() -> None:
    listed = PAGE.read_text(encoding="utf-8").partition("## The solvers")[2]
    names = re.findall(r"^\| ([\w ,]+) \|", listed, re.MULTILINE)[1:]
    several = [f"beam {width}" for width in (1, 4, 16, 64)]
    assert [*names[:6], *several, *names[7:]] == [*SOLVERS]


def test_report_has_a_line_for_each_solver(tmp_path: Path) -> None:
    data = {"network": "random/0", "cap": "-", "mix": "-", **cells.row(random_problem(0, 12))}
    run = {"when": "1", "machine": {}}
    network = {**data, "network": "squeezenet"}
    rows = [data, network, {**network, "costs": cells.MEASURED}]
    Table(tmp_path, gap.NAME, gap.KEY, run).add(rows)

    text = "\n".join(gap.section(Store(tmp_path)))
    assert all(text.count(f"\n| {name} |") == 3 for name in SOLVERS)
    assert (tmp_path / "gap.svg").exists()


def test_command_writes_a_problem_twice_the_same(tmp_path: Path) -> None:

    model = tmp_path / "model.onnx"
    onnx.save(export(build("mobilenet_v1", size=32)), model)
    texts = []
    for name in ("a.json", "b.json"):
        ran = vtensor("plan", str(model), "--problem", str(tmp_path / name))
        assert ran.exit_code == 0, ran.output
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    assert len(texts[0]) < 200_000
    row = cells.row(json.loads(texts[0]))
    assert row["certified"] == [*MEASURES]
    for more, message in ((["--json"], "goes with none"), ([], "cannot be written")):
        ran = vtensor("plan", str(model), "--problem", str(tmp_path / "no" / "a.json"), *more)
        assert ran.exit_code == 1
        assert message in ran.output
