"""The commands that explain: libraries, operators, generated code, conversions, the frontier."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest

from eval.narrow.quantised import static
from libdesc import register
from libdesc.dispatcher import dispatcher_source
from libdesc.onednn.native import speeds
from libdesc.registry import registry
from libdesc.schema import Speed
from ops import Conv2D, Relu
from resolver.lowered import OpNode
from tests.frontends.support import model
from tests.libraries.command import data_of, vtensor
from tests.libraries.golden import Golden
from tests.libraries.scratch import scratch_registry
from tests.optimizer.clocks import Drawn
from vtensor import Graph, Session, save_onnx
from vtensor.benchmark.peer import peer_at
from vtensor.commands.bench import PEERS
from vtensor.language.operators import OPERATORS
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning import tuned
from vtensor.runtime.planning.tolerance import has_instructions
from vtensor.runtime.tuning import tuner as tuning

TOY = Path(__file__).parents[1] / "libraries" / "toy"

#: The forms of products in planes that a small tolerance may choose on this processor.
FORMS_IN_PLANES = ["bf16x3"] if speeds().get("bf16", Speed()).products > 3 else []

#: Libraries with which SqueezeNet's plan has a Transform at run time.
CONVERTED = ("--libraries", "onednn,eigen,numpy")


def test_libs_lists_every_library_with_its_origin() -> None:
    ran, data = vtensor("libs"), data_of("libs")
    assert [row["priority"] for row in data["libraries"]] == sorted(
        (row.priority for row in registry().libraries.values()), reverse=True
    )
    for row in data["libraries"]:
        assert row["available"] == (row["absent"] is None)
        assert Path(row["description"]).is_file()
        assert row["origin"]
        assert f"{row['origin']}: {row['description']}" in ran.stdout
    assert {row["name"] for row in data["libraries"]} == set(registry().libraries)
    faster = data["faster_than_f32"]
    for dtype, row in faster.items():
        assert (
            registry().libraries[row["library"]].faster()[dtype].instructions == row["instructions"]
        )
    first = ran.stdout.splitlines()[0]
    assert first.startswith("types multiplied faster than f32 on this processor: ")
    assert all(f"{dtype} by {row['instructions']}" in first for dtype, row in faster.items())


def library(file: Path, *lines: str, module: str = "", priority: int = 1) -> Path:
    """Write a description, whose library has the file's name, and a module of that name."""
    head = f'[library]\nname = "{file.stem}"\npriority = {priority}\n'
    device = () if any(line.startswith("devices") for line in lines) else ('devices = ["cpu"]',)
    file.write_text(head + "\n".join([*device, *lines, ""]))
    file.with_suffix(".py").write_text(module)
    return file


def relu_of(name: str, options: str = "") -> str:
    """Return the text of a module with an invoker of Relu that does nothing."""
    head = f"from libdesc import invoker\n@invoker('Relu', library='{name}'{options})\n"
    return f"{head}def {name}_relu(ctx, op, x, y):\n    pass\n"


def test_libs_shows_absent_libraries_ties_and_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = "def probe():\n    return 'libgone.so was not found'\n"
    file = library(tmp_path / "gone.toml", 'probe = ".gone:probe"', module=probe, priority=0)
    monkeypatch.setattr(registry(), "problems", [("entry point bad", "it is broken")])
    with scratch_registry(), register(file):
        ran = vtensor("libs")
        assert (ran.exit_code, vtensor("libs", "--json").exit_code) == (1, 1)
    for text in (
        "gone  absent: libgone.so was not found",
        f"libdesc.register: {file}",
        "tie: gone and numpy both have priority 0",
        "problem with entry point bad: it is broken",
    ):
        assert text in ran.stdout


def test_check_registers_nothing_and_counts_invokers(tmp_path: Path) -> None:
    before = dict(registry().invokers), set(registry().libraries)
    data = data_of("libs", "--check", TOY, "--import")
    assert (data["name"], data["priority"], data["available"]) == ("toy", 50, True)
    assert "nothing was registered" in vtensor("libs", "--check", TOY, "--import").stdout
    file = library(tmp_path / "mine.toml", 'invokers = [".mine"]', module=relu_of("mine"))
    for _ in range(2):
        assert data_of("libs", "--check", file)["invokers"] == 1
        assert data_of("libs", "--check", file, "--import")["invokers"] == 1
    assert (dict(registry().invokers), set(registry().libraries)) == before


