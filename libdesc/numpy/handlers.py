"""The handlers of the NumPy library's description."""

from __future__ import annotations

import numpy as np

from ptensor.tensor import PTensor
from ptensor.transform import transform_into


def transform(source: PTensor, target: PTensor, permutation: tuple[int, ...]) -> None:  # noqa: ARG001
    """Change a layout as the definition says; the layouts say more than the permutation."""
    transform_into(
        source.data(),
        target.data(),
        source.required_layout,
        target.required_layout,
        source.dims,
        source.dtype,
    )


def version() -> str:
    """NumPy's version."""
    return np.__version__
