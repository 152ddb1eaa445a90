"""Entries of the cache that say something else under a digest that is right.

Whoever may write to the cache can sign what it says. What does not fit the model, the run or itself
is no entry: the answers are those without a cache, and there is no error.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.packed_nets import written
from vtensor import Session
from vtensor.errors import InputError
from vtensor.runtime import programs
from vtensor.runtime.entries import FOLDER, Entries
from vtensor.runtime.feeds import noise

Array = np.ndarray[Any, Any]

#: Mutations of an entry of each kind.
COUNT = 40

#: Of plans as they run: what says which constants and which inputs and outputs they have. Their
#: steps, and where these read and write, say nothing that another part of an entry says as well.
PARTS = ("needs", "weights", "packing", "natives", "slots", "inputs", "own", "outputs", "builds")


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have registered operators; the networks here have none."""
    monkeypatch.setattr(programs, "only_own", lambda: True)


def run(path: Path, cache: Path | None) -> Array:
    with Session(path, threads=1, cache_dir=cache) as session:
        [found] = session.run(None, noise(session.inputs, {}))
    return found


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Array]:
    """A model, a cache that has all of it, and what it answers."""
    folder = tmp_path_factory.mktemp("forged")
    path = written("folded", folder / "net.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "only_own", lambda: True)
        for _ in range(3):
            run(path, folder / "cache")
    return path, folder / "cache", run(path, None)


def places(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values but names of entries."""
    if way and way[0] != "name":
        yield way
    inside = data.items() if isinstance(data, dict) else ()
    for key, value in enumerate(data) if isinstance(data, list) else inside:
        yield from places(value, (*way, key))


def value_at(data: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        data = data[key]
    return data


def mutate(data: Any, rng: random.Random, parts: tuple[str, ...]) -> tuple[Any, ...]:
    """Change one value; the way to it."""
    ways = [way for way in places(data) if not parts or way[0] in parts]
    way = rng.choice(ways)
    *outer, last = way
    holder, value = value_at(data, tuple(outer)), value_at(data, way)
    alike = [one for other in ways if type(one := value_at(data, other)) is type(value)]
    if isinstance(value, bool) or value is None:
        changed: Any = not value
    elif isinstance(value, int):
        changed = rng.choice([value + 1, value - 1, value * 2, 0, -1, 1 << 70, None, "1", *alike])
    elif isinstance(value, str):
        changed = rng.choice([value[:-1], f"{value}x", "", "\0", None, 0, *alike])
    elif isinstance(value, list) and value:
        changed = copy.copy(value)
        rng.choice([changed.pop, changed.reverse, lambda: changed.append(value[0])])()
    else:
        changed = rng.choice([None, 0, "x", [], {}])
    holder[last] = changed
    return way


def kind_of(name: str) -> str:
    """What an entry of this name is of."""
    kinds = ("surface", "model", "program")
    return next((kind for kind in kinds if kind in name), "choice")


@pytest.mark.parametrize("kind", ["surface", "model", "program", "choice"])
def test_a_forged_entry_changes_no_answer(
    kind: str, known: tuple[Path, Path, Array], tmp_path: Path
) -> None:
    path, cache, wanted = known
    for seed in range(COUNT):
        shutil.rmtree(tmp_path / FOLDER, ignore_errors=True)
        shutil.copytree(cache / FOLDER, tmp_path / FOLDER)
        entries = Entries(tmp_path)
        name = next(one for one in sorted(entries.names("")) if kind_of(one) == kind)
        head, line, blob = (entries.read(name) or b"").partition(b"\n")
        data = json.loads(head)
        way = mutate(data, random.Random(seed), PARTS if kind == "program" else ())
        entries.write(name, json.dumps(data, separators=(",", ":")).encode() + line + blob)
        for _ in range(2):  # what is made from scratch may take the entry's place
            found = run(path, tmp_path)
            np.testing.assert_allclose(found, wanted, 1e-3, 1e-4, err_msg=f"{seed}: {way}")


def test_wrong_feeds_are_errors_as_ever(known: tuple[Path, Path, Array]) -> None:
    path, cache, wanted = known
    with Session(path, threads=1, cache_dir=cache) as session:
        given = noise(session.inputs, {})
        [(name, array)] = given.items()
        for feeds in ({}, {"other": array}, {name: np.zeros(3)}, {name: array, "other": array}):
            with pytest.raises(InputError):
                session.run(None, feeds)
        [found] = session.run(None, given)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
