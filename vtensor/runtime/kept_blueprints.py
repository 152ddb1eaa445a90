"""Blueprints on disk: plans for other sizes behind a plan that was taken as it was kept.

As that, an entry holds no code and no address: what its tapes compute and ask are rows
(``libdesc/tape_rows.py``), and native code checks each call that it makes and each place. What an
entry says is taken where all its questions have the answers that they had.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.noted import named
from libdesc.tape_rows import TapeRows
from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from vtensor.language.dtype import numpy_dtype
from vtensor.language.imported import logger
from vtensor.language.tensor import VTensor
from vtensor.runtime.drawn import Placed
from vtensor.runtime.entries import Entries
from vtensor.runtime.open_program import Calls, Delivered, End, OpenProgram, Stand, sizes_of
from vtensor.runtime.open_slots import Numbers, Pieces, Slots
from vtensor.runtime.options import Options
from vtensor.runtime.programs import FIRST, digest_of
from vtensor.runtime.recording.weights import SavedWeights
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from vtensor.frontends.surface import Surface
    from vtensor.runtime.keys import PlanKey

Array = np.ndarray[Any, Any]

#: Blueprints that are kept of a model's inputs: each serves a range of sizes.
MOST = 6

_log = logger(__name__)


def blueprint_names(
    surface: Surface, key: PlanKey, options: Options, threads: int, provisional: bool
) -> list[str]:
    """The names of the entries that may serve a key, of provisional choices or of measured ones."""
    values = [(one.name, one.value) for one in key.inputs if one.value is not None]
    digest = digest_of(surface, (key.kind, values), options, threads)
    first = FIRST if provisional else ""
    return [f"{first}blueprint-{digest}-{number}" for number in range(MOST)]


class KeptBlueprint(OpenProgram):
    """A blueprint that was read.

    Args:
        name: the entry's.
        payload: what it holds.
        surface: the model.
        workspace: what plans share.

    Attributes:
        applied: where rules were applied to its graph.
        provisional: it is of provisional choices.
        chosen: the entry of the strategy that it was drawn of.
        shapes: what that was chosen for.
        steps: how many it has.
        fails: what it says cannot be made here.

    Raises:
        Exception: of any kind, where it is none.
    """

    def __init__(self, name: str, payload: bytes, surface: Surface, workspace: Workspace) -> None:
        head, _, blob = payload.partition(b"\n")
        self._data: dict[str, Any] = json.loads(head)
        data, self._workspace = self._data, workspace
        if data["name"] != name:
            raise ValueError("it is another one's")
        self.provisional = name.startswith(FIRST)
        self.applied = frozenset((str(rule), str(node)) for rule, node in data["applied"])
        self.shapes = {one: tuple(map(int, shape)) for one, shape in data["shapes"].items()}
        self.chosen = blob[data["strategy"] :]
        self.steps = len(data["steps"])
        self._weights = SavedWeights(data, blob, surface, workspace)
        self.sizes = TapeRows(data["outline"], self._plain).run
        self._made = self.fails = False

    def serves(self, given: Sequence[int]) -> bool:
        """Whether there may be a plan for open sizes."""
        return self.sizes(given) is not None

    def make(self) -> None:
        """Pack its weights, and have the rest at hand, once.

        Raises:
            Exception: of any kind, where something is none here.
        """
        if self._made:
            return
        data, weights, workspace = self._data, self._weights, self._workspace
        made = weights.natives()
        things = [made[place] for place in data["things"]]

        def constant(one: Any) -> Any:
            return _constant(one, weights, things)

        self.calls = [
            Calls(TapeRows(one["tape"], constant), one["sizes"], {*one["natives"]})
            for one in data["calls"]
        ]
        self.rows = [(int(source), int(place)) for source, place in data["rows"]]
        self.run = TapeRows(data["tape"], self._plain).run
        self.numbers = Numbers(data["fixed"])
        self.natives = [
            made[one] if isinstance(one, int) else Stand(one[0], one[1], tuple(one[2]))
            for one in data["steps"]
        ]
        packed = iter(weights.made())
        ends: dict[int, tuple[int, End]] = {
            region: (row, _end(*end)) for region, row, end in data["ends"]
        }
        self._ends = ends
        self._lying = {region: (row, end.lying) for region, (row, end) in ends.items()}
        self.memory = [
            np.empty(0, np.uint8) if region in self._ends else next(packed)
            for region in range(data["regions"])
        ]
        self.packed = workspace.weights.hold(weights.memory)
        self._open = None
        if self._ends:
            from vtensor.runtime.open_constants import OpenConstants

            self._open = OpenConstants(data["open"], weights.blob, weights.array)
        self.slots = Slots(
            self.natives,
            data["counts"],
            _pieces(data["pieces"]),
            np.array(data["piece"], np.int64),
            data["region"],
            np.array(data["begin"], np.int64),
            (),
        )
        self.slots.check()
        self.held, self.live = np.array(data["held"], np.int64), _pieces(data["live"])
        self.asked = [
            (one, other, [(str(dim), int(at)) for dim, at in dims])
            for one, other, dims in data["asked"]
        ]
        self.inputs = [_end(*one) for one in data["inputs"]]
        self.own = [_end(*one) for one in data["own"]]
        self.outputs = [Delivered(alias, _end(*end), at) for alias, end, at in data["outputs"]]
        self.proven = data["proven"] is True
        self._made = True
        self._data = {}

    def _plain(self, one: Any) -> Any:
        """A constant of a tape of sizes alone."""
        return _constant(one, self._weights, ())

    def _placed(self, natives: Sequence[object], numbers: Array) -> tuple[Placed, int]:
        self.slots.check_room(natives, numbers)
        return super()._placed(natives, numbers)

    def _regions(self, sizes: Sequence[int], numbers: Array) -> Sequence[Array] | None:
        if self._open is None:
            return self.memory
        arrays, found = self._open.at(sizes), [*self.memory]
        made = dict[Hashable, Array]()  # layers share what they compute of sizes alike
        for region, (row, end) in self._ends.items():
            lying = self._lying[region]
            if lying not in made:
                tensor = VTensor(end.dtype, sizes_of(end.dims, numbers))
                one = TensorStorage.of_array(arrays[row], tensor, end.layout, constant=True)
                made[lying] = one.buffer.memory
            found[region] = made[lying]
        return found


class KeptBlueprints:
    """The blueprints of a model's inputs, read once each.

    Args:
        entries: the cache.
        names: theirs.
        surface, workspace: as for ``KeptBlueprint``.
    """

    def __init__(
        self, entries: Entries, names: Sequence[str], surface: Surface, workspace: Workspace
    ) -> None:
        self._entries, self._names = entries, names
        self._about = surface, workspace
        self._read: list[KeptBlueprint] = []

    def __iter__(self) -> Iterator[KeptBlueprint]:
        yield from self._read
        while self._names:
            [name, *self._names] = self._names
            payload = self._entries.read(name)
            if payload is None:
                self._names = []
                return
            try:
                found = KeptBlueprint(name, payload, *self._about)
            except Exception as why:  # of any kind, of whatever an entry says
                _log.debug("%s: what is kept is not taken: %s", name, why)
            else:
                self._read.append(found)
                yield found


def _constant(one: Any, weights: SavedWeights, things: Sequence[Any]) -> Any:
    """A constant of a tape."""
    if isinstance(one, list):
        [plain] = one
        return plain
    match one:
        case {"layout": str(text)}:
            return Layout(text)
        case {"tuple": list(parts)}:
            return tuple([_constant(part, weights, things) for part in parts])
        case {"list": list(parts)}:
            return [_constant(part, weights, things) for part in parts]
        case {"function": str(name)}:
            return named(name, taped=True)
        case {"path": [str(name), *names]}:
            return _led(weights.module(name), names)
        case {"native": int(place), "names": list(names)}:
            return _led(things[place], names)
    raise ValueError(f"no constant: {one}")


def _led(thing: Any, names: Sequence[str]) -> Any:
    """What names lead to."""
    for name in names:
        if name.startswith("_"):
            raise ValueError(f"{name} is nobody else's")
        thing = getattr(thing, name)
    return thing


def _pieces(row: Sequence[Any]) -> Pieces:
    nbytes, first, last = row
    return Pieces(np.array(nbytes, np.int64), first, last)


def _end(name: str, dtype: str, dims: Sequence[Any], layout: str, constant: bool) -> End:
    """A value.

    Raises:
        Exception: of any kind, where there is no such element type or layout.
    """
    numpy_dtype(dtype)
    return End(name, dtype, [(str(dim), int(at)) for dim, at in dims], Layout(layout), constant)
