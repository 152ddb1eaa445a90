"""What is written down of drawings for other processes: by whom, how often, and of what nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptensor.stopping import Stopped
from tests.frontends.support import f32
from tests.runtime.test_kept_blueprints import (
    OTHER,
    X,
    blueprints,
    net,
    nobody_else,
    started,
    used,
    wanted,
)
from vtensor.runtime.better import Better
from vtensor.runtime.blueprint import Blueprint
from vtensor.runtime.blueprint_entries import BlueprintEntries
from vtensor.runtime.drawing_notes import DrawingNotes
from vtensor.runtime.drawn import DrawnPlan
from vtensor.runtime.source import Source

__all__ = ["nobody_else"]  # a fixture


def test_what_a_plan_has_stopped_is_written_down_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wants a plan goes first: what was under way then begins anew."""
    path, feeds = net(tmp_path / "net.onnx"), {"x": f32(1, 64, 5, 8)}
    used(path, feeds, tmp_path).close()
    keep, asked = BlueprintEntries.keep, list[Any]()

    def stops_each_once(entries: BlueprintEntries, network: Any, known: Any, *about: Any) -> None:
        asked.append(network.key.shapes)
        if asked.count(network.key.shapes) == 1:
            raise Stopped
        keep(entries, network, known, *about)

    monkeypatch.setattr(BlueprintEntries, "keep", stops_each_once)
    used(path, feeds, tmp_path).close()
    assert blueprints(tmp_path)
    assert asked
    assert all(asked.count(shapes) == 2 for shapes in asked)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Blueprint]:
    """The blueprints that were drawn."""
    found, draw = list[Blueprint](), Blueprint.__init__

    def drawing(blueprint: Blueprint, *given: Any, **named: Any) -> None:
        found.append(blueprint)
        draw(blueprint, *given, **named)

    monkeypatch.setattr(Blueprint, "__init__", drawing)
    return found


def test_what_is_written_down_is_traced_and_drawn_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[Blueprint]
) -> None:
    path = net(tmp_path / "net.onnx")
    used(path, X, tmp_path).close()
    traced, trace = list[object](), Source.traced
    drawn.clear()

    def tracing(source: Source, *given: Any) -> Any:
        traced.append(given)
        return trace(source, *given)

    monkeypatch.setattr(Source, "traced", tracing)
    with used(path, X, tmp_path) as session:
        assert blueprints(tmp_path)
        assert len(blueprints(tmp_path)) == len(drawn)
        assert len(traced) == 1
        assert all(one.notes is not None and one.notes.over for one in drawn)
        [y] = session.run(None, OTHER)
        assert isinstance(session.plan, DrawnPlan)  # what was noted goes on to work
        assert not any(one.notes.trace.rows().rows for one in drawn if one.notes is not None)
        assert session._runner.workspace.recipes._sized  # who plans node by node has them, too
        np.testing.assert_allclose(y, wanted(path, OTHER)[0], rtol=1e-4, atol=1e-5)


def test_who_measures_a_plan_writes_down_what_other_sizes_are_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process does, behind the plan as it runs."""
    monkeypatch.setattr("vtensor.runtime.options.speeds_asked_for", lambda: dict)
    monkeypatch.setattr(Better, "wait", lambda one, _: setattr(one, "_wait_s", 1e9))
    path = net(tmp_path / "net.onnx")
    with used(path, X, tmp_path) as session:
        assert not session.plan.provisional
    assert blueprints(tmp_path)
    with started(path, X, tmp_path) as session:
        session.run(None, OTHER)
        assert isinstance(session.plan, DrawnPlan)


@pytest.mark.parametrize("noted", [True, False])
def test_what_looks_at_more_arrays_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    """Their values are not among those by which the model is known again."""
    path, looking = net(tmp_path / "net.onnx"), Source.looking
    used(path, X, tmp_path).close()

    @contextmanager
    def looks(source: Source) -> Iterator[set[Any]]:
        with looking(source) as found:
            yield found
        found.add(("elsewhere", 1))

    monkeypatch.setattr(Source, "looking", looks)
    if not noted:
        monkeypatch.setattr(BlueprintEntries, "notes", lambda *_: None)
    used(path, X, tmp_path).close()
    assert not blueprints(tmp_path)


def test_nothing_is_noted_of_what_is_drawn_once_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[Blueprint]
) -> None:
    """A child that was forked meanwhile has nobody who would end that."""
    monkeypatch.setattr(DrawingNotes, "forget", lambda _: None)
    path = net(tmp_path / "net.onnx")
    used(path, X, tmp_path).close()
    drawn.clear()
    with used(path, X, tmp_path) as session:
        lines = [len(one.notes.trace.rows().rows) for one in drawn if one.notes is not None]
        assert all(lines)
        assert lines
        for rows in (3, 4, 5):
            session.run(None, {"x": f32(rows, 64, 6, 8)})
            assert isinstance(session.plan, DrawnPlan)
        assert lines == [len(one.notes.trace.rows().rows) for one in drawn if one.notes is not None]