def test_check_runs_nothing_and_lists_all_problems(tmp_path: Path, golden: Golden) -> None:
    """``--import`` runs the modules; a check without it names what it would run."""
    sound = ["devices = ['gpu']", "probe = '.boom:f'"]
    wrong = [*sound, "guideline = '.no:f'", "invokers = ['.none']"]
    module = "raise OSError('this ran')\ndef f():\n    return None\n"
    for name, lines, options, exit_code in (
        ("sound", sound, (), 0),
        ("import", sound, ("--import",), 1),
        ("wrong", wrong, (), 1),
    ):
        file = library(tmp_path / "boom.toml", *lines, module=module)
        ran = vtensor("libs", "--check", file, *options)
        assert ran.exit_code == exit_code
        text = ran.stdout.replace(str(tmp_path), "FOLDER").rstrip("\n")
        golden.check(text, f"test_check_runs_nothing_and_lists_all_problems[{name}]")
    ran = vtensor("libs", "--check", file, "--json")
    assert ran.exit_code == 1
    assert len(json.loads(ran.stdout)["problems"]) == 2


def test_libs_says_why_a_library_is_never_used(tmp_path: Path) -> None:
    with scratch_registry(), register(library(tmp_path / "far.toml", "devices = ['gpu']")):
        [row] = [row for row in data_of("libs")["libraries"] if row["name"] == "far"]
        text = vtensor("libs").stdout
    reasons = ["no invoker names this library", "no device of kind gpu here: it will never be used"]
    assert row["unused"] == reasons
    assert all(f"  never used: {reason}\n" in text for reason in reasons)


def test_libs_goes_on_after_a_version_that_raises(tmp_path: Path) -> None:
    module = "def about():\n    raise OSError('no driver')\n"
    file = library(tmp_path / "odd.toml", "version = '.odd:about'", module=module)
    with scratch_registry(), register(file):
        ran = vtensor("libs")
    assert ran.exit_code == 1
    assert "numpy  " in ran.stdout
    assert f"problem with libdesc.register: {file}: library.version = '.odd:about' (" in ran.stdout


def test_ops_lists_every_operator_with_its_libraries() -> None:
    data, text = data_of("ops"), vtensor("ops").stdout
    assert [row["operator"] for row in data["operators"]] == sorted(OPERATORS)
    for row in data["operators"]:
        priorities = [invoker["priority"] for invoker in row["invokers"]]
        assert priorities == sorted(priorities, reverse=True)
        assert f"\n{row['operator']}  (" in f"\n{text}"
    [relu] = data_of("ops", "Relu")["operators"]
    assert relu["invokers"][-1]["library"] == "numpy"
    assert "(in Python)" in vtensor("ops", "Relu").stdout


def test_ops_lists_the_operators_of_a_domain() -> None:
    data = data_of("ops", "--domain", "com.microsoft")
    assert data["domains"]["com.microsoft"]["QuickGelu"] == ["Swish"]
    assert {*data["domains"]} == {"com.microsoft"}
    assert "Relu" not in [row["operator"] for row in data["operators"]]
    text = vtensor("ops", "--domain", "ai.onnx").stdout
    assert text.startswith("ai.onnx  (")
    assert "\n  Conv: Conv2D\n" in text
    assert "there are ['ai.onnx'" in vtensor("ops", "--domain", "org.none").output


def test_dispatcher_prints_the_generated_code() -> None:
    assert vtensor("dispatcher", "Relu").stdout == dispatcher_source("Relu")
    ran = vtensor("dispatcher", "Relu", "--library", "onednn")
    assert ran.stdout == f"{dispatcher_source('Relu')}\n{registry().libraries['onednn'].text}"
    data = data_of("dispatcher", "Relu", "--library", "onednn")
    assert data["look_ups"] == registry().libraries["onednn"].text


