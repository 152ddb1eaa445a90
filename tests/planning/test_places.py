"""Folders of caches and files of models that change, are shared, full, foreign or removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.libraries.processes import run_python
from tests.libraries.slow import ALL
from tests.planning import cells
from tests.planning.cells import TOLERANCE, apart_by, entries_of, row_of
from tests.planning.rows import GivenModel
from tests.planning.support import Expected, Process, give_away, process
from vtensor import Session, limit_isa
from vtensor.errors import InputError
from vtensor.runtime.execution.origin import Origin

#: A row whose model is small, and one with large weights in another file.
SMALL, LARGE = "heads", "weights beside"
CACHED = Origin("specialised", cached=True)


def for_each(change: Callable[[Path], object], entries: bool = False) -> Callable[[Path], None]:
    """Return what changes each path of a folder, or each entry."""

    def change_all(folder: Path) -> None:
        for path in entries_of(folder) if entries else [*folder.rglob("*")]:
            change(path)

    return change_all


def links(folder: Path) -> None:
    for number, entry in enumerate(entries_of(folder)):
        entry.symlink_to(entry.rename(folder.parent / f"entry {number}"))


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what replaces a file by something else."""

    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


#: What becomes of a cache, and whether a session that names the folder is refused.
SPOILT: Mapping[str, tuple[Callable[[Path], object], bool]] = {
    "of others": (for_each(lambda path: path.chmod(0o777)), True),
    "of another": (for_each(give_away), True),
    "links": (links, False),
    "pipes": (for_each(replaced(os.mkfifo), entries=True), False),
    "folders": (for_each(replaced(Path.mkdir), entries=True), False),
    "a file": (a_file, True),
    "below a file": (lambda folder: a_file(next(p for p in folder.iterdir() if p.is_dir())), True),
    "removed": (shutil.rmtree, False),
    "read only": (for_each(lambda path: path.chmod(0o500)), False),
}


def prepared(name: str, folder: Path, here: Process, **options: Any) -> tuple[Expected, Path]:
    """Write a row's model; return what fresh sessions answer, and the folder of a cache."""
    model = cells.write(name, folder / "net.onnx")
    return Expected(name, model, here, **options), folder / "cache"


@pytest.mark.parametrize("what", SPOILT)
def test_a_folder_that_is_spoilt(what: str, here: Process, tmp_path: Path) -> None:
    """Nothing of it is read, unless it is only read-only; nor is it an error of the user's own."""
    spoil, refused = SPOILT[what]
    expected, cache = prepared(SMALL, tmp_path, here)
    for origin in (Origin("planned"), CACHED):
        assert here.call(cells.users_own, SMALL, expected.model, cache)[0].origin == origin
    spoil(cache)
    for _ in range(2):
        answers = here.call(cells.users_own, SMALL, expected.model, cache)
        expected.check_all(answers, what)
        assert answers[0].origin is not None
        assert answers[0].origin.cached <= (what != "of others")
    if refused:
        with pytest.raises(InputError, match="cannot be used"):
            Session(expected.model, cache_dir=cache)
    else:
        expected.visit(here, cache, what)


@pytest.mark.parametrize("name", [SMALL, LARGE] if ALL else [SMALL])
def test_a_folder_that_is_removed_meanwhile(name: str, here: Process, tmp_path: Path) -> None:
    expected, cache = prepared(name, tmp_path, here)
    for state in ("cold", "warm", "warm again"):
        answers = here.call(cells.meanwhile, name, expected.model, cache, shutil.rmtree, cache)
        for at, given in enumerate(answers):
            expected.check(at, given, f"removed, {state}")
        for _ in range(state.count("a")):
            expected.visit(here, cache, state)


def test_a_disk_that_is_full(here: Process, tmp_path: Path) -> None:
    """No entry, no remains, and the answers; a cache that is there is read all the same."""
    expected, cache = prepared(SMALL, tmp_path, here)
    about = SMALL, expected.model, cache
    expected.check_all(here.call(cells.full_disk, *about), "full")
    assert not entries_of(cache)
    for cached in (False, True, True):
        origin = expected.visit(here, cache, "no longer full").origin
        assert origin is not None
        assert origin.cached == cached
    before = {entry: entry.read_bytes() for entry in entries_of(cache)}
    answers = here.call(cells.full_disk, *about)
    expected.check_all(answers, "full and warm")
    assert answers[0].origin is not None
    assert answers[0].origin.cached
    assert before == {entry: entry.read_bytes() for entry in entries_of(cache)}


