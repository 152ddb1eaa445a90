"""The handlers of the NumPy library's description."""

from __future__ import annotations

import numpy as np

from ptensor.tensor import PTensor
from ptensor.transform import transform_into


def transform(source: PTensor, target: PTensor, permutation: tuple[int, ...]) -> None:  # noqa: ARG001
    """Copy source to target, the same tensor in another layout; ``permutation`` is not used."""
    transform_into(
        source.data(),
        target.data(),
        source.required_layout,
        target.required_layout,
        source.dims,
        source.dtype,
    )


def version() -> str:
    """Return NumPy's version."""
    return np.__version__