def test_explain_accounts_for_every_transform(squeezenet: Path) -> None:
    asked = ("explain", squeezenet, *CONVERTED)
    data, text = data_of(*asked), vtensor(*asked).stdout
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
        for reason in row["required_by"]:
            if reason["at"] is None:  # an output's delivery
                continue
            file, line = re.fullmatch(r"(.+):(\d+)", reason["at"]).groups()  # type: ignore[union-attr]
            source = Path(file).read_text().splitlines()[int(line) - 1]
            assert "require" in source or source.startswith(("@", "def "))
            assert reason["library"] in registry().libraries
            assert set(reason["operator"].split(" + ")) <= OPERATORS.keys()
    rows = data_of(*asked, "--no-alternatives")["transforms"]
    assert rows
    assert not any("cheapest_change" in row for row in rows)
    assert "forbidden" not in vtensor(*asked, "--no-alternatives").stdout


def test_explain_describes_a_node_and_a_transform(squeezenet: Path) -> None:
    plan = data_of("plan", squeezenet, *CONVERTED)
    asked = ("explain", squeezenet, *CONVERTED, "--node")
    transform = plan["conversions"][0]["node"]
    assert data_of(*asked, transform)["operator"] == "Transform"
    step = next(step for step in plan["steps"] if step["operator"] != "Transform")
    row = data_of(*asked, step["node"])
    assert (row["operator"], row["library"]) == (step["operator"], step["library"])
    assert row["declined"] == step["refused"]
    assert all(operand["layout"] for operand in row["operands"])
    assert f"runs on {step['library']}" in vtensor(*asked, step["node"]).stdout


def test_explain_says_which_library_declined(squeezenet: Path, tmp_path: Path) -> None:
    module = relu_of("shy", ", when=lambda op, x, y: 'it is too shy'")
    file = library(tmp_path / "shy.toml", 'invokers = [".shy"]', module=module, priority=99)
    asked = ("explain", squeezenet, "--optimize", "ewo")
    with scratch_registry(), register(file):
        [row] = [row for row in data_of(*asked)["declined"] if row["library"] == "shy"]
        assert row["reason"] == "it is too shy"
        node = data_of(*asked, "--node", row["nodes"][0])
        assert {"library": "shy", "priority": 99, "reason": "it is too shy"} in node["declined"]
        assert "by shy: it is too shy" in vtensor(*asked).stdout


