"""The source of library speeds for estimates: calibrated or declared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vtensor.errors import InputError

if TYPE_CHECKING:
    from libdesc.schema import Rates
    from optimizer.choice.estimate import Speeds

#: The environment variable with ``calibrated`` or ``declared`` (the same on all machines).
COSTS_VARIABLE = "VTENSOR_COSTS"


def speeds_asked_for() -> Speeds | None:
    """Return the calibrated speeds if ``VTENSOR_COSTS`` asks for them; None means declared speeds.

    Raises:
        InputError: the variable is neither ``calibrated`` nor ``declared``.
    """
    chosen = os.environ.get(COSTS_VARIABLE) or "calibrated"
    if chosen not in ("calibrated", "declared"):
        raise InputError(f"{COSTS_VARIABLE}={chosen!r} must be calibrated or declared")
    return speeds if chosen == "calibrated" else None


def speeds() -> Mapping[str, Rates]:
    """Return ``calibration.speeds()``, importing its module at the first estimate."""
    from vtensor.runtime.tuning import calibration

    return calibration.speeds()
