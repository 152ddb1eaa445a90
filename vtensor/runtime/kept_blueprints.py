"""Blueprints on disk: plans for other sizes behind a plan that was taken as it was kept.

As that, an entry holds no code and no address: it has the rows of traces
(``vtensor/language/trace.py``), and native code checks each call that it makes and each place. What
an entry says is taken where all guards have the answers that they had.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.native_trace import ConstantReader
from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from vtensor.language.dtype import numpy_dtype
from vtensor.language.imported import logger
from vtensor.language.interrupts import MALFORMED, pass_signals
from vtensor.language.tensor import VTensor
from vtensor.language.trace import Rows
from vtensor.runtime.drawn import Placed
from vtensor.runtime.entries import Entries
from vtensor.runtime.kept_weights import KeptWeights
from vtensor.runtime.open_program import Calls, Delivered, End, OpenProgram, Stand, sizes_of
from vtensor.runtime.open_slots import Numbers, Pieces, Slots
from vtensor.runtime.options import Options
from vtensor.runtime.programs import FIRST, digest_of
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
        others: what is packed already, as ``KeptWeights.packed`` says it.
        held: keeps that in the count of weights.

    Attributes:
        applied: where rules were applied to its graph.
        provisional: it is of provisional choices.
        chosen: the entry of the strategy that it was drawn of.
        shapes: what that was chosen for.
        steps: how many it has.
        made: its weights are packed.
        fails: what it says cannot be made here.

    Raises:
        Exception: of any kind, where it is none.
    """

    def __init__(
        self,
        name: str,
        payload: bytes,
        surface: Surface,
        workspace: Workspace,
        others: Mapping[Hashable, Array],
        held: object = None,
    ) -> None:
        head, _, blob = payload.partition(b"\n")
        self._data: dict[str, Any] = json.loads(head)
        data, self._workspace, self._others = self._data, workspace, others
        if data["name"] != name:
            raise ValueError("it is another one's")
        self.provisional = name.startswith(FIRST)
        self.applied = frozenset((str(rule), str(node)) for rule, node in data["applied"])
        self.shapes = {one: tuple(map(int, shape)) for one, shape in data["shapes"].items()}
        self.chosen = blob[data["strategy"] :]
        self.steps = len(data["steps"])
        self._weights = KeptWeights(data, blob, surface, workspace)
        self._arrays = ConstantReader(self._weights.module, (), self._weights.trace_array)
        self.sizes = Rows.of(data["outline"], self._arrays).run
        self.made, self.fails, self._held = False, False, held

    def serves(self, given: Sequence[int]) -> bool:
        """Whether there may be a plan for open sizes."""
        return self.sizes(given) is not None

    def make(self) -> None:
        """Pack its weights, and have the rest at hand, once.

        Raises:
            Exception: of any kind, where something is none here.
        """
        if self.made:
            return
        data, weights, workspace = self._data, self._weights, self._workspace
        made = weights.natives()
        constant = ConstantReader(weights.module, made)
        self.calls = [
            Calls(Rows.of(one["rows"], constant), one["sizes"], {*one["natives"]})
            for one in data["calls"]
        ]
        self.rows = [(int(source), int(place)) for source, place in data["rows"]]
        own = Rows.of(data["trace"], constant)
        self.run, self.count = own.run, own.count
        self.numbers = Numbers(data["fixed"])
        self.natives = [
            made[one] if isinstance(one, int) else Stand(one[0], one[1], tuple(one[2]))
            for one in data["steps"]
        ]
        packed = iter(weights.made(made, self._others))
        ends: dict[int, tuple[int, End]] = {
            region: (row, _end(*end)) for region, row, end in data["open"]
        }
        self._ends = ends
        self._lying = {region: (row, end.lying) for region, (row, end) in ends.items()}
        self.memory = [
            np.empty(0, np.uint8) if region in self._ends else next(packed)
            for region in range(data["regions"])
        ]
        self.packed = workspace.weights.hold(weights.memory)
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
        self.made = True
        self._data, self._others = {}, {}

    def _placed(self, natives: Sequence[object], numbers: Array) -> tuple[Placed, int]:
        self.slots.check_room(natives, numbers)
        return super()._placed(natives, numbers)

    def _regions(self, sizes: Sequence[Any], numbers: Array) -> Sequence[Array] | None:
        found = [*self.memory]
        made = dict[Hashable, Array]()  # layers share what they compute of sizes alike
        for region, (row, end) in self._ends.items():
            lying = self._lying[region]
            if lying not in made:
                tensor = VTensor(end.dtype, sizes_of(end.dims, numbers))
                one = TensorStorage.of_array(sizes[row], tensor, end.layout, constant=True)
                made[lying] = one.buffer.memory
            found[region] = made[lying]
        return found


class KeptBlueprints:
    """The blueprints of a model's inputs, read once each.

    Args:
        entries: the cache.
        names: theirs.
        surface, workspace, others, held: as for ``KeptBlueprint``.
    """

    def __init__(
        self,
        entries: Entries,
        names: Sequence[str],
        surface: Surface,
        workspace: Workspace,
        others: Mapping[Hashable, Array],
        held: object,
    ) -> None:
        self._entries, self._names = entries, names
        self._about = surface, workspace, others, held
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
            except MALFORMED as why:  # of any kind, of whatever an entry says
                pass_signals(why)
                _log.debug("%s: what is kept is not taken: %s", name, why)
            else:
                self._read.append(found)
                yield found


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