def test_several_processes_at_once(here: Process, tmp_path: Path) -> None:
    """They make the same entries, and take one another's."""
    expected, cache = prepared(SMALL, tmp_path, here)
    about = SMALL, expected.model, cache, expected.order, 0
    with ExitStack() as stack:
        timings = tmp_path / "timings"
        several = [stack.enter_context(process(timings)) for _ in range(20 if ALL else 3)]
        for _ in range(2):
            for wait in [worker.begin(cells.visit, *about) for worker in several]:
                expected.check_all(wait(), "several processes")
    assert expected.visit(here, cache, "after them").origin == CACHED


def _rewrite(name: str, path: Path, seed: int, in_place: bool) -> None:
    """Write the model of another seed, into new files or into those that are there."""
    if not in_place:
        row_of(name).write(path, seed)
        return
    new = path.parent / "new"
    new.mkdir(exist_ok=True)
    row_of(name).write(new / path.name, seed)
    for source in entries_of(new):
        with path.with_name(source.name).open("r+b") as file:
            file.write(source.read_bytes())
            file.truncate()


def _cut(path: Path, nbytes: int) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        os.truncate(file, max(file.stat().st_size - nbytes, 0))


#: What becomes of a model's files while a session has them open.
CHANGES: Mapping[str, Callable[[str, Path], tuple[Any, ...]]] = {
    "other weights": lambda name, path: (_rewrite, name, path, 1, False),
    "other weights in place": lambda name, path: (_rewrite, name, path, 1, True),
    "cut": lambda _, path: (_cut, path, 9),
    "cut off": lambda _, path: (_cut, path, 1 << 30),
    "removed": lambda _, path: (os.unlink, path),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("name", [LARGE, "weights", SMALL] if ALL else [LARGE])
def test_a_model_that_changes_meanwhile(
    name: str, what: str, here: Process, tmp_path: Path
) -> None:
    """Each run answers as the model was, or as it is, or says that it was changed."""
    path, cache = tmp_path / "net.onnx", tmp_path / "cache"
    seeds = (0, 1) if "weights" in what else (0,)
    old, *others = (Expected(name, cells.write(name, path, seed), here) for seed in seeds)
    for state in ("cold", "warm"):
        cells.write(name, path)
        for _ in range(2 * (state == "warm")):
            old.visit(here, cache, "before")
        answers = here.call(cells.meanwhile, name, old.model, cache, *CHANGES[what](name, path))
        for at, given in enumerate(answers):
            if not (isinstance(given, tuple) and given[0] == "ModelError"):
                wanted = [expected.answers[at].given for expected in (old, *others)]
                assert min(apart_by(given, y) for y in wanted) <= TOLERANCE, (what, state, at)
        for new in others:
            new.visit(here, cache, f"after {what}")


#: Rows with weights of each kind, and seeds of which each changes some of them.
WEIGHTS: Mapping[str, tuple[int, ...]] = {
    "weights": (1, 3, 7, 15, 31),
    "weights beside": (8, 1, 16),
    **dict.fromkeys(("fixed plain inside", "fixed folded beside", "fixed small in nodes"), (1,)),
    **dict.fromkeys(("must not be folded", "int4", "f8", "spread", "overridden"), (1,)),
    **{f"turned {kind}": (1,) for kind in ("twice", "reshaped", "cut", "picked beside")},
}
FEW = ["fixed folded beside", "fixed small in nodes", "must not be folded", "turned cut"]


@pytest.mark.parametrize("name", WEIGHTS if ALL else FEW)
def test_a_model_of_other_weights_has_its_own_answers(
    name: str, here: Process, there: Process, tmp_path: Path
) -> None:
    """Of weights that a kernel reads nothing but the values differ; others may decide the plan."""
    path, cache, before = tmp_path / "net.onnx", tmp_path / "cache", None
    for seed in (0, *WEIGHTS[name][: None if ALL else 1], 0):
        expected = Expected(name, cells.write(name, path, seed), here)
        given = expected.answers[0].given
        assert before is None or apart_by(given, before) > TOLERANCE, "the seed says nothing"
        before = given
        for worker in (here, there, here):
            expected.visit(worker, cache, f"weights {seed}")


#: Options of sessions that share a cache.
OPTIONS: list[dict[str, Any]] = [
    {},
    {"threads": 2},
    {"optimize": ["all", "-fuse"]},
    {"optimize": "none"},
    {"libraries": ["eigen", "numpy"]},
    {"output_layouts": {"y": "D1 D0 D2"}},
    {"input_layouts": {"x": "D1 D0 D2"}},
    {"deterministic": True},
    {"reference": False},
    {"objective": "paper"},
    {"max_bytes": 1 << 24},
    {"costs": "calibrated"},
]


def test_other_options_have_other_plans(here: Process, tmp_path: Path) -> None:
    for options in OPTIONS[:: 1 if ALL else 4]:
        expected, cache = prepared("attention", tmp_path, here, **options)
        for _ in range(2):
            expected.visit(here, cache, str(options))
    expected, cache = prepared("attention", tmp_path, here)
    assert expected.visit(here, cache, "the first options again").origin == CACHED


def test_a_process_with_fewer_instructions_has_other_plans(here: Process, tmp_path: Path) -> None:
    """It takes nothing that was chosen with more of them, nor the other way round."""
    with process(tmp_path / "timings") as capped:
        capped.call(limit_isa, "sse41")
        for worker, cached in ((here, False), (capped, False), (here, True), (capped, True)):
            expected, cache = prepared("masks", tmp_path, worker)
            origin = expected.visit(worker, cache, "cap").origin
            assert origin is not None
            assert origin.cached == cached
    about = "masks", expected.model, cache, expected.order, 0
    assert here.call(cells.visit, *about, max_bytes=999)[0].given[0] == "BudgetError"


@pytest.mark.parametrize("name", ["attention" if ALL else SMALL, "fixed folded inside"])
def test_models_that_are_no_files(name: str, here: Process, there: Process, tmp_path: Path) -> None:
    path = cells.write(name, tmp_path / "net.onnx")
    models: list[GivenModel] = [path.read_bytes(), onnx.load(path)]
    for number, model in enumerate(models):
        expected = Expected(name, model, here)
        for cell, worker in (("cold", here), ("warm", there), ("warm again", here)):
            origin = expected.visit(worker, tmp_path / str(number), cell).origin
            assert origin is not None
            assert origin.cached == (cell != "cold")


#: A program that runs a model in some sizes, and how it ends.
PROGRAM = """
import sys
from pathlib import Path
from tests.planning.cells import feeds_of
from vtensor import Session

def run(session):
    for feeds in feeds_of(sys.argv[1], 0)[:2]:
        session.run(None, feeds)

path, cache = Path(sys.argv[2]), Path(sys.argv[3])
if sys.argv[4] == "with":
    with Session(path, threads=1, cache_dir=cache) as session:
        run(session)
elif sys.argv[4] == "function":
    run(Session(path, threads=1, cache_dir=cache))
else:
    run(session := Session(path, threads=1, cache_dir=cache))
    if sys.argv[4] == "fails":
        raise SystemExit(3)
"""


@pytest.mark.parametrize("costs", ["calibrated", "declared"])
@pytest.mark.parametrize("how", ["with", "function", "global", "fails"] if ALL else ["global"])
def test_the_next_process_has_what_a_short_one_chose(
    how: str, costs: str, here: Process, tmp_path: Path
) -> None:
    """However that ended: it had run once in each of two sizes."""
    expected, cache = prepared("masks", tmp_path, here)
    environment = {"VTENSOR_COSTS": costs, "VTENSOR_CACHE_DIR": str(tmp_path / "own")}
    about = "masks", tmp_path / "net.onnx", cache, how
    ran = run_python("-c", PROGRAM, *about, environment=environment)
    assert (ran.returncode, ran.stderr) == (3 if how == "fails" else 0, "")
    for order in (expected.order, expected.order[1:], expected.order[::-1]):
        origin = expected.visit(here, cache, how, order, costs=costs).origin
        assert origin is not None
        assert origin.cached


def test_what_is_said_of_a_plan_that_the_cache_has(here: Process, tmp_path: Path) -> None:
    """Profiles, inner values, outputs into arrays, inputs in other orders: as of any other."""
    expected, cache = prepared("spread", tmp_path, here)
    for _ in range(3):
        expected.visit(here, cache, "before")
    assert here.call(cells.looked_at, "spread", expected.model, cache) == CACHED
