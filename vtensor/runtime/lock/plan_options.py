"""The options of a session that its plans depend on, as a lock file has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf
from typing import Any

from vtensor.errors import InputError
from vtensor.language.records import dataclass
from vtensor.runtime.lock.toml import Table

#: What a session has where it is not told otherwise.
DEFAULTS: Mapping[str, object] = {
    "optimize": "all",
    "objective": "",
    "tune": False,
    "libraries": None,
    "pin": None,
    "reference": True,
    "input_layouts": None,
    "output_layouts": None,
}


def check_alone(**options: object) -> None:
    """See that a session which is given a plan is told nothing that the plan says.

    Raises:
        InputError: it is; names what.
    """
    twice = [name for name, value in options.items() if value != DEFAULTS[name]]
    if twice:
        raise InputError(
            f"{', '.join(twice)}: plan= says this already\n  to fix: leave it out, or write the "
            "plan anew with it"
        )


@dataclass(frozen=True)
class PlanOptions:
    """The options of a session that its plans depend on, as ``Session`` has them.

    The tolerance is None where no times were measured: nothing was chosen by it.
    """

    optimize: tuple[str, ...]
    objective: str
    tune: bool
    libraries: tuple[str, ...] | None
    pin: Mapping[str, str]
    reference: bool
    output_layouts: Mapping[str, str]
    tolerance: float | None = None

    @classmethod
    def read(cls, row: Table) -> PlanOptions:
        """What a file says.

        Raises:
            LockError: a key is missing or unknown, or its value is none that it may have.
        """
        row.only(*(one.name for one in fields(cls)))
        pin, layouts = row.table("pin"), row.table("output_layouts")
        tolerance = row.get("tolerance", float) if "tolerance" in row.data else None
        if not 0 <= (tolerance or 0) < inf:
            raise row.error("tolerance", f"must be a number of at least 0, not {tolerance!r}")
        return cls(
            row.texts("optimize"),
            row.get("objective", str, ""),
            row.get("tune", bool),
            row.texts("libraries") if "libraries" in row.data else None,
            {key: pin.get(key, str) for key in pin.data},
            row.get("reference", bool),
            {key: layouts.get(key, str) for key in layouts.data},
            tolerance,
        )

    def row(self) -> dict[str, Any]:
        """The same for a file."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {key: value for key, value in found.items() if value not in (None, "", {})}

    def options(self) -> dict[str, Any]:
        """The same as ``Session`` takes it."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return found | {"tolerance": self.tolerance or 0.0}
