"""The commands that explain: what is registered, what is generated, where conversions come from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from libdesc import register
from libdesc.dispatcher import dispatcher_source
from libdesc.registry import registry
from ops import Conv2D, Relu
from resolver.lowered import OpNode
from tests.libraries.command import data_of, vtensor
from tests.libraries.scratch import scratch_registry
from tests.optimizer.clocks import Drawn
from vtensor import Graph, Session, save_onnx
from vtensor.language.operators import OPERATORS
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning import tuned
from vtensor.runtime.tuning import tuner as tuning

TOY = Path(__file__).parents[1] / "libraries" / "toy"


#: Libraries with which SqueezeNet's plan has a Transform at run time.
CONVERTED = ("--libraries", "onednn,eigen,numpy")


def test_libs_says_where_each_comes_from() -> None:
    ran, data = vtensor("libs"), data_of("libs")
    assert [row["priority"] for row in data["libraries"]] == sorted(
        (one.priority for one in registry().libraries.values()), reverse=True
    )
    for row in data["libraries"]:
        assert row["available"] == (row["absent"] is None)
        assert Path(row["description"]).is_file()
        assert row["origin"]
        assert f"{row['origin']}: {row['description']}" in ran.stdout
    assert {row["name"] for row in data["libraries"]} == set(registry().libraries)


def test_libs_shows_an_absent_library_a_tie_and_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone.py").write_text("def probe():\n    return 'libgone.so was not found'\n")
    file = tmp_path / "gone.toml"
    file.write_text(
        '[library]\nname = "gone"\npriority = 0\ndevices = ["cpu"]\nprobe = ".gone:probe"\n'
    )
    monkeypatch.setattr(registry(), "problems", [("entry point bad", "it is broken")])
    with scratch_registry(), register(file):
        ran = vtensor("libs")
        assert (ran.exit_code, vtensor("libs", "--json").exit_code) == (1, 1)
        text = ran.stdout
        assert "gone  absent: libgone.so was not found" in text
        assert f"libdesc.register: {file}" in text
        assert "tie: gone and numpy both have priority 0" in text
        assert "problem with entry point bad: it is broken" in text


def test_check_registers_nothing() -> None:
    before, version = dict(registry().invokers), set(registry().libraries)
    data = data_of("libs", "--check", TOY, "--import")
    assert (data["name"], data["priority"], data["available"]) == ("toy", 50, True)
    assert "nothing was registered" in vtensor("libs", "--check", TOY, "--import").stdout
    assert (dict(registry().invokers), set(registry().libraries)) == (before, version)


def test_check_counts_invokers_and_forgets_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from libdesc import invoker\n\n"
        "@invoker('Relu', library='mine')\n"
        "def mine_relu(ctx, op, x, y):\n    pass\n"
    )
    file = tmp_path / "mine.toml"
    file.write_text(
        '[library]\nname = "mine"\npriority = 1\ndevices = ["cpu"]\ninvokers = [".mine"]\n'
    )
    for _ in range(2):
        assert data_of("libs", "--check", file)["invokers"] == 1
        assert data_of("libs", "--check", file, "--import")["invokers"] == 1
        assert ("Relu", "mine", "cpu") not in registry().invokers


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[library", "is no TOML"),
        ("[library]\nname = 'x'\n", "library.priority is missing"),
    ],
)
def test_check_finds_what_is_wrong(tmp_path: Path, text: str, wanted: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text)
    ran = vtensor("libs", "--check", file)
    assert ran.exit_code == 1
    assert wanted in ran.stderr
    assert "Traceback" not in ran.output
    assert ran.stdout == ""
    assert type(vtensor("libs", "--check", file, "--debug").exception) is not SystemExit


def test_check_runs_nothing_and_lists_all_problems(tmp_path: Path) -> None:
    """What ``--import`` runs is named; with problems, it runs nothing, either."""
    (tmp_path / "boom.py").write_text("raise OSError('this ran')\ndef f():\n    return None\n")
    file = tmp_path / "x.toml"
    head = "[library]\nname = 'x'\npriority = 1\ndevices = ['gpu']\nprobe = '.boom:f'\n"
    file.write_text(head)
    ran = vtensor("libs", "--check", file)
    assert ran.exit_code == 0, ran.output
    assert "library x is well described" in ran.stdout
    assert "  never used: no invoker names this library\n" in ran.stdout
    assert "  never used: no device of kind gpu here: it will never be used\n" in ran.stdout
    assert "  not run: library.probe = '.boom:f': what it answers here\n" in ran.stdout
    assert "nothing was imported" in ran.stdout
    ran = vtensor("libs", "--check", file, "--import")
    assert ran.exit_code == 1
    assert "library.probe = '.boom:f' does not import: OSError: this ran" in ran.stdout

    file.write_text(head + "guideline = '.no:f'\ninvokers = ['.none']\n")
    ran = vtensor("libs", "--check", file)
    assert ran.exit_code == 1
    assert "library x has 2 problems\n" in ran.stdout
    assert "  problem: library.guideline = '.no:f': .no names no file next to it, " in ran.stdout
    assert "  problem: library.invokers: '.none': .none names no file next to it, " in ran.stdout
    done = vtensor("libs", "--check", file, "--json")
    assert done.exit_code == 1
    assert len(json.loads(done.stdout)["problems"]) == 2


def test_libs_says_what_is_never_used(tmp_path: Path) -> None:
    file = tmp_path / "far.toml"
    file.write_text("[library]\nname = 'far'\npriority = 1\ndevices = ['gpu']\n")
    with scratch_registry(), register(file):
        [row] = [row for row in data_of("libs")["libraries"] if row["name"] == "far"]
        text = vtensor("libs").stdout
    reasons = [
        "no invoker names this library",
        "no device of kind gpu here: it will never be used",
    ]
    assert row["unused"] == reasons
    assert all(f"  never used: {reason}\n" in text for reason in reasons)


def test_libs_goes_on_behind_a_version_that_raises(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("def about():\n    raise OSError('no driver')\n")
    file = tmp_path / "odd.toml"
    head = "[library]\nname = 'odd'\npriority = 1\ndevices = ['cpu']\n"
    file.write_text(head + "version = '.odd:about'\n")
    with scratch_registry(), register(file):
        ran = vtensor("libs")
    assert ran.exit_code == 1
    assert "numpy  " in ran.stdout
    assert f"problem with libdesc.register: {file}: library.version = '.odd:about' (" in ran.stdout


def test_ops_has_every_operator_with_its_libraries() -> None:
    data, text = data_of("ops"), vtensor("ops").stdout
    assert [row["operator"] for row in data["operators"]] == sorted(OPERATORS)
    for row in data["operators"]:
        priorities = [one["priority"] for one in row["invokers"]]
        assert priorities == sorted(priorities, reverse=True)
        assert f"\n{row['operator']}  (" in f"\n{text}"
    [relu] = data_of("ops", "Relu")["operators"]
    assert [one["library"] for one in relu["invokers"]][-1] == "numpy"
    assert "(in Python)" in vtensor("ops", "Relu").stdout


def test_dispatcher_prints_what_runs() -> None:
    assert vtensor("dispatcher", "Relu").stdout == dispatcher_source("Relu")
    ran = vtensor("dispatcher", "Relu", "--library", "onednn")
    assert ran.stdout == f"{dispatcher_source('Relu')}\n{registry().libraries['onednn'].text}"
    data = data_of("dispatcher", "Relu", "--library", "onednn")
    assert data["look_ups"] == registry().libraries["onednn"].text


def test_explain_accounts_for_every_transform(squeezenet: Path) -> None:
    data, text = (
        data_of("explain", squeezenet, *CONVERTED),
        vtensor("explain", squeezenet, *CONVERTED).stdout,
    )
    plan = data_of("plan", squeezenet, *CONVERTED)
    assert {row["node"] for row in data["transforms"]} == {r["node"] for r in plan["conversions"]}
    assert data["transform_bytes"] == plan["summary"]["conversion_bytes"]
    assert 0 < data["share"] < 1
    assert data["share"] == pytest.approx(sum(row["share"] for row in data["transforms"]))
    for row in data["transforms"]:
        assert f"{row['node']}: {row['source']} -> {row['target']}" in text
        alternative = row["cheapest_change"]
        assert row["failed"] is None
        assert row["forbidden_by"] or alternative
        assert alternative is None or alternative["bytes"] > 0 or alternative["moved"]
        for asked in row["required_by"]:
            if asked["at"] is None:  # an output's delivery
                continue
            file, line = re.fullmatch(r"(.+):(\d+)", asked["at"]).groups()  # type: ignore[union-attr]
            asked_there = Path(file).read_text().splitlines()[int(line) - 1]
            assert "require" in asked_there or asked_there.startswith(("@", "def "))
            assert asked["library"] in registry().libraries
            assert set(asked["operator"].split(" + ")) <= OPERATORS.keys()


def test_explain_without_alternatives(squeezenet: Path) -> None:
    rows = data_of("explain", squeezenet, *CONVERTED, "--no-alternatives")["transforms"]
    assert rows
    assert not any("cheapest_change" in row for row in rows)
    assert "forbidden" not in vtensor("explain", squeezenet, *CONVERTED, "--no-alternatives").stdout


def test_explain_a_node_and_a_transform(squeezenet: Path) -> None:
    plan = data_of("plan", squeezenet, *CONVERTED)
    transform = plan["conversions"][0]["node"]
    assert (
        data_of("explain", squeezenet, *CONVERTED, "--node", transform)["operator"] == "Transform"
    )
    for step in plan["steps"]:
        if step["operator"] == "Transform":
            continue
        row = data_of("explain", squeezenet, *CONVERTED, "--node", step["node"])
        assert (row["operator"], row["library"]) == (step["operator"], step["library"])
        assert row["declined"] == step["refused"]
        assert all(operand["layout"] for operand in row["operands"])
        text = vtensor("explain", squeezenet, *CONVERTED, "--node", step["node"]).stdout
        assert f"runs on {step['library']}" in text
        break


def test_explain_says_who_declined(squeezenet: Path, tmp_path: Path) -> None:
    file = tmp_path / "shy.toml"
    (tmp_path / "shy.py").write_text(
        "from libdesc import invoker\n\n"
        "@invoker('Relu', library='shy', when=lambda op, x, y: 'it is too shy')\n"
        "def shy_relu(ctx, op, x, y):\n    pass\n"
    )
    file.write_text(
        '[library]\nname = "shy"\npriority = 99\ndevices = ["cpu"]\ninvokers = [".shy"]\n'
    )
    with scratch_registry(), register(file):
        data = data_of("explain", squeezenet, "--optimize", "ewo")
        [row] = [row for row in data["declined"] if row["library"] == "shy"]
        assert row["reason"] == "it is too shy"
        one = data_of("explain", squeezenet, "--optimize", "ewo", "--node", row["nodes"][0])
        assert {"library": "shy", "priority": 99, "reason": "it is too shy"} in one["declined"]
        text = vtensor("explain", squeezenet, "--optimize", "ewo").stdout
        assert "by shy: it is too shy" in text


class Eager(Drawn):
    """Drawn times; inexact kernels take a hundredth of theirs."""

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Of a node as it is decided."""
        found = super().node(node, values)
        return found if found is None or not node.variant.inexact else 1 + found // 100


