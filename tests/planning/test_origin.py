"""``session.plan.origin`` says which way the plan of the last run came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from typer.testing import CliRunner

from tests.frontends.support import f32, model
from tests.runtime.opened import mobile
from vtensor import Session
from vtensor.cli import app
from vtensor.runtime.origin import Origin

STATIC = "net (float[2, 3] x) => (float[2, 3] y) { a = Relu(x) y = Add(a, a) }"


def origin(session: Session, feeds: dict[str, Any]) -> Origin:
    """The origin of the plan of a run."""
    session.run(None, feeds)
    return session.plan.origin


def test_of_a_plan_that_the_constructor_made() -> None:
    with Session(model(STATIC), threads=1, cache_dir=None) as session:
        assert session.plan.origin == Origin("planned")
        for way in ("planned", "in memory", "in memory", "in memory"):
            assert origin(session, {"x": f32(2, 3)}) == Origin(way)


def test_of_open_sizes() -> None:
    network = mobile()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        feeds = [network.feeds(1, 8, width) for width in (9, 16)]
        assert origin(session, feeds[0]) == Origin("planned")
        assert origin(session, feeds[1]).way in ("planned", "specialised")
        for one in (0, 1, 1, 1, 0):
            assert origin(session, feeds[one]) == Origin("in memory")


def test_of_inputs_that_are_no_plain_arrays() -> None:
    """Such runs find their plan in memory, too."""
    with Session(model(STATIC), threads=1, cache_dir=None) as session:
        for way in ("planned", "in memory", "in memory"):
            assert origin(session, {"x": f32(3, 2).T}) == Origin(way)


def test_of_bindings() -> None:
    """A binding uses a plan once, however often it runs."""
    with Session(model(STATIC), threads=1, cache_dir=None) as session:
        first = session.bind({"x": f32(2, 3)})
        for _ in range(3):
            first.run()
            assert session.plan.origin == Origin("planned")
        session.bind({"x": f32(2, 3)}).run()
        assert session.plan.origin == Origin("in memory")


def test_of_overridden_initializers() -> None:
    proto = model("net (float[2] x) => (float[2] y) { y = Add(x, b) }", b=f32(2))
    proto.graph.input.append(onnx.helper.make_tensor_value_info("b", 1, [2]))
    with Session(proto, threads=1, cache_dir=None) as session:
        plain, more = {"x": f32(2)}, {"x": f32(2), "b": f32(2)}
        ways = [origin(session, one).way for one in (plain, more, more, plain, more)]
    assert ways == ["planned", "planned", *["in memory"] * 3]


def test_of_a_lock_file(tmp_path: Path) -> None:
    with Session(model(STATIC), threads=1, cache_dir=None) as session:
        session.lock().write(tmp_path / "plan.toml")
    locked = Session(model(STATIC), threads=1, cache_dir=None, plan=tmp_path / "plan.toml")
    with locked as session:
        for way in ("locked", "in memory"):
            assert origin(session, {"x": f32(2, 3)}) == Origin(way)


def test_of_a_network_that_calls_back_into_python() -> None:
    text = "net (float[n, 3] x) => (float[n, 3] y) { a = Relu(x) y = Add(a, a) }"
    with Session(model(text), threads=1, cache_dir=None, libraries=["numpy"]) as session:
        ways = [origin(session, {"x": f32(rows, 3)}).way for rows in (2, 3, 3)]
    assert ways == ["recorded on sizes", "recorded on sizes", "in memory"]


def test_of_a_plan_that_the_cache_has(tmp_path: Path) -> None:
    network, file = mobile(), tmp_path / "mobile.onnx"
    onnx.save(network.proto, file)
    for cached in (False, True, True):
        with Session(file, threads=1, cache_dir=tmp_path / "cache", deterministic=True) as session:
            assert origin(session, network.feeds(1, 8, 9)).cached == cached
            assert origin(session, network.feeds(1, 8, 9)) == Origin("in memory")


def test_the_command_prints_it(tmp_path: Path) -> None:
    onnx.save(model(STATIC), file := tmp_path / "net.onnx")
    text = CliRunner().invoke(app, ["plan", str(file)]).output
    assert "  plan: planned\n" in text
    told = CliRunner().invoke(app, ["plan", str(file), "--json"]).output
    assert json.loads(told)["origin"] == {"way": "planned", "cached": False}
    assert str(Origin("specialised", cached=True)) == "specialised, read from the cache"


def test_looking_at_a_plan_is_no_use_of_it() -> None:
    with Session(model(STATIC), threads=1, cache_dir=None) as session:
        assert np.all(session.run(None, {"x": f32(2, 3)})[0] >= 0)
        for _ in range(3):
            assert (len(session.plan.steps) > 0, session.plan.origin.way) == (True, "planned")
            session.lock()
