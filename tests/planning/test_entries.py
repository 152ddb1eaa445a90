"""Which entries of a cache a session takes, what it writes there, and what damage does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from tests.libraries.slow import ALL, slow_but
from tests.planning import cells
from tests.planning.cells import TOLERANCE, entries_of
from tests.planning.damage import signed
from tests.planning.rows import Array, Feeds, saved
from tests.planning.support import Expected, Process, give_away, process
from vtensor import Session
from vtensor.benchmark.agreement import difference

NET = """net (float[n, 64, h, 8] x) => (float[n, h, 8, 96] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, k) r = Relu(c) t = Transpose<perm = [0, 2, 3, 1]>(r)
    y = MatMul(t, w) }"""
X = {"x": f32(2, 64, 8, 8)}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """Write a model with large weights; return its path."""
    return saved(model(NET, k=f32(64, 64, 3, 3) / 24, w=f32(64, 96) / 8), tmp_path / "net.onnx")


def answer(path: Path, cache: Path | None, feeds: Feeds = X, **options: Any) -> tuple[Array, bool]:
    """Run once in a session of its own; return the output, and whether the cache had the plan."""
    with Session(path, threads=1, cache_dir=cache, **options) as session:
        [y, *_] = session.run(None, feeds)
        return np.array(y), session.plan.origin.cached


def check_cached(net: Path, cache: Path, *expected: bool) -> None:
    """Check for runs, each in its own session, whether the cache had the plan."""
    assert [answer(net, cache)[1] for _ in expected] == [*expected]


SPOILS: dict[str, Callable[[Path], object]] = {
    "for all": lambda file: file.chmod(0o666),
    "for a group": lambda file: file.chmod(0o620),
    "of another": give_away,
}


@pytest.mark.parametrize("how", SPOILS)
def test_files_that_others_may_have_written(how: str, net: Path, tmp_path: Path) -> None:
    """The folder is the user's own: each file counts by itself, and is written again."""
    wanted, _ = answer(net, cache := tmp_path / "cache")
    check_cached(net, cache, True)
    for file in entries_of(cache):
        SPOILS[how](file)
    y, was_cached = answer(net, cache)
    assert not was_cached
    assert difference([y], [wanted]) <= TOLERANCE
    check_cached(net, cache, True)


def test_other_settings_distributions_and_processors_have_other_entries(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor is another one also with the same instructions: this process only says so."""
    cache, site = tmp_path / "cache", tmp_path / "site"
    check_cached(net, cache, False, True)
    for value in "12":
        with monkeypatch.context() as patch:
            patch.setenv("VTENSOR_SOME_SETTING", value)
            check_cached(net, cache, False, True)
    (site / "more-1.0.dist-info").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(site))
        check_cached(net, cache, False, True)
        (site / "more-1.0.dist-info").rename(site / "more-2.0.dist-info")
        check_cached(net, cache, False, True)
    with monkeypatch.context() as patch:
        patch.setattr("vtensor.runtime.cache.plans.processor", lambda: "another")
        check_cached(net, cache, False, True)
    check_cached(net, cache, True)


def test_a_provisional_choice_is_provisional_in_the_next_process(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until one of them was there for long enough to measure."""
    monkeypatch.setenv("VTENSOR_COSTS", "calibrated")
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "timings"))

    def run(wait: bool = False) -> tuple[bool, bool, bool]:
        with Session(net, threads=1, cache_dir=tmp_path / "cache") as session:
            session.run(None, X)
            if wait:
                session.lock()  # waits for the plan that takes its place
            plan = session.plan
            return plan.origin.cached, plan.provisional, plan.refinement is not None

    assert [run() for _ in range(3)] == [(cached, True, True) for cached in (False, True, True)]
    assert not run(wait=True)[1]
    assert run()[:2] == (True, False)


def test_tuned_plans_hold_for_their_own_sizes(net: Path, tmp_path: Path) -> None:
    """Another session takes them as they are; other sizes, and sessions that measure nothing, have
    plans of their own.
    """

    def told(height: int, **options: Any) -> tuple[bool, object, object]:
        feeds = {"x": f32(2, 64, height, 8)}
        with Session(net, threads=1, cache_dir=tmp_path / "cache", **options) as session:
            session.run(None, feeds)
            plan = session.plan
            steps = [(step.node.name, step.library, step.kernels) for step in plan.steps]
            return plan.origin.cached, plan.taken_from, steps

    tuned: dict[str, Any] = {"tune": True, "tolerance": 0}
    first, again = told(8, **tuned), told(8, **tuned)
    assert (first[0], again[0]) == (False, True)
    assert again[1:] == first[1:]
    other = told(9, **tuned)
    assert other[:2] == (False, None)
    assert told(9, **tuned) == (True, *other[1:])
    assert told(8, **tuned) == again
    assert not told(8)[0]
    assert told(8)[0]


