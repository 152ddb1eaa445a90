"""``session.plan.origin`` says which way the plan of the last run came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner

from tests.frontends.support import f32, model
from tests.runtime.opened import mobile
from vtensor import Session
from vtensor.cli import app
from vtensor.runtime.execution.origin import Origin

NET = model("net (float[2, 3] x) => (float[2, 3] y) { a = Relu(x) y = Add(a, a) }")
X = {"x": f32(2, 3)}


def origin(session: Session, feeds: dict[str, Any]) -> Origin:
    """The origin of the plan of a run."""
    session.run(None, feeds)
    return session.plan.origin


@pytest.mark.parametrize("x", [f32(2, 3), f32(3, 2).T], ids=["plain", "turned"])
def test_of_a_plan_that_the_constructor_made(x: Any) -> None:
    """To look at it is no use of it."""
    with Session(NET, threads=1, cache_dir=None) as session:
        for _ in range(3):
            assert (len(session.plan.steps) > 0, session.plan.origin) == (True, Origin("planned"))
            session.lock()
        for way in ("planned", "in memory", "in memory", "in memory"):
            assert origin(session, {"x": x}) == Origin(way)


def test_of_open_sizes() -> None:
    network = mobile()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        feeds = [network.feeds(1, 8, width) for width in (9, 16)]
        assert origin(session, feeds[0]) == Origin("planned")
        assert origin(session, feeds[1]).way in ("planned", "specialised")
        for one in (0, 1, 1, 1, 0):
            assert origin(session, feeds[one]) == Origin("in memory")


def test_of_bindings() -> None:
    """A binding uses a plan once, however often it runs."""
    with Session(NET, threads=1, cache_dir=None) as session:
        first = session.bind(X)
        for _ in range(3):
            first.run()
            assert session.plan.origin == Origin("planned")
        session.bind(X).run()
        assert session.plan.origin == Origin("in memory")


def test_of_overridden_initializers() -> None:
    proto = model("net (float[2] x) => (float[2] y) { y = Add(x, b) }", b=f32(2))
    proto.graph.input.append(onnx.helper.make_tensor_value_info("b", 1, [2]))
    with Session(proto, threads=1, cache_dir=None) as session:
        plain, more = {"x": f32(2)}, {"x": f32(2), "b": f32(2)}
        ways = [origin(session, one).way for one in (plain, more, more, plain, more)]
    assert ways == ["planned", "planned", *["in memory"] * 3]


def test_of_a_lock_file(tmp_path: Path) -> None:
    with Session(NET, threads=1, cache_dir=None) as session:
        session.lock().write(tmp_path / "plan.toml")
    with Session(NET, threads=1, cache_dir=None, plan=tmp_path / "plan.toml") as session:
        assert [origin(session, X).way for _ in range(2)] == ["locked", "in memory"]


def test_of_a_network_that_calls_back_into_python() -> None:
    proto = model("net (float[n, 3] x) => (float[n, 3] y) { a = Relu(x) y = Add(a, a) }")
    with Session(proto, threads=1, cache_dir=None, libraries=["numpy"]) as session:
        ways = [origin(session, {"x": f32(rows, 3)}).way for rows in (2, 3, 3)]
    assert ways == ["recorded on sizes", "recorded on sizes", "in memory"]


def test_the_command_prints_it(tmp_path: Path) -> None:
    onnx.save(NET, file := tmp_path / "net.onnx")
    assert "  plan: planned\n" in CliRunner().invoke(app, ["plan", str(file)]).output
    told = CliRunner().invoke(app, ["plan", str(file), "--json"]).output
    assert json.loads(told)["origin"] == {"way": "planned", "cached": False}
    assert str(Origin("specialised", cached=True)) == "specialised, read from the cache"
