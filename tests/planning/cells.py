"""What processes do with a row of the matrix; each function is called in a process of its own."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from math import inf
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.planning.damage import by_bytes, by_fields
from tests.planning.rows import ROWS, Array, Feeds, GivenModel, Row
from vtensor import Session
from vtensor.benchmark.agreement import difference
from vtensor.errors import InputError, VTensorError
from vtensor.runtime.execution.origin import Origin

#: What a run gives: its outputs, or the type and the text of its error.
Given = list[Array] | tuple[str, str]

#: What two choices may differ by, of an output's largest element.
TOLERANCE = 1e-5

#: Seconds in which a background plan is to take a provisional plan's place.
PATIENCE_S = 30.0


class Answer(NamedTuple):
    """A session's answer to inputs.

    Attributes:
        given: by its first run.
        origin: of that run's plan; None if it failed.
        again: by a run when all other inputs have run.
        origin_again: of that run's plan.
        choice: of its plan, by the lock file; None if that has none, or nothing is compared.
        told: what the session says of its plan.
    """

    given: Given
    origin: Origin | None
    again: Given
    origin_again: Origin | None
    choice: object
    told: object


def apart_by(given: Given, wanted: Given) -> float:
    """Return how far two answers are apart; two errors are equal, or infinitely far."""
    if isinstance(given, tuple) or isinstance(wanted, tuple):
        return 0.0 if given == wanted else inf
    return difference(given, wanted)


def digest_of(given: Given) -> bytes:
    """Return a digest of what a run gives, to the bit."""
    rows = given if isinstance(given, tuple) else [(y.shape, y.tobytes()) for y in given]
    return hashlib.blake2b(repr(rows).encode()).digest()


@cache
def row_of(name: str) -> Row:
    return ROWS[name]()


def write(name: str, path: Path, seed: int = 0) -> Path:
    """Write a row's model; return its path."""
    return row_of(name).write(path, seed)


def feeds_of(name: str, count: int) -> list[Feeds]:
    """Return inputs at multiples of 64 bytes: sums go by where elements are in memory."""
    return [
        {key: _placed(array) for key, array in feeds.items()} for feeds in row_of(name).feeds(count)
    ]


def _placed(array: Array) -> Array:
    memory, strides = np.empty(array.nbytes + 64, np.uint8), np.empty_like(array).strides
    begin = -memory.ctypes.data % 64
    placed: Array = np.ndarray(array.shape, array.dtype, memory, begin, strides)
    placed[...] = array
    return placed


def run(session: Session, row: Row, feeds: Feeds) -> tuple[Given, Origin | None]:
    """Run once; return what it gives, and the origin of its plan."""
    try:
        outputs = session.run(row.outputs, feeds)
    except VTensorError as error:
        return (type(error).__name__, str(error)), None
    return [np.array(y) for y in outputs], session.plan.origin


def choice_of(session: Session) -> object:
    """Return what was chosen for each node of the last run's plan, in the order of the steps."""
    try:
        lock = tomllib.loads(session.lock().text())
    except InputError:  # the run asked for inner values
        return None
    told = ("name", "operator", "library", "kernel", "fuses", "reads", "makes")
    return [[(key, node[key]) for key in told if key in node] for node in lock["node"]]


