"""The faults: what goes wrong in terms of behaviour, and the text that makes it so today.

The sentence is what counts. Where code is rewritten, the same fault is seeded again in the new
code: ``file``, ``old`` and ``new`` change, ``number`` and ``says`` stay. Each area has a table
beside this file: ``ROWS`` maps (number, area, file) to (says, old, new).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from tests.mutants import libdesc, native, operators, optimizer, planning, ptensor, resolver


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        number: its name, the same before and after a redesign.
        area: planning, recording, cache, symbols, or a folder of the repository.
        file: where, from the root of the repository.
        says: what goes wrong.
        old, new: a text that occurs once in the file, within a function; and its replacement.
    """

    number: int
    area: str
    file: str
    says: str
    old: str
    new: str


_TABLES = (planning, resolver, optimizer, libdesc, operators, ptensor, native)
_ROWS = chain.from_iterable(table.ROWS.items() for table in _TABLES)
FAULTS = tuple(Fault(*place, *row) for place, row in _ROWS)
