"""The command ``compare``: faults that it finds, its messages, exit codes and reproductions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from libdesc import invoker, register
from ptensor import Layout, PTensor, lib_tagger
from tests.frontends.support import f32, model
from tests.libraries.command import data_of, vtensor
from tests.libraries.scratch import scratch_registry
from vtensor.benchmark.onnxruntime import OnnxRuntime
from vtensor.commands.comparison.difference import difference
from vtensor.commands.comparison.engines import Engines
from vtensor.commands.comparison.parts import Parts
from vtensor.commands.comparison.search import Search
from vtensor.commands.shared import LoadOptions
from vtensor.language.operators import Context
from vtensor.language.tensor import VTensor

TOY = Path(__file__).parents[1] / "libraries" / "toy"

#: Two branches, of which one has a Tanh; ``late`` is computed last and depends on neither.
NET = """net (float[2, 8] x) => (float[2, 8] y, float[2, 8] late)
{ a = Exp(x) b = Tanh(a) c = Neg(b) d = Sqrt(a) y = Add(c, d) late = Abs(x) }"""

QUANTISED = """quantised (float[2, 8] x) => (float[2, 8] y)
<float s = {0.1}, uint8 z = {128}>
{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) t = Tanh(d) y = Neg(t) }"""


@dataclass
class Fault:
    """What the kernel of Tanh adds to its result."""

    offset: float = 0.0


@pytest.fixture
def fault() -> Iterator[Fault]:
    """A library ``toy`` whose Tanh is wrong, in a registry of its own."""
    fault = Fault()
    with scratch_registry(), register(TOY):

        @invoker("Tanh", library="toy", python=True)
        def toy_tanh(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
            src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
            if lib_tagger("toy", [src], [dst]):
                return
            dst.data()[...] = np.tanh(src.data()) + np.float32(fault.offset)

        yield fault


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The network as a file."""
    onnx.save(model(NET), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_equal_outputs_have_their_errors_and_exit_code_0(file: Path) -> None:
    data = data_of("compare", file)
    assert (data["equal"], data["first"], data["seeded_inputs"]) == (True, None, ["x"])
    assert [row["name"] for row in data["outputs"]] == ["y", "late"]
    assert all(row["error"] <= row["limit"] == 1e-4 for row in data["outputs"])
    assert "agrees   y: " in vtensor("compare", file).stdout


def test_a_wrong_kernel_is_found_and_reproduced(file: Path, fault: Fault, tmp_path: Path) -> None:
    fault.offset = 0.25
    arguments = ("compare", file, "--pin", "Tanh=toy", "--save", tmp_path / "saved")
    ran = vtensor(*arguments, "--json")
    assert ran.exit_code == 1, ran.output
    text = vtensor(*arguments)
    assert text.exit_code == 1
    data = json.loads(ran.stdout)
    first = data["first"]
    assert first["value"] == "b"
    assert [node["operator"] for node in first["nodes"]] == ["Tanh"]
    assert (first["step"]["library"], first["float64"]["nearer"]) == ("toy", "onnxruntime")
    assert first["float64"]["ours"] == pytest.approx(0.25, rel=0.1)
    assert first["alone"]["beyond"]
    assert [row["beyond"] for row in data["outputs"]] == [True, False]
    for line in ("differs  y: ", "agrees   late: ", "first difference: value 'b' of Tanh"):
        assert line in text.stdout
    part = onnx.load(tmp_path / "saved" / "part.onnx")
    assert [node.op_type for node in part.graph.node] == ["Tanh"]
    script = (tmp_path / "saved" / "reproduce.py").read_text()
    assert "pin={'Tanh': 'toy'}" in script
    assert all(f"  {line}" in text.stdout for line in script.splitlines() if line)


def test_a_reproduction_runs(file: Path, tmp_path: Path) -> None:
    """No engine is exact, so at tolerance 0 there is a difference without a fault."""
    ran = vtensor("compare", file, "--tolerance", 0, "--save", tmp_path / "saved")
    assert ran.exit_code == 1, ran.output
    done = subprocess.run(
        [sys.executable, "reproduce.py"],
        cwd=tmp_path / "saved",
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"[[") == 2


@pytest.mark.parametrize(("offset", "wanted"), [(np.nan, "not finite"), (np.inf, "not finite")])
def test_numbers_that_are_not_finite(file: Path, fault: Fault, offset: float, wanted: str) -> None:
    fault.offset = offset
    ran = vtensor("compare", file, "--pin", "Tanh=toy", "--json")
    first = json.loads(ran.stdout)["first"]
    assert (first["value"], first["alone"]["kind"], first["alone"]["error"]) == ("b", wanted, None)


def test_quantised_values_differ_in_steps(tmp_path: Path, fault: Fault) -> None:
    file = tmp_path / "quantised.onnx"
    onnx.save(model(QUANTISED), file)
    fault.offset = 0.003
    assert vtensor("compare", file, "--pin", "Tanh=toy").exit_code == 0
    fault.offset = 0.1
    ran = vtensor("compare", file, "--pin", "Tanh=toy")
    assert ran.exit_code == 1
    assert "steps of its scale" in ran.stdout
    assert vtensor("compare", file, "--pin", "Tanh=toy", "--steps", 100).exit_code == 0


class Fused(Engines):
    """VTensor, but for a fault of Exp and Neg in one model."""

    def ours(self, part: onnx.ModelProto, feeds: Mapping[str, Any]) -> Any:
        """Return the outputs; they are wrong if the model has both operators."""
        results, steps = super().ours(part, feeds)
        wrong = {"Exp", "Neg"} <= {node.op_type for node in part.graph.node}
        return [result + wrong for result in results], steps


def test_the_reproduction_grows_until_it_shows_the_difference(file: Path) -> None:
    parts = Parts(file)
    engines = Fused({}, LoadOptions(False, None, None))
    search = Search(parts, engines, {"x": f32(2, 8)}, None, 1.0, lambda _: None)
    found = search.first("y")
    assert found is not None
    assert (found.value, [op for _, op in found.nodes]) == ("c", ["Neg"])
    assert [node.op_type for node in found.part.graph.node] == ["Exp", "Tanh", "Neg"]
    assert found.alone.beyond
    assert search.first("late") is None


def test_what_cannot_be_compared_has_exit_code_2(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = vtensor("compare", file, "--with", "openvino")
    assert (ran.exit_code, "only other engine" in ran.stderr) == (2, True)
    assert vtensor("compare", tmp_path / "none.onnx").exit_code == 2
    monkeypatch.setattr(OnnxRuntime, "absent", lambda: "it is not installed")
    ran = vtensor("compare", file)
    assert (ran.exit_code, "pip install onnxruntime" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    ("ours", "theirs", "kind", "beyond"),
    [
        (np.zeros((1, 2)), np.zeros((2, 1)), "shape", True),
        (np.zeros(2, np.float32), np.zeros(2), "type", True),
        (np.array([1, 2]), np.array([1, 3]), "values", True),
        (np.array(["a"]), np.array(["b"], object), "values", True),
        (np.array(["a"]), np.array(["a"], object), "values", False),
        (np.array([np.nan, np.inf, 1]), np.array([np.nan, np.inf, 1]), "values", False),
        (np.array([np.inf]), np.array([-np.inf]), "not finite", True),
        ([np.zeros(1)], [np.zeros(1), np.zeros(1)], "length", True),
        ([np.zeros(1), np.ones(1)], [np.zeros(1), np.zeros(1)], "values", True),
        ({"a": np.zeros(1)}, {"b": np.zeros(1)}, "length", True),
        (np.zeros((0, 3)), np.zeros((0, 3)), "values", False),
        (np.array([True]), np.array([False]), "values", True),
        (np.array([1j]), np.array([1j + 1]), "values", True),
    ],
)
def test_kinds_of_differences(ours: object, theirs: object, kind: str, beyond: bool) -> None:
    row = difference(ours, theirs)
    assert (row.kind, row.beyond) == (kind, beyond)
    assert str(row)
