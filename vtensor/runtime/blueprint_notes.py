"""Writing a blueprint down, for ``kept_blueprints.py``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.native_trace import NativeTrace
from ptensor.stopping import go_on
from vtensor.language.trace import NotSaved
from vtensor.runtime.blueprint import Blueprint
from vtensor.runtime.open_program import OUTLINE, End, Stand
from vtensor.runtime.program_notes import check_unseen, payload_of
from vtensor.runtime.weight_notes import WeightNotes

if TYPE_CHECKING:
    from resolver.values import Value
    from vtensor.runtime.open_slots import Pieces

Array = np.ndarray[Any, Any]
Data = dict[str, Any]


def payload(
    name: str,
    blueprint: Blueprint,
    constants: Mapping[str, Array],
    large: Mapping[int, str],
    trace: NativeTrace,
    applied: Collection[tuple[str, str]],
    strategy: bytes,
    shapes: Mapping[str, Sequence[int]],
) -> bytes:
    """What an entry holds.

    Args:
        name: the entry's.
        blueprint: drawn while ``trace`` was the tracer.
        constants: those of a graph of the outline that it was drawn on.
        large: the arrays of the model that are read later, by the id of what holds them.
        trace: of the native calls that made its steps.
        applied: where rules were applied to its graph.
        strategy: what was chosen, as an entry of its own says it.
        shapes: what it was chosen for.

    Raises:
        NotSaved: no entry can hold it.
    """
    weights = WeightNotes(blueprint.packed, blueprint.graph, constants, large, trace)
    nodes = [one for one in blueprint.graph.operators if one.name in blueprint.recorded]
    check_unseen(nodes, blueprint.graph, blueprint.recorded, weights)
    go_on()
    opened = _opened(blueprint)
    needed = [{place for _, place, _ in opened}, *(set(one.natives) for one in blueprint.calls)]
    for source, place in blueprint.rows:
        needed[source].add(place)
    for one in blueprint.calls:
        needed[OUTLINE].update(one.sizes)
    outline = weights.writer.rows(blueprint.outline.rows.pruned(needed[OUTLINE]))
    calls = list[Data]()
    for one, places in zip(blueprint.calls, needed[OUTLINE + 1 :], strict=True):
        go_on()
        rows = weights.writer.rows(one.rows.pruned(places))
        calls.append({"sizes": [*one.sizes], "natives": sorted(one.natives), "rows": rows})
    steps = [
        [*one] if type(one) is Stand else weights.writer.place(one) for one in blueprint.natives
    ]
    anew = dict(blueprint.opened)
    plain = [one for place, one in enumerate(blueprint.constants) if place not in anew]
    go_on()
    head = {
        "name": name,
        **weights.data(plain),
        "outline": outline,
        "calls": calls,
        "rows": blueprint.rows,
        "trace": weights.writer.rows(blueprint.trace.rows()),
        "steps": steps,
        **_numbers(blueprint),
        "inputs": [*map(_end, blueprint.inputs)],
        "own": [*map(_end, blueprint.own)],
        "outputs": [_output(*one) for one in blueprint.outputs],
        "regions": len(blueprint.constants),
        "open": opened,
        "proven": blueprint.proven,
        "applied": sorted(applied),
        "shapes": {one: [*shape] for one, shape in shapes.items()},
        "strategy": weights.keep(strategy),
    }
    return payload_of(head, weights)


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


def _opened(blueprint: Blueprint) -> list[Any]:
    """Return the constants that depend on sizes: of each its region, its place on the outline's
    trace, and what is packed.

    Raises:
        NotSaved: no entry can say that.
    """
    ends = list[Any]()
    for region, opened in blueprint.opened:
        place = blueprint.outline.place_of(opened.value.name)
        if place is None:
            raise NotSaved("a constant that depends on sizes is changed by a pass")
        value = opened.changes[-1][1] if opened.changes else opened.value
        if not _same_elements(opened.value, value) or value.name in blueprint.factors:
            raise NotSaved("a constant that depends on sizes has other elements")
        ends.append((region, place, _end(blueprint.end_of(value))))
    return ends


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
        raise NotSaved("a constant is delivered")
    return [alias, _end(end), binding]
