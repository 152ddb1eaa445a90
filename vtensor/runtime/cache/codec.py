"""A choice and its symbolic plan as the bytes of an entry, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.native_trace import ConstantWriter
from vtensor.language.imported import logger
from vtensor.language.trace import NotSaved
from vtensor.runtime.planning.choice import Choice
from vtensor.runtime.planning.symbolic_plan import (
    SymbolicPlan,
)

if TYPE_CHECKING:
    from vtensor.runtime.options import Options
    from vtensor.runtime.source import Source

Array = np.ndarray[Any, Any]
Data = dict[str, Any]

_log = logger(__name__)


def plain(payload: bytes) -> tuple[Data, bytes]:
    """Return the plain data of an entry, and the bytes that it speaks of.

    Raises:
        ValueError: it has none.
    """
    head, _, blob = payload.partition(b"\n")
    data = json.loads(head)
    if not isinstance(data, dict):
        raise ValueError("an entry is a table")
    return data, blob


def encoded(name: str, choice: Choice, source: Source, options: Options) -> bytes:
    """Return a choice and its plan as an entry.

    Args:
        name: the entry's.
        choice: made by this session.
        source: the model.
        options: for which it was made.

    Raises:
        NotSaved: no entry can hold the choice.
    """
    from resolver.stored import plain_data
    from vtensor.runtime.cache.versions import versions_of

    assert choice.strategy is not None, "a choice of this session was made here"
    lowered = choice.strategy.chosen
    head: Data = {
        "name": name,
        "inputs": [
            (one.name, one.shape, None if one.value is None else one.value.hex())
            for one in choice.key.inputs
        ],
        "provisional": choice.provisional,
        "applied": sorted(choice.applied),
        "versions": versions_of(lowered),
        "chosen": plain_data(lowered),
        "plan": None,
    }
    blob = b""
    if choice.symbolic is not None:
        try:
            head["plan"], blob = _plan_data(choice.symbolic, source)
        except NotSaved as why:
            _log.debug("%s: its plan is recorded in each process: %s", name, why)
    text = json.dumps(head, separators=(",", ":")).encode()
    return text + b"\n" + blob


def _plan_data(plan: SymbolicPlan, source: Source) -> tuple[Data, bytes]:
    """Return a symbolic plan as data, and the bytes that it speaks of.

    Raises:
        NotSaved: no entry can hold it.
    """
    writer = plan.table.writer({id(one.whole): name for name, one in source.large.items()})
    constants = ConstantWriter(plan.outer, writer.array_data)
    sizes = plan.sizes_wanted
    head: Data = {
        "sizes": plan.size_rows.pruned(sizes).data(constants.of(plan.size_trace)),
    }
    return head, bytes(writer.blob)
