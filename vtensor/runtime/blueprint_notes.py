"""Writing a blueprint down, for ``kept_blueprints.py``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.noted import name_of
from libdesc.script import Script, noted_path
from libdesc.tape_rows import rows_of
from ptensor.layout import Layout
from ptensor.stopping import go_on
from vtensor.runtime.blueprint import Blueprint
from vtensor.runtime.open_notes import OpenRows
from vtensor.runtime.open_program import End, Stand
from vtensor.runtime.program_notes import check_unseen, payload_of
from vtensor.runtime.recording.packing_table import NotKept, TableWriter

if TYPE_CHECKING:
    from resolver.values import Value
    from vtensor.language.open_arrays import OpenArray
    from vtensor.language.tape import TracedSize
    from vtensor.runtime.open_slots import Pieces

Array = np.ndarray[Any, Any]
Data = dict[str, Any]


class _Natives:
    """The native things that constants of tapes are."""

    def __init__(self) -> None:
        self.things: list[Any] = []
        self.modules: set[str] = set()

    def told(self, value: Any) -> Any:
        """What no size is, as data.

        Raises:
            NotKept: it is nothing that can be.
        """
        if value is None or type(value) in (bool, int, float, str):
            return [value]
        if isinstance(value, Layout):
            return {"layout": str(value)}
        if type(value) in (tuple, list):
            return {type(value).__name__: [*map(self.told, value)]}
        if callable(value) and (name := name_of(value)) is not None:
            return {"function": name}
        path = noted_path(value)
        if path is None:
            raise NotKept(f"a tape has a {type(value).__name__}: {value!r:.80}")
        [root, *names] = path
        if isinstance(root, str):
            self.modules.add(root)
            return {"path": path}
        self.things.append(value)
        return {"native": len(self.things) - 1, "names": names}


class _Wanted:
    """Places on a tape that matter, each with its number among these."""

    def __init__(self) -> None:
        self.places: dict[int, int] = {}

    def at(self, place: int) -> int:
        """The number of a place."""
        return self.places.setdefault(place, len(self.places))


def payload(
    name: str,
    blueprint: Blueprint,
    large: Mapping[int, str],
    script: Script,
    applied: Collection[tuple[str, str]],
    strategy: bytes,
    shapes: Mapping[str, Sequence[int]],
) -> bytes:
    """What an entry holds.

    Args:
        name: the entry's.
        blueprint: drawn while ``script`` noted native calls.
        large: the arrays of the model that are read later, by the id of what holds them.
        script: noted its steps.
        applied: where rules were applied to its graph.
        strategy: what was chosen, as an entry of its own says it.
        shapes: what it was chosen for.

    Raises:
        NotKept: no entry can hold it.
    """
    weights = TableWriter(blueprint.packed, large, script)
    nodes = [one for one in blueprint.graph.operators if one.name in blueprint.recorded]
    check_unseen(nodes, blueprint.graph, blueprint.recorded, weights)
    go_on()
    natives, sizes = _Natives(), _Wanted()
    sources = [sizes, *(_Wanted() for _ in blueprint.calls)]
    rows = [(source, sources[source].at(place)) for source, place in blueprint.rows]
    steps = [
        (one.source, sources[one.source].at(one.place), one.access) if type(one) is Stand else one
        for one in blueprint.natives
    ]
    calls = _calls(blueprint, sources, natives)
    opened, ends = _opened(blueprint, sizes, weights)
    go_on()
    outline = rows_of(blueprint.outline.tape, [*sizes.places], natives.told)
    own = rows_of(blueprint.tape, range(blueprint.tape.count), natives.told)
    anew = dict(blueprint.opened)
    plain = [one for place, one in enumerate(blueprint.constants) if place not in anew]
    fixed = [one for one in steps if type(one) is not tuple]
    go_on()
    told, places = weights.data(plain, [*fixed, *natives.things], natives.modules)
    left = iter(places)
    head = {
        "name": name,
        **told,
        "outline": outline,
        "calls": calls,
        "rows": rows,
        "tape": own,
        "steps": [one if type(one) is tuple else next(left) for one in steps],
        "things": [*left],
        **_numbers(blueprint),
        "inputs": [*map(_end, blueprint.inputs)],
        "own": [*map(_end, blueprint.own)],
        "outputs": [_output(*one) for one in blueprint.outputs],
        "regions": len(blueprint.constants),
        "open": opened,
        "ends": ends,
        "proven": blueprint.proven,
        "applied": sorted(applied),
        "shapes": {one: [*shape] for one, shape in shapes.items()},
        "strategy": weights.keep(strategy),
    }
    return payload_of(head, weights)


def _calls(blueprint: Blueprint, sources: Sequence[_Wanted], natives: _Natives) -> list[Data]:
    """Kinds of calls.

    Raises:
        NotKept: no entry can hold their tapes.
    """
    sizes, *calls = sources
    kinds = list[Data]()
    for one, wanted in zip(blueprint.calls, calls, strict=True):
        go_on()
        about = {
            "sizes": [sizes.at(place) for place in one.sizes],
            "natives": sorted(wanted.at(place) for place in one.natives),
        }
        tape = rows_of(one.tape, [*wanted.places], natives.told)  # type: ignore[arg-type]
        kinds.append({**about, "tape": tape})
    return kinds


def _numbers(blueprint: Blueprint) -> Data:
    """Numbers that depend on no size, and where those are that do."""
    slots = blueprint.slots
    return {
        "fixed": [*blueprint.numbers.fixed],
        "counts": [*slots.counts],
        "pieces": _pieces(slots.pieces),
        "piece": slots.piece.tolist(),
        "region": [*slots.region],
        "begin": slots.begin.tolist(),
        "held": blueprint.held.tolist(),
        "live": _pieces(blueprint.live),
        "asked": blueprint.asked,
    }


def _opened(
    blueprint: Blueprint, sizes: _Wanted, weights: TableWriter
) -> tuple[list[Any], list[Any]]:
    """Constants that depend on sizes: rows, and where which of them goes.

    Raises:
        NotKept: no entry can say that.
    """

    def place(size: TracedSize) -> int:
        return sizes.at(size.place)

    rows, ends = OpenRows(place, weights), list[Any]()
    for region, opened in blueprint.opened:
        array: OpenArray | None = blueprint.outline.open_array(opened.value.name)
        if array is None:
            raise NotKept("a constant that depends on sizes is changed by a pass")
        value = opened.changes[-1][1] if opened.changes else opened.value
        if not _same_elements(opened.value, value) or value.name in blueprint.factors:
            raise NotKept("a constant that depends on sizes has other elements")
        ends.append((region, rows.add(array), _end(blueprint.end_of(value))))
    return rows.rows, ends


def _same_elements(value: Value, other: Value) -> bool:
    """Whether two values have the same elements, perhaps in other places."""
    kinds = [(one.dtype, [*one.dims], one.layout.encoding) for one in (value, other)]
    return kinds[0] == kinds[1]


def _pieces(pieces: Pieces) -> list[Any]:
    return [pieces.nbytes.tolist(), [*pieces.first], [*pieces.last]]


def _end(end: End) -> list[Any]:
    return [end.name, end.dtype, end.dims, str(end.layout), end.constant]


def _output(alias: str, end: End, binding: int | None, constant: Any) -> list[Any]:
    if binding is None or constant is not None:
        raise NotKept("a constant is delivered")
    return [alias, _end(end), binding]