@pytest.mark.parametrize("size", ["2", "n"])
def test_nothing_is_chosen_for_a_cache_that_nothing_ran_for(size: str, tmp_path: Path) -> None:
    """What a session reads of a model is there at once; plans are written after a run."""
    text = f"net (float[{size}, 8] x) => (float[{size}, 8] y) {{ y = Relu(x) }}"
    path, cache = saved(model(text), tmp_path / "net.onnx"), tmp_path / "cache"
    for _ in range(2):
        with Session(path, threads=1, cache_dir=cache) as session:
            assert session.inputs
    assert not [entry for entry in entries_of(cache) if entry.name.startswith("plan-")]
    assert [answer(path, cache, {"x": f32(2, 8)})[1] for _ in range(2)] == [False, True]


#: Nodes that read parts of a weight along its first axis, with which they are fused or not.
PARTS = {
    "convolutions": (
        """net (float[n, 64, h, 8] x) => (float[n, 64, h, 8] y) <int64[3] sizes = {64, 64, 64}> {
        c = Conv<pads = [1, 1, 1, 1]>(x, w) a, b, d = Split<axis = 1>(c, sizes)
        e = Mul(a, b) y = Add(e, d) }""",
        (192, 64, 3, 3),
    ),
    "products": (
        """net (float[n, 64, h, 8] x) => (float[m, 256] y)
        <int64[3] sizes = {256, 256, 256}, int64[2] rows = {-1, 256}> {
        f = Reshape(x, rows) g = Gemm<transB = 1>(f, w) a, b, d = Split<axis = 1>(g, sizes)
        e = Mul(a, b) y = Add(e, d) }""",
        (768, 256),
    ),
    "cut": (
        """net (float[n, 64, h, 8] x) => (float[n, 64, h, 128] y) <int64[3] sizes = {8, 8, 8}> {
        a, b, d = Split<axis = 0>(w, sizes) p = MatMul(x, a) q = MatMul(x, b) r = MatMul(x, d)
        e = Mul(p, q) y = Add(e, r) }""",
        (24, 128),
    ),
}


@pytest.mark.parametrize(
    ("kind", "beside"),
    slow_but(
        [("convolutions", True), ("products", False), ("cut", True)],
        product(PARTS, (False, True)),
    ),
)
def test_weights_that_are_parts_of_a_larger_array(kind: str, beside: bool, tmp_path: Path) -> None:
    """Each part has its own rows: of this file, and of one with other weights."""
    text, shape = PARTS[kind]
    path, cache = tmp_path / "net.onnx", tmp_path / "cache"
    for seed in (0, 1, 0):
        saved(model(text, w=f32(*shape, seed=seed) / 9), path, beside)
        for n, height in ((2, 5), (1, 9), (3, 5)):
            x = f32(n, 64, height, 8, seed=n)
            wanted, _ = answer(path, None, {"x": x}, libraries=["numpy"], optimize="none")
            for folder in (None, cache, cache):
                with Session(path, threads=2, cache_dir=folder) as session:
                    for array in (x, np.asfortranarray(x)):  # the plans have the same weights
                        assert difference(session.run(None, {"x": array}), [wanted]) <= 1e-4


def named(data: Any) -> Iterator[Any]:
    """Yield all tables of an entry that name functions, or things of native modules."""
    if isinstance(data, dict) and {"path", "function", "computes"} & data.keys():
        yield data
    if isinstance(data, dict | list):
        for part in data.values() if isinstance(data, dict) else data:
            yield from named(part)


CALLED = list[object]()


def called(*given: object) -> None:
    """Be what no entry may have called."""
    CALLED.append(given)


#: What is written in the place of a name: by its place in a module, or as a pure function.
NAMES: list[dict[str, Any]] = [
    {"path": [__name__, "called"]},
    {"path": ["os", "abort"]},
    {"path": ["libdesc.onednn._onednn", "__class__"]},
    {"path": ["builtins", "exit"]},
    {"function": f"{__name__}:called"},
    {"function": "os:abort"},
    {"function": "libdesc.tracing:pure_function"},
    {"computes": [f"{__name__}:called", {}]},
]


