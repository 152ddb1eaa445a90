"""Folders of caches and files of models that change, are shared, full, foreign or no more there."""

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
from tests.planning.support import Expected, Process, process
from vtensor import Session, limit_isa
from vtensor.errors import InputError
from vtensor.runtime.execution.origin import Origin

ROOT = Path(__file__).parents[2]

#: A row whose model is small, and one with large weights in another file.
SMALL, LARGE = "heads", "weights beside"


def _of_others(folder: Path) -> None:
    for one in folder.rglob("*"):
        one.chmod(0o777)


def _of_another(folder: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    for one in folder.rglob("*"):
        os.chown(one, 1, -1)


def _links(folder: Path) -> None:
    for number, one in enumerate(entries_of(folder)):
        one.rename(folder.parent / f"entry {number}")
        one.symlink_to(folder.parent / f"entry {number}")


def _pipes(folder: Path) -> None:
    for one in entries_of(folder):
        one.unlink()
        os.mkfifo(one)


def _folders(folder: Path) -> None:
    for one in entries_of(folder):
        one.unlink()
        one.mkdir()


def _a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


def _below_a_file(folder: Path) -> None:
    inner = next(one for one in folder.iterdir() if one.is_dir())
    shutil.rmtree(inner)
    inner.touch()


def _read_only(folder: Path) -> None:
    for one in folder.rglob("*"):
        one.chmod(0o500)


#: What becomes of a cache, and whether a session that names the folder is refused.
SPOILT: Mapping[str, tuple[Callable[[Path], object], bool]] = {
    "of others": (_of_others, True),
    "of another": (_of_another, True),
    "links": (_links, False),
    "pipes": (_pipes, False),
    "folders": (_folders, False),
    "a file": (_a_file, True),
    "below a file": (_below_a_file, True),
    "removed": (shutil.rmtree, False),
    "read only": (_read_only, False),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_folder_that_is_spoilt(what: str, here: Process, tmp_path: Path) -> None:
    """Nothing of it is read, unless it is only read-only; nor is it an error of the user's own."""
    spoil, refused = SPOILT[what]
    expected = Expected(SMALL, cells.write(SMALL, tmp_path / "net.onnx"), here)
    about = SMALL, expected.model, tmp_path / "cache"
    for origin in (Origin("planned"), Origin("specialised", cached=True)):
        found = here.call(cells.users_own, *about)
        assert found[0].origin == origin
    spoil(tmp_path / "cache")
    for _ in range(2):
        found = here.call(cells.users_own, *about)
        expected.check_all(found, what)
        assert found[0].origin is not None
        assert found[0].origin.cached <= (what != "of others")
    if refused:
        with pytest.raises(InputError, match="cannot be used"):
            Session(expected.model, cache_dir=tmp_path / "cache")
    else:
        expected.visit(here, tmp_path / "cache", what)


@pytest.mark.parametrize("name", [SMALL, LARGE] if ALL else [SMALL])
def test_a_folder_that_is_removed_meanwhile(name: str, here: Process, tmp_path: Path) -> None:
    expected = Expected(name, cells.write(name, tmp_path / "net.onnx"), here)
    for state in ("cold", "warm", "warm again"):
        about = name, expected.model, tmp_path / "cache", shutil.rmtree, tmp_path / "cache"
        for at, given in enumerate(here.call(cells.meanwhile, *about)):
            expected.check(at, given, f"removed, {state}")
        for _ in range(state.count("a")):
            expected.visit(here, tmp_path / "cache", state)


def test_a_disk_that_is_full(here: Process, tmp_path: Path) -> None:
    """No entry, no remains, and the answers; a cache that is there is read all the same."""
    expected = Expected(SMALL, cells.write(SMALL, tmp_path / "net.onnx"), here)
    about = SMALL, expected.model, tmp_path / "cache"
    expected.check_all(here.call(cells.full_disk, *about), "full")
    assert not entries_of(tmp_path / "cache")
    for cached in (False, True, True):
        origin = expected.visit(here, tmp_path / "cache", "no more full").origin
        assert origin is not None
        assert origin.cached == cached
    before = {one: one.read_bytes() for one in entries_of(tmp_path / "cache")}
    found = here.call(cells.full_disk, *about)
    expected.check_all(found, "full and warm")
    assert found[0].origin is not None
    assert found[0].origin.cached
    assert before == {one: one.read_bytes() for one in entries_of(tmp_path / "cache")}


def test_several_processes_at_once(here: Process, tmp_path: Path) -> None:
    """They make the same entries, and take one another's."""
    name, count = "heads", 20 if ALL else 3
    expected = Expected(name, cells.write(name, tmp_path / "net.onnx"), here)
    with ExitStack() as stack:
        several = [stack.enter_context(process(tmp_path / "timings")) for _ in range(count)]
        for _ in range(2):
            about = name, expected.model, tmp_path / "cache", expected.order, 0
            for wait in [one.begin(cells.visit, *about) for one in several]:
                found = wait()
                expected.check_all(found, "several processes")
    origin = expected.visit(here, tmp_path / "cache", "behind them").origin
    assert origin == Origin("specialised", cached=True)


def _rewrite(name: str, path: Path, seed: int, in_place: bool) -> None:
    """Write the model of another seed, into new files or into those that are there."""
    if not in_place:
        row_of(name).write(path, seed)
        return
    new = path.parent / "new"
    new.mkdir(exist_ok=True)
    row_of(name).write(new / path.name, seed)
    for one in entries_of(new):
        with path.with_name(one.name).open("r+b") as file:
            file.write(one.read_bytes())
            file.truncate()


def _cut(path: Path, nbytes: int) -> None:
    for one in path.parent.glob(f"{path.name}*"):
        os.truncate(one, max(one.stat().st_size - nbytes, 0))


#: What becomes of a model's files while a session has them open.
CHANGES: Mapping[str, Callable[[str, Path], tuple[Any, ...]]] = {
    "other weights": lambda name, path: (_rewrite, name, path, 1, False),
    "other weights in place": lambda name, path: (_rewrite, name, path, 1, True),
    "cut": lambda _, path: (_cut, path, 9),
    "cut off": lambda _, path: (_cut, path, 1 << 30),
    "removed": lambda _, path: (os.unlink, path),
}
#: Seeds of the model before, and of that behind the change where there is one.
SEEDS = {what: (0, 1) if "weights" in what else (0,) for what in CHANGES}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("name", [LARGE, "weights", SMALL] if ALL else [LARGE])
def test_a_model_that_changes_meanwhile(
    name: str, what: str, here: Process, tmp_path: Path
) -> None:
    """Each run answers as the model was, or as it is, or says that it was changed."""
    path, cache = tmp_path / "net.onnx", tmp_path / "cache"
    old, *others = (Expected(name, cells.write(name, path, seed), here) for seed in SEEDS[what])
    for state in ("cold", "warm"):
        cells.write(name, path)
        for _ in range(2 * (state == "warm")):
            old.visit(here, cache, "before")
        found = here.call(cells.meanwhile, name, old.model, cache, *CHANGES[what](name, path))
        for at, given in enumerate(found):
            if not (isinstance(given, tuple) and given[0] == "ModelError"):
                wanted = [one.answers[at].given for one in (old, *others)]
                assert min(apart_by(given, one) for one in wanted) <= TOLERANCE, (what, state, at)
        for new in others:
            new.visit(here, cache, f"behind {what}")


#: Rows with weights of each kind, and seeds of which each changes some of them.
WEIGHTS: Mapping[str, tuple[int, ...]] = {
    "weights": (1, 3, 7, 15, 31),
    "weights beside": (8, 1, 16),
    "fixed plain inside": (1,),
    "fixed folded beside": (1,),
    "fixed small in nodes": (1,),
    "must not be folded": (1,),
    "int4": (1,),
    "f8": (1,),
    "spread": (1,),
    "overridden": (1,),
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
        for one in (here, there, here):
            expected.visit(one, cache, f"weights {seed}")


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
    name, cache = "attention", tmp_path / "cache"
    model = cells.write(name, tmp_path / "net.onnx")
    for options in OPTIONS[:: 1 if ALL else 4]:
        expected = Expected(name, model, here, **options)
        for _ in range(2):
            expected.visit(here, cache, str(options))
    first = Expected(name, model, here).visit(here, cache, "the first options again")
    assert first.origin == Origin("specialised", cached=True)


def test_a_process_with_fewer_instructions_has_other_plans(here: Process, tmp_path: Path) -> None:
    """It takes nothing that was chosen with more of them, nor the other way round."""
    name, cache = "masks", tmp_path / "cache"
    model = cells.write(name, tmp_path / "net.onnx")
    with process(tmp_path / "timings") as capped:
        capped.call(limit_isa, "sse41")
        for one, cached in ((here, False), (capped, False), (here, True), (capped, True)):
            expected = Expected(name, model, one)
            origin = expected.visit(one, cache, "cap").origin
            assert origin is not None
            assert origin.cached == cached
    found = here.call(cells.visit, name, model, cache, expected.order, 0, max_bytes=999)
    assert found[0].given[0] == "BudgetError"


@pytest.mark.parametrize("name", ["attention", "fixed folded inside"])
def test_models_that_are_no_files(name: str, here: Process, there: Process, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    cells.write(name, path)
    models: list[GivenModel] = [path.read_bytes(), onnx.load(path)]
    for number, model in enumerate(models):
        expected = Expected(name, model, here)
        for cell, one in (("cold", here), ("warm", there), ("warm again", here)):
            origin = expected.visit(one, tmp_path / str(number), cell).origin
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
    expected = Expected("masks", cells.write("masks", tmp_path / "net.onnx"), here)
    about = "masks", tmp_path / "net.onnx", tmp_path / "cache", how
    ran = run_python(
        "-c",
        PROGRAM,
        *about,
        environment={"VTENSOR_COSTS": costs, "VTENSOR_CACHE_DIR": str(tmp_path / "own")},
    )
    assert (ran.returncode, ran.stderr) == (3 if how == "fails" else 0, "")
    for order in (expected.order, expected.order[1:], expected.order[::-1]):
        origin = expected.visit(here, tmp_path / "cache", how, order, costs=costs).origin
        assert origin is not None
        assert origin.cached


def test_what_is_said_of_a_plan_that_the_cache_has(here: Process, tmp_path: Path) -> None:
    """Profiles, inner values, outputs into arrays, inputs in other orders: as of any other."""
    name = "spread"
    expected = Expected(name, cells.write(name, tmp_path / "net.onnx"), here)
    for _ in range(3):
        expected.visit(here, tmp_path / "cache", "before")
    assert here.call(cells.looked_at, name, expected.model, tmp_path / "cache") == Origin(
        "specialised", cached=True
    )
