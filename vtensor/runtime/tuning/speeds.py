"""Where the speeds of libraries come from that plans estimate with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vtensor.errors import InputError

if TYPE_CHECKING:
    from libdesc.schema import Rates
    from optimizer.estimate import Speeds

#: Where estimates come from: ``calibrated``, or ``declared``, which is the same on all machines.
COSTS_VARIABLE = "VTENSOR_COSTS"


def speeds_asked_for() -> Speeds | None:
    """What plans estimate with, by ``VTENSOR_COSTS``; None is what libraries declare.

    Raises:
        InputError: the variable is neither ``calibrated`` nor ``declared``.
    """
    chosen = os.environ.get(COSTS_VARIABLE) or "calibrated"
    if chosen not in ("calibrated", "declared"):
        raise InputError(f"{COSTS_VARIABLE}={chosen!r} must be calibrated or declared")
    return speeds if chosen == "calibrated" else None


def speeds() -> Mapping[str, Rates]:
    """As ``calibration.speeds``, which is imported where something is estimated."""
    from vtensor.runtime.tuning import calibration

    return calibration.speeds()