class Eager(Drawn):
    """A clock of drawn times; approximate kernels take a hundredth of theirs."""

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Return the time of a node as it is decided."""
        ns = super().node(node, values)
        return ns if ns is None or not node.variant.inexact else 1 + ns // 100


@pytest.fixture
def convolutions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write three convolutions, whose approximate kernels pass for the fastest."""
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
    asked = ("frontier", convolutions, "--tolerances", "1e-12,1e-3,0", "--runs", 2, "--threads", 1)
    narrow = ["bf16"] if has_instructions("bf16") else []
    planes = [f"{form} alone" for form in FORMS_IN_PLANES]
    peers = [] if peer_at(PEERS["onnxruntime"]).absent() else ["onnxruntime"]
    ran = vtensor(*asked, "-o", svg, "--plans", plans, "--peers", ",".join(peers))
    assert ran.exit_code == 0, ran.output
    assert "small: 2 runs of each plan on 1 thread" in ran.stdout
    assert re.search(
        r"0, 1e-12: strict( \*)? +\d+\.\d{3} +1\.00 +strict +\d+\.\d +\d +0 of \d", ran.stdout
    )
    off = r"\d\.\de-\d\d"
    shown = rf"1e-3: winograd( \*)? +\d+\.\d{{3}} +\d\.\d\d +{off} +{off} +\d+\.\d +\d +3 of \d"
    assert re.search(rf"{shown} +\d x winograd F\(", ran.stdout)
    files = [plans / "small.0.toml", plans / "small.1e-3.toml"]
    others = [plans / f"small.{name.replace(' ', '-')}.toml" for name in [*planes, *narrow]]
    assert sorted(plans.iterdir()) == sorted([*files, *others])
    assert ran.stdout.startswith("".join(f"wrote {file}\n" for file in (*files, *others, svg)))
    drawn = ElementTree.parse(svg).iterfind(".//{*}g[@class='point']")
    names = [(point.findtext("{*}text") or "").split(" 1.")[0] for point in drawn]
    assert names == [*peers, "0, 1e-12: strict", "1e-3: winograd", *planes, *narrow]
    strict, approximate, *more = data_of(*asked, "--peers", "")["points"]
    assert [point["label"] for point in more] == [*planes, *narrow]
    for point in more[: len(planes)]:
        assert (point["precision"], point["tolerances"]) == ("f32", [])
        assert point["kinds"] == [point["form"]]
        assert 0 < point["error"] < 1e-4
    for point in more[len(planes) :]:
        assert (point["precision"], point["tolerances"]) == ("bf16", [])
        assert 1e-4 < point["error"] < 0.05
        assert sum(point["forms"].values()) == 3
    assert (strict["tolerances"], strict["error"], strict["forms"]) == ([0.0, 1e-12], 0.0, {})
    assert 0 < approximate["error"] < 1e-3
    assert sum(approximate["forms"].values()) == 3
    assert approximate["weights"] > strict["weights"]
    feeds = {"x": np.random.default_rng(2).standard_normal((1, 32, 12, 12)).astype(np.float32)}
    answers = []
    for file, row in zip(files, (strict, approximate), strict=True):
        with Session(convolutions, plan=file, tolerance=1e-3, threads=1) as session:
            inexact = [node for node in session.plan.graph.operators if node.variant.inexact]
            assert len(inexact) == sum(row["forms"].values())
            answers += session.run(None, feeds)
    apart = np.abs(answers[0] - answers[1]).max() / np.abs(answers[0]).max()
    assert 0 < apart < 1e-3


def test_frontier_has_points_of_other_models(convolutions: Path, tmp_path: Path) -> None:
    feeds = {"x": np.random.default_rng(3).standard_normal((1, 32, 12, 12)).astype(np.float32)}
    int8 = tmp_path / "small.qdq.onnx"
    static("qdq", "u8s8", "tensor", onnx.load(convolutions), int8, feeds)
    plans, svg = tmp_path / "plans", tmp_path / "small.svg"
    asked = ("frontier", convolutions, "--also", int8, "--runs", 1, "--threads", 1, "--peers", "")
    data = data_of(*asked, "--tolerances", "0", "--plans", plans, "-o", svg)
    point = data["points"][-1]
    assert (point["model"], point["label"]) == ("qdq", "qdq: u8, s8")
    assert sum(point["forms"].values()) >= 3
    assert 1e-3 < point["error"] < 0.2
    assert f">{point['label']}</text>" in svg.read_text()
    with Session(int8, plan=point["plan"], threads=1) as session:
        session.run(None, feeds)
    again = vtensor(*asked, "--also", tmp_path / "other" / int8.name)
    assert again.exit_code == 1
    assert "has the same name; rename one of them" in again.stderr


def test_frontier_refuses_models_of_other_networks(convolutions: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(model("other (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }"), other)
    ran = vtensor("frontier", convolutions, "--also", other, "--runs", 1, "--threads", 1)
    assert ran.exit_code == 1
    assert "InputError: model 'other' has x : f32 D0=1 D1=4, and the first model has" in ran.stderr


def test_frontier_notes_that_no_form_is_approximate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path))
    file = tmp_path / "plain.onnx"
    onnx.save(model("plain (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }"), file)
    ran = vtensor("frontier", file, "--runs", 1)
    assert ran.exit_code == 0, ran.output
    assert "0, 1e-6, 3e-6, 1e-5, 1e-4, 1e-3: strict *" in ran.stdout
    alone = "no library has an approximate form of any of its nodes: only the strict plan exists"
    assert ran.stderr == f"note: {alone}\n"
    data = data_of("frontier", file, "--runs", 1)
    assert (len(data["points"]), data["note"]) == (1, alone)
