"""The options of a session that its plans depend on, as lock files hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf
from typing import Any

from vtensor.errors import InputError
from vtensor.language.records import dataclass
from vtensor.runtime.lock.toml import Table

#: The default values of the options that a lock file fixes.
DEFAULTS: Mapping[str, object] = {
    "optimize": "all",
    "objective": "",
    "tune": False,
    "precision": "f32",
    "libraries": None,
    "pin": None,
    "reference": True,
    "input_layouts": None,
    "output_layouts": None,
}


def check_alone(**options: object) -> None:
    """Check that a session with a lock file is given no option that the file fixes.

    Args:
        options: the options of the session that lock files fix, by name.

    Raises:
        InputError: an option differs from its default; the message names it.
    """
    twice = [name for name, value in options.items() if value != DEFAULTS[name]]
    if twice:
        raise InputError(
            f"{', '.join(twice)}: plan= fixes this already\n  to fix: leave it out, or write the "
            "lock file again with it"
        )


@dataclass(frozen=True)
class PlanOptions:
    """The options of a session that its plans depend on; the fields are options of ``Session``.

    The tolerance is None if no times were measured: it then decided nothing.
    """

    optimize: tuple[str, ...]
    objective: str
    tune: bool
    libraries: tuple[str, ...] | None
    pin: Mapping[str, str]
    reference: bool
    output_layouts: Mapping[str, str]
    tolerance: float | None = None
    precision: str = "f32"

    @classmethod
    def read(cls, row: Table) -> PlanOptions:
        """Return the options from their table in a lock file.

        Raises:
            LockError: a key is missing or unknown, or its value is invalid.
        """
        row.only(*(field.name for field in fields(cls)))
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
            row.get("precision", str, "f32"),
        )

    def row(self) -> dict[str, Any]:
        """Return the options as a table of a lock file, without those that are None, an empty text
        or an empty mapping, and without the default precision.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.precision == DEFAULTS["precision"]:
            del values["precision"]
        return {key: value for key, value in values.items() if value not in (None, "", {})}

    def options(self) -> dict[str, Any]:
        """Return the options as arguments of ``Session``."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"tolerance": self.tolerance or 0.0}
