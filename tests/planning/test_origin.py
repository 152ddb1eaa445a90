"""``session.plan.origin`` says which way the plan of the last run came."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.frontends.support import Array, f32, model
from tests.libraries.command import data_of, vtensor
from tests.runtime.opened import mobile
from vtensor import Session
from vtensor.runtime.execution.origin import Origin

NET = model("net (float[2, 3] x) => (float[2, 3] y) { a = Relu(x) y = Add(a, a) }")
X = {"x": f32(2, 3)}


def ways(session: Session, *feeds: Mapping[str, Array]) -> list[str]:
    """Run on feeds in turn; return how each run's plan came, none of them out of a cache."""
    result = []
    for arrays in feeds:
        session.run(None, arrays)
        assert session.plan.origin == Origin(session.plan.origin.way)
        result.append(session.plan.origin.way)
    return result


@pytest.mark.parametrize("x", [f32(2, 3), f32(3, 2).T], ids=["plain", "turned"])
def test_of_a_plan_that_the_constructor_made(x: Any) -> None:
    """To look at it is no use of it."""
    with Session(NET, threads=1, cache_dir=None) as session:
        for _ in range(3):
            assert (len(session.plan.steps) > 0, session.plan.origin) == (True, Origin("planned"))
            session.lock()
        assert ways(session, *[{"x": x}] * 4) == ["planned", *["in memory"] * 3]


def test_of_open_sizes() -> None:
    network = mobile()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        one, other = (network.feeds(1, 8, width) for width in (9, 16))
        first, second, *later = ways(session, one, other, one, other, other, other, one)
    assert first == "planned"
    assert second in ("planned", "specialised")
    assert later == ["in memory"] * 5


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
    proto = model("net (float[2] x, float[2] b = {1, 2}) => (float[2] y) { y = Add(x, b) }")
    with Session(proto, threads=1, cache_dir=None) as session:
        plain, more = {"x": f32(2)}, {"x": f32(2), "b": f32(2)}
        origins = ways(session, plain, more, more, plain, more)
    assert origins == ["planned", "planned", *["in memory"] * 3]


def test_of_a_lock_file(tmp_path: Path) -> None:
    with Session(NET, threads=1, cache_dir=None) as session:
        session.lock().write(tmp_path / "plan.toml")
    with Session(NET, threads=1, cache_dir=None, plan=tmp_path / "plan.toml") as session:
        assert ways(session, X, X) == ["locked", "in memory"]


def test_of_a_network_that_calls_back_into_python() -> None:
    proto = model("net (float[n, 3] x) => (float[n, 3] y) { a = Relu(x) y = Add(a, a) }")
    feeds = [{"x": f32(rows, 3)} for rows in (2, 3, 3)]
    with Session(proto, threads=1, cache_dir=None, libraries=["numpy"]) as session:
        assert ways(session, *feeds) == ["recorded on sizes", "recorded on sizes", "in memory"]


def test_the_command_prints_it(tmp_path: Path) -> None:
    onnx.save(NET, tmp_path / "net.onnx")
    assert "  plan: planned\n" in vtensor("plan", tmp_path / "net.onnx").output
    assert data_of("plan", tmp_path / "net.onnx")["origin"] == {"way": "planned", "cached": False}
    assert str(Origin("specialised", cached=True)) == "specialised, read from the cache"