@pytest.fixture
def convolutions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seeded convolutions as a file; kernels that are inexact are said to be the fastest."""
    monkeypatch.setattr(tuning, "Tuner", lambda *_: Eager(1, 0.0))
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [0, 0]))
    draw, g = np.random.default_rng(1), Graph("small")
    x = g.input("x", {"N": 1, "C": 32, "H": 12, "W": 12})
    for name in ("conv1", "conv2", "conv3"):
        weights = 0.06 * draw.standard_normal((32, 32, 3, 3)).astype(np.float32)
        w = g.constant(weights, "O I h w", f"{name}.w")
        x = g.add(Relu(), g.add(Conv2D(pads=(1, 1, 1, 1)), x, w, name=name), name=f"{name}.relu")
    g.output(x, "y")
    file = tmp_path / "small.onnx"
    save_onnx(g, file)
    return file


def test_frontier_has_time_and_error_of_each_plan(convolutions: Path, tmp_path: Path) -> None:
    svg, plans = tmp_path / "small.svg", tmp_path / "plans"
    given = ("frontier", convolutions, "--tolerances", "1e-12,1e-3,0", "--runs", 2, "--threads", 1)
    ran = vtensor(*given, "-o", svg, "--plans", plans)
    assert ran.exit_code == 0, ran.output
    assert "small: 2 runs of each plan on 1 thread" in ran.stdout
    assert re.search(r"0, 1e-12( \*)? +\d+\.\d{3} +1\.00 +strict +\d+\.\d +\d +0 of \d", ran.stdout)
    off = r"\d\.\de-\d\d"
    shown = rf"1e-3( \*)? +\d+\.\d{{3}} +\d\.\d\d +{off} +{off} +\d+\.\d +\d +3 of \d"
    assert re.search(rf"{shown} +\d x winograd F\(", ran.stdout)
    files = [plans / "small.0.toml", plans / "small.1e-3.toml"]
    assert sorted(plans.iterdir()) == files
    assert ran.stdout.startswith("".join(f"wrote {file}\n" for file in (*files, svg)))
    drawn = ElementTree.parse(svg).iterfind(".//{*}g[@class='point']")
    assert [one.findtext("{*}text") for one in drawn] == ["0, 1e-12", "1e-3"]
    strict, other = data_of(*given)["points"]
    assert (strict["tolerances"], strict["error"], strict["forms"]) == ([0.0, 1e-12], 0.0, {})
    assert 0 < other["error"] < 1e-3
    assert sum(other["forms"].values()) == 3
    assert other["weights"] > strict["weights"]
    feeds = {"x": np.random.default_rng(2).standard_normal((1, 32, 12, 12)).astype(np.float32)}
    answers = []
    for file, row in zip(files, (strict, other), strict=True):
        with Session(convolutions, plan=file, tolerance=1e-3, threads=1) as session:
            assert sum(node.variant.inexact for node in session.plan.graph.operators) == sum(
                row["forms"].values()
            )
            answers += session.run(None, feeds)
    apart = np.abs(answers[0] - answers[1]).max() / np.abs(answers[0]).max()
    assert 0 < apart < 1e-3


def test_frontier_without_inexact_forms_says_so_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path))
    g = Graph("plain")
    g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 4})), "y")
    save_onnx(g, tmp_path / "plain.onnx")
    ran = vtensor("frontier", tmp_path / "plain.onnx", "--runs", 1)
    assert ran.exit_code == 0, ran.output
    assert "0, 1e-6, 3e-6, 1e-5, 1e-4, 1e-3 *" in ran.stdout
    alone = "no library has an approximate form of any of its nodes: only the strict plan exists"
    assert ran.stderr == f"note: {alone}\n"
    data = data_of("frontier", tmp_path / "plain.onnx", "--runs", 1)
    assert len(data["points"]) == 1
    assert data["note"] == alone