@contextmanager
def opened(
    row: Row,
    model: GivenModel,
    cache_dir: Path | bool | None,
    costs: str = "declared",
    **options: Any,
) -> Iterator[Session]:
    """Open a session; estimates are by what libraries declare, or by measured speeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VTENSOR_COSTS", costs)
        about = {"threads": 1, **row.options, **options}
        with Session(model, cache_dir=cache_dir, **about) as session:
            yield session


def visit(
    name: str,
    model: GivenModel,
    cache_dir: Path | bool | None,
    order: Sequence[int],
    count: int,
    wanted: Sequence[bytes] = (),
    **options: Any,
) -> dict[int, Answer]:
    """Run the inputs of these numbers one after the other, and all of them again.

    Args:
        name, model, count: the row, its model, and how many inputs are drawn at random.
        cache_dir, options: of the session.
        order: numbers of inputs.
        wanted: digests of what the inputs give: what was chosen is told where that is not given.
    """
    row, feeds = row_of(name), feeds_of(name, count)
    with opened(row, model, cache_dir, **options) as session:
        first = {at: run(session, row, feeds[at]) for at in order}
        answers = {}
        for at in order:
            again, origin = run(session, row, feeds[at])
            told: tuple[object, object] = None, None
            if origin and not (wanted and {*map(digest_of, (first[at][0], again))} == {wanted[at]}):
                told = choice_of(session), told_of(session)
            answers[at] = Answer(*first[at], again, origin, *told)
    return answers


def told_of(session: Session) -> object:
    """Return what a session says of its plan, but for names of Transforms, which count them."""
    plan = session.plan
    steps = [
        ("" if step.is_transform else step.node.name, step.op, step.library, step.kernels)
        for step in plan.steps
    ]
    ends = [*map(str, session.inputs)], [*map(str, session.outputs)]
    moved = [(row.value, str(row.source), str(row.target), row.library) for row in plan.conversions]
    return plan.passes, steps, moved, ends


def fresh(name: str, model: GivenModel, count: int, **options: Any) -> list[Answer]:
    """Run each input in a session of its own, without a cache."""
    inputs = range(len(feeds_of(name, count)))
    return [visit(name, model, None, [at], count, **options)[at] for at in inputs]


def rounding(name: str, model: GivenModel, at: int, count: int) -> tuple[Given, Given]:
    """Run an input, and the same with the last bits of its numbers moved up or down."""
    row, feeds, random = row_of(name), feeds_of(name, count)[at], np.random.default_rng(0)
    with opened(row, model, None) as session:
        moved = {key: _moved(array, random) for key, array in feeds.items()}
        return run(session, row, feeds)[0], run(session, row, moved)[0]


def _moved(array: Array, random: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    ends = random.choice(np.array([-np.inf, np.inf], array.dtype), array.shape)
    moved: Array = np.nextafter(array, ends)
    return moved


def refined(
    name: str, model: GivenModel, cache_dir: Path | None, count: int
) -> tuple[bool, list[Any]]:
    """Run the first input until a background plan has taken the provisional plan's place, and
    the others after that; return whether it has, and what each run gave.
    """
    row, feeds = row_of(name), feeds_of(name, count)
    given = []
    with opened(row, model, cache_dir, "calibrated") as session:
        until = time.monotonic() + PATIENCE_S
        given.append((0, *run(session, row, feeds[0])))
        while given[-1][2] and session.plan.provisional and time.monotonic() < until:
            given[1:] = [(0, *run(session, row, feeds[0]))]
        settled = not (given[-1][2] and session.plan.provisional)
        for _ in range(2):
            given += [(at, *run(session, row, arrays)) for at, arrays in enumerate(feeds)]
    return settled, given


def crowd(
    name: str, model: GivenModel, cache_dir: Path | None, count: int, threads: int
) -> list[tuple[int, Given]]:
    """Run all inputs on several threads at once in one session, on each in another order."""
    row, feeds, meet = row_of(name), feeds_of(name, count), threading.Barrier(threads)
    with (
        opened(row, model, cache_dir, "calibrated") as session,
        ThreadPoolExecutor(threads) as pool,
    ):

        def runs(begin: int) -> list[tuple[int, Given]]:
            meet.wait(60)
            places = [at % len(feeds) for at in range(begin, begin + 2 * len(feeds))]
            return [(at, run(session, row, feeds[at])[0]) for at in places]

        return [answer for row in pool.map(runs, range(threads)) for answer in row]


def full_disk(name: str, model: GivenModel, cache_dir: Path) -> dict[int, Answer]:
    """Visit while no file may have more than 100 bytes."""
    limits, sys.dont_write_bytecode = resource.getrlimit(resource.RLIMIT_FSIZE), True
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        return visit(name, model, cache_dir, range(len(feeds_of(name, 0))), 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = False


def users_own(name: str, model: GivenModel, folder: Path) -> dict[int, Answer]:
    """Visit with the user's own cache, which is in this folder."""
    before = dict(os.environ)
    os.environ |= {"VTENSOR_CACHE": "on", "VTENSOR_CACHE_DIR": str(folder)}
    try:
        return visit(name, model, True, range(len(feeds_of(name, 0))), 0)
    finally:
        os.environ.update(before)


