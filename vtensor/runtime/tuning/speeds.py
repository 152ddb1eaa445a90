"""The source of the speeds of libraries on which estimates are based: measured on this machine
(calibrated), or declared.
"""

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
    """Return the function that measures the speeds of libraries.

    Returns None if the variable ``VTENSOR_COSTS`` is ``declared``. Estimates then use the speeds
    that libraries declare.

    Raises:
        InputError: the variable is neither ``calibrated`` nor ``declared``.
    """
    chosen = os.environ.get(COSTS_VARIABLE) or "calibrated"
    if chosen not in ("calibrated", "declared"):
        raise InputError(f"{COSTS_VARIABLE}={chosen!r} must be calibrated or declared")
    return speeds if chosen == "calibrated" else None


def speeds() -> Mapping[str, Rates]:
    """Return the measured speeds of libraries on one thread, by name.

    The module ``calibration`` is imported at the first call.
    """
    from vtensor.runtime.tuning import calibration

    return calibration.speeds()