@pytest.mark.parametrize("which", range(len(NAMES)))
def test_an_entry_calls_nothing_of_pythons(which: int, net: Path, tmp_path: Path) -> None:
    """Names that VTensor's native libraries have not registered are refused, and so is the plan."""
    wanted, _ = answer(net, cache := tmp_path / "cache")
    check_cached(net, cache, True)
    changed = 0
    for file in entries_of(cache):
        if file.name.startswith("weights"):
            continue
        line, _, payload = file.read_bytes().partition(b"\n")
        head, newline, blob = payload.partition(b"\n")
        data = json.loads(head)
        for table in [*named(data)]:
            table.clear()
            table.update(NAMES[which])
            changed += 1
        file.write_bytes(signed(line, json.dumps(data).encode() + newline + blob))
    assert changed
    with Session(net, threads=1, cache_dir=cache) as session:
        for rows in (2, 3):
            [y] = session.run(None, {"x": f32(rows, 64, 8, 8)})
            assert session.plan.origin.way != "specialised" or not session.plan.origin.cached
            assert rows != 2 or difference([y], [wanted]) <= TOLERANCE
    assert not CALLED


def crowded(session: Session, names: list[str], number: int) -> None:
    """Run sizes of a thread's own; every other thread asks for the names of values before."""
    for rows in range(2, 5):
        if number % 2:
            assert {*session.values} <= {*names}
        session.run(None, {"x": f32(rows + number, 64, 8, 8)})


def test_names_of_values_while_a_model_is_read(net: Path, tmp_path: Path) -> None:
    """After a start from the cache, which reads no nodes, and while other threads run."""
    with Session(net, threads=1, cache_dir=tmp_path) as session:
        session.run(None, X)
        names = session.values
    assert {"x", "c", "r", "y"} <= {*names}
    for _ in range(3):
        with (
            Session(net, threads=1, cache_dir=tmp_path) as session,
            ThreadPoolExecutor(4) as pool,
        ):
            for task in [pool.submit(crowded, session, names, number) for number in range(4)]:
                task.result(120)
            assert session.values == names
    with Session(net, threads=1, cache_dir=tmp_path) as session:
        session.run(None, X)
        assert session.plan.origin.cached
        assert session.values == names


#: Rows whose caches are damaged, by which costs, and how: some, and all, each in three ways.
USUAL = [
    ("heads", "declared", "bytes"),
    ("heads", "declared", "values"),
    ("fixed small inside", "calibrated", "kinds"),
]
CALIBRATED = ("fixed small inside", "weights beside", "attention")
DECLARED = ("heads", "masks", "spread", "fixed folded inside", "call-back", "overridden")
EACH = [
    (name, "calibrated" if name in CALIBRATED else "declared", how)
    for name in (*DECLARED, "detector", *CALIBRATED)
    for how in ("bytes", "kinds", "values")
]
#: Cases of each kind of damage.
COUNT = 12 if ALL else 3


def filled(name: str, costs: str, here: Process, folder: Path) -> tuple[Path, Path]:
    """Return a model, and a cache that has all that sessions leave of it."""
    folder.mkdir()
    path, cache = cells.write(name, folder / "net.onnx"), folder / "cache"
    order = range(len(cells.feeds_of(name, 0)))
    for _ in range(3):
        here.call(cells.visit, name, path, cache, order, 0, costs=costs)
    return path, cache


@pytest.mark.parametrize(("name", "costs", "how"), EACH if ALL else USUAL)
def test_no_entry_changes_an_answer(
    name: str, costs: str, how: str, here: Process, tmp_path: Path
) -> None:
    """Damaged, cut, swapped, foreign, older and newer entries, and other fields under a right
    digest: of all files of a cache, whatever they hold.
    """
    path, cache = filled(name, costs, here, tmp_path / "one")
    _, other = filled("turning", costs, here, tmp_path / "other")
    wanted = [expected.given for expected in Expected(name, path, here).answers]
    about = name, path, cache, other, how, wanted, COUNT, costs
    with process(tmp_path / "timings") as apart:  # which may not survive
        try:
            tried, faults = apart.call(cells.damaged, *about)
        except BrokenProcessPool:
            pytest.fail(f"the process crashed: {(cache.parent / 'last').read_text()}")
    assert tried >= COUNT
    if how == "values":  # what no other part of an entry repeats may be another number
        assert all(": off by" in fault and "off by inf" not in fault for fault in faults), faults
        assert len(faults) <= max(1, tried // 20), faults
    else:
        assert not faults


def test_damage_that_changes_an_answer_is_seen(here: Process, tmp_path: Path) -> None:
    path, cache = filled("heads", "declared", here, tmp_path / "one")
    answers = Expected("heads", path, here).answers
    wanted = [[np.asarray(expected.given[0]) + 1] for expected in answers]
    about = "heads", path, cache, cache, "bytes", wanted, 0, "declared"
    tried, faults = here.call(cells.damaged, *about)
    assert len(faults) == tried > 0
