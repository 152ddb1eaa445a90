"""What ONNX's nodes make ahead of a run, found by the names of their operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from vtensor.language.operators import OPERATORS
from vtensor.language.spelling import Ahead

Array = np.ndarray[Any, Any]


def ahead_of(label: str, opset: int) -> Ahead | None:
    """What computes nodes of an operator ahead of a run; None where they take the way of any node.

    Args:
        label: ONNX's name of it, behind its domain where that is not ONNX's own.
        opset: the domain's version.
    """
    if label == "Range":  # no operator of ours: its result is always known ahead
        return Ahead(_range)
    found = (one.ahead for one in OPERATORS.spellings(label, opset))
    return next((one for one in found if one is not None), None)


def _range(_: object, start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)