def meanwhile(
    name: str, model: GivenModel, cache_dir: Path | None, change: Callable[..., object], *about: Any
) -> list[Given]:
    """Run the first input; then make a change, and run all inputs."""
    row = row_of(name)
    with opened(row, model, cache_dir) as session:
        run(session, row, feeds_of(name, 0)[0])
        change(*about)
        return [run(session, row, feeds)[0] for feeds in feeds_of(name, 0)]


def entries_of(folder: Path) -> list[Path]:
    """Return all files of a cache."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def damaged(
    name: str,
    model: GivenModel,
    cache: Path,
    other: Path,
    how: str,
    wanted: Sequence[Given],
    count: int,
    costs: str,
) -> tuple[int, list[str]]:
    """Run the first two inputs after each kind of damage to each entry of a cache.

    Args:
        name, model, costs: as for ``visit`` and ``opened``.
        cache: a cache that has all of it; each case gets a copy.
        other: the cache of another model.
        how: "bytes", "kinds" or "values", as ``damage`` has them.
        wanted: what the inputs give.
        count: cases of each kind of damage.

    Returns:
        How many cases there were, and those whose answer was wrong, each with what it was.
    """
    row, feeds, random = row_of(name), feeds_of(name, 0), Random(how)
    contents = [entry.read_bytes() for entry in (*entries_of(cache), *entries_of(other))]
    folder, tried, faults = cache.with_name("damaged"), 0, list[str]()
    for entry in entries_of(cache):
        place, content = folder / entry.relative_to(cache), entry.read_bytes()
        others = [other for other in contents if other != content]
        if how == "bytes":
            cases = by_bytes(content, random.sample(others, min(len(others), count)), random, count)
        else:
            cases = by_fields(content, random, count, kinds=how == "kinds")
        for label, changed in cases:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(cache, folder)
            place.write_bytes(changed)
            case = f"{entry.name}, {label}"
            cache.with_name("last").write_text(case)  # tells which case a process did not survive
            tried += 1
            try:
                with opened(row, model, folder, costs) as session:
                    answers = [run(session, row, arrays)[0] for arrays in feeds[:2]]
            except Exception as error:  # of any type: none is right
                faults.append(f"{case}: {type(error).__name__}: {error}")
                continue
            apart = max(map(apart_by, answers, wanted))
            if not apart <= TOLERANCE:
                faults.append(f"{case}: off by {apart:.2g}")
    return tried, faults


def looked_at(name: str, model: GivenModel, cache: Path) -> Origin:
    """Use a session in all ways beside plain runs; return where its first plan came from."""
    row, feeds = row_of(name), feeds_of(name, 0)[0]
    with opened(row, model, cache) as session:
        given, origin = run(session, row, feeds)
        assert origin is not None
        wanted = np.asarray(given[0])
        profile = session.profile(feeds, runs=1)
        assert len(profile.calls) >= len([step for step in session.plan.steps if step.kernels])
        assert session.memory.planned >= session.memory.live > 0
        assert session.plan.certificate is not None or session.plan.passes
        [name] = session.plan.deliveries
        inner = next(value for value in reversed(session.values) if value != name)
        np.testing.assert_allclose(session.run([inner, name], feeds)[1], wanted, 1e-4, 1e-4)
        out = {name: np.empty_like(wanted)}
        session.run(None, feeds, out=out)
        np.testing.assert_array_equal(out[name], wanted)
        turned = {key: array.T.copy().T for key, array in feeds.items()}
        np.testing.assert_allclose(session.run(None, turned)[0], wanted, 1e-4, 1e-4)
        binding = session.bind(feeds)
        binding.run()
        np.testing.assert_array_equal(binding.outputs[name], wanted)
        for bad in ({}, {**feeds, "other": wanted}, {key: np.zeros(3) for key in feeds}):
            with pytest.raises(InputError):
                session.run(None, bad)
        np.testing.assert_array_equal(session.run(None, feeds)[0], wanted)
    return origin
