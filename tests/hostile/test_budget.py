"""Memory is counted before it is taken."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper
from typer.testing import CliRunner

from tests.frontends.support import f32, model
from vtensor import Session, load_onnx
from vtensor.cli import app
from vtensor.errors import BudgetError, InputError
from vtensor.frontends.writer import TEXT
from vtensor.runtime.execution.direct import DirectRequest
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage import budget


def ints(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int64)


HUGE: dict[str, tuple[str, dict[str, Any]]] = {
    "ConstantOfShape": ("c = ConstantOfShape(s) y = Add(x, c)", {"s": ints(10**6, 10**6)}),
    "Expand": ("y = Expand(x, s)", {"s": ints(10**12, 2, 5, 5)}),
    "Tile": ("y = Tile(x, s)", {"s": ints(10**12, 1, 1, 1)}),
    "Tile of a constant": (
        "c = Tile(w, s) y = Add(x, c)",
        {"s": ints(10**12, 1, 1, 1), "w": f32(1, 1, 1, 1)},
    ),
    "Range": (
        "r = Range(a, b, c) y = Add(x, r)",
        {"a": np.array(0), "b": np.array(10**12), "c": np.array(1)},
    ),
    "Pad": ("y = Pad(x, s)", {"s": ints(0, 0, 10**12, 0, 0, 0, 0, 0)}),
    "Resize": ("y = Resize(x, , s)", {"s": np.array([1, 1, 1e5, 1e6], np.float32)}),
    "Concat": (
        "c = ConstantOfShape(s) y = Concat<axis=1>(c, c, c)",
        {"s": ints(1, 2, 10**5, 10**4)},
    ),
    "Conv": ("y = Conv<pads=[1099511627776, 0, 0, 0]>(x, w)", {"w": f32(1, 2, 3, 3)}),
}


def picture(body: str, **weights: Any) -> ModelProto:
    return model(f"g (float[1,2,5,5] x) => (float[a,b,c,d] y) {{ {body} }}", **weights)


@pytest.mark.parametrize("value", ["'a'*600000000", "(1,)*90000000", "N*'a'*600000000"])
def test_the_text_of_a_graph_takes_no_memory_beside_its_own(value: str) -> None:
    proto = model("g (float[3] x) => (float[3] y) { y = Relu(x) }")
    text = f"graph g\ninput x : f32 N=3\ny = TopK(axis='N', k={value}) x : f32 N=3\noutput y"
    helper.set_model_props(proto, {TEXT: text})
    tracemalloc.start()
    try:
        graph = load_onnx(proto, max_bytes=1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    assert [node.op_name for node in graph.nodes.values()] == ["Relu"]


@pytest.mark.parametrize("batch", ["1", "N"])
def test_constants_count_that_were_made_before_sizes_were_known(batch: str) -> None:
    nodes = "a = Neg(w) b = Abs(w) n = Shape(x) m = Mul(n, s) c = Expand(v, m)"
    text = f"g (float[{batch}] x) => (float[k] y) {{ {nodes} y = Sum(x, a, b, c) }}"
    proto = model(text, w=f32(100_000), v=f32(1), s=ints(100_000))
    with pytest.raises(BudgetError, match=r"in addition to \d+ in use"):
        load_onnx(proto, shapes={"x": (1,)}, max_bytes=1_000_000)


def test_a_chain_needs_what_lives_at_once() -> None:
    links = "".join(f" c{i + 1} = Concat<axis=0>(c{i}, x)" for i in range(30))
    text = f"g (float[1000] x) => (float[n] y) {{ c0 = Neg(x){links} y = Neg(c30) }}"
    needed = 4000 + (29 + 30 + 31) * 4000  # x, c28, c29, and y, which the last Concat makes
    Session(model(text), max_bytes=needed + 200).close()  # each begins at a cache line
    with pytest.raises(BudgetError, match="the plan needs"):
        Session(model(text), max_bytes=needed - 1)


@pytest.mark.parametrize("name", HUGE)
def test_huge_results_are_refused_before_they_are_made(name: str, allocations: list[int]) -> None:
    text, weights = HUGE[name]
    with pytest.raises(BudgetError, match=rf"{name.split()[0]} .* takes \d+ bytes.*the budget is"):
        Session(picture(text, **weights), max_bytes=8 << 30)
    assert allocations == []


def test_a_budget_that_suffices_does() -> None:
    proto = picture("c = ConstantOfShape(s) y = Add(x, c)", s=ints(3, 2, 5, 5))
    with Session(proto, max_bytes=100_000) as session:
        [y] = session.run(None, {"x": np.ones((1, 2, 5, 5), np.float32)})
    assert (y == np.ones((3, 2, 5, 5))).all()
    with pytest.raises(BudgetError):
        Session(proto, max_bytes=599)  # the constant alone takes 600


def test_a_plan_counts_activations_weights_and_outputs() -> None:
    proto = picture("a = Conv(x, w) y = Relu(a)", w=f32(20, 2, 3, 3))
    least = 4 * (50 + 360 + 180 + 180)  # x, w, a and y
    with pytest.raises(BudgetError) as caught:
        Session(proto, max_bytes=least - 1)
    assert f"the budget is {least - 1}" in str(caught.value)
    assert "to fix: raise max_bytes=" in str(caught.value)
    Session(proto, max_bytes=20 * least).close()


def test_a_view_takes_nothing() -> None:
    text = "g (float[1000] x) => (float[10, 100] y) { y = Reshape(x, s) }"
    Session(model(text, s=ints(10, 100)), max_bytes=8100).close()


def test_constants_add_up() -> None:
    text = "a = Tile(w, s) b = Tile(w, s) c = Add(a, b) y = Add(x, c)"
    proto = picture(text, w=f32(1, 1, 1, 1), s=ints(1, 2, 5, 5))
    load_onnx(proto, max_bytes=3 * 200)
    with pytest.raises(BudgetError, match="in addition to 400 in use"):
        load_onnx(proto, max_bytes=3 * 200 - 1)


def test_sizes_that_a_run_gives_are_counted_and_the_session_stays_usable() -> None:
    proto = model("g (float[n, 4] x) => (float[n, 4] y) { y = Neg(x) }")
    with Session(proto, max_bytes=900) as session:
        with pytest.raises(BudgetError, match=r"'y'|'x'"):
            session.run(None, {"x": f32(30, 4)})
        x = f32(3, 4)
        assert (session.run(None, {"x": x})[0] == -x).all()


@pytest.mark.parametrize("given", [0, -5, True, 1.5, "1"])
def test_a_budget_is_a_number_of_bytes(given: Any) -> None:
    with pytest.raises(InputError, match="max_bytes="):
        Session(picture("y = Relu(x)"), max_bytes=given)


NONE, V1 = "9223372036854771712", "memory.limit_in_bytes"
#: A process's groups, the files of their limits, and the least limit, if there is one.
LIMITS: dict[str, tuple[str, dict[str, str], int | None]] = {
    "nothing mounted": ("0::/\n", {}, None),
    "version 2": ("0::/\n", {"memory.max": "4000\n"}, 4000),
    "no limit": ("0::/a\n", {"memory.max": "max\n", "a/memory.max": "max\n"}, None),
    "its own group": ("0::/a/b\n", {"a/b/memory.max": "4000", "a/c/memory.max": "1"}, 4000),
    "the least around it": (
        "0::/a/b\n",
        {"a/b/memory.max": "9000", "a/memory.max": "5000", "memory.max": "max"},
        5000,
    ),
    "a group that is not mounted here": ("0::/../outside\n", {"memory.max": "6000"}, 6000),
    "version 1": (
        "4:memory:/docker/abc\n0::/\n",
        {
            f"memory/docker/abc/{V1}": "7000\n",
            f"memory/docker/{V1}": f"{NONE}\n",
            f"memory/{V1}": f"{NONE}\n",
        },
        7000,
    ),
    "version 1, around it": (
        "3:cpu,memory:/a/b\n",
        {f"cpu,memory/a/b/{V1}": "9000", f"cpu,memory/a/{V1}": "8000"},
        8000,
    ),
    "version 1, no limit": ("4:memory:/\n", {f"memory/{V1}": NONE}, None),
    "both versions": (
        "4:memory:/\n0::/a\n",
        {f"memory/{V1}": "9000", "unified/a/memory.max": "8000"},
        8000,
    ),
    "no numbers": ("0::/\n", {"memory.max": "much\n"}, None),
}


@pytest.mark.parametrize("case", LIMITS)
def test_the_default_is_three_quarters_of_what_there_is(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership, files, expected = LIMITS[case]
    machine = budget.available_memory(tmp_path / "none", tmp_path)
    assert machine == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name, text in files.items():
        file = tmp_path / "mount" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "membership").write_text(membership)
    available = budget.available_memory(tmp_path / "membership", tmp_path / "mount")
    assert available == (machine if expected is None else expected)
    monkeypatch.setattr(budget, "available_memory", lambda: available)
    assert budget.max_bytes_of(None) == available * 3 // 4


def test_memory_that_runs_out_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **named: object) -> None:
        raise MemoryError("planted")

    proto: ModelProto = picture("y = Relu(x)")
    with Session(proto) as session:
        for _ in range(2):  # the second run takes the short way
            with monkeypatch.context() as patched:
                patched.setattr(Executor, "served", full)
                patched.setattr(DirectRequest, "run", lambda *_: None)  # as when memory runs out
                with pytest.raises(BudgetError, match=r"memory ran out .*planted"):
                    session.run(None, {"x": f32(1, 2, 5, 5)})
            session.run(None, {"x": f32(1, 2, 5, 5)})
    monkeypatch.setattr(Workspace, "grow", full)
    with pytest.raises(BudgetError, match=r"memory ran out .*planted"):
        Session(proto)


def test_the_command_line_has_a_budget(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(picture("y = Relu(x)"), path)
    refused = CliRunner().invoke(app, ["plan", str(path), "--max-bytes", "300"])
    assert refused.exit_code == 1
    assert refused.stderr.startswith("BudgetError: ")
    taken = CliRunner().invoke(app, ["plan", str(path), "--max-bytes", "3000", "--json"])
    assert taken.exit_code == 0
    assert json.loads(taken.stdout)
