"""The comparison of two peers' outputs, made before anything is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vtensor.benchmark.peer import Array, Precision
from vtensor.errors import PeerError

#: The largest accepted difference, relative to the largest output. In bf16, whose numbers are 2**-8
#: apart, every layer rounds, and a Softmax at the end amplifies the errors: this bound only detects
#: outputs of another network. A peer's default may be bf16.
BOUNDS: Mapping[Precision, float] = {"f32": 1e-4, "bf16": 0.75, "default": 0.75}

#: The ``kind`` of NumPy's types of text, bytes and objects.
_NO_NUMBERS = frozenset("UTSO")


def difference(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """Return the largest difference between elements of the outputs of VTensor and of a peer.

    A difference is relative to the largest finite absolute value in the same output of VTensor, or
    to 1 if that value is 0. Equal infinities, and NaN in both, have a difference of 0. If only one
    element is infinite or NaN, the difference is infinite or NaN. Outputs of text or objects have
    the difference 0 if they are equal, else infinity.

    Args:
        ours: the outputs of VTensor.
        theirs: the outputs of the peer, in the same order.

    Raises:
        PeerError: the number or the shapes of the outputs differ.

    >>> one, other = np.array([1.0, 4.0]), np.array([1.5, 4.0])
    >>> difference([one], [other]), difference([one], [one * np.nan])
    (0.125, nan)
    """
    shapes = [array.shape for array in ours], [array.shape for array in theirs]
    if shapes[0] != shapes[1]:
        raise PeerError(f"its outputs are {shapes[1]}, ours are {shapes[0]}")
    return float(np.max([_relative(a, b) for a, b in zip(ours, theirs, strict=True)], initial=0.0))


def _relative(ours: Array, theirs: Array) -> float:
    if {ours.dtype.kind, theirs.dtype.kind} & _NO_NUMBERS:
        return 0.0 if np.array_equal(ours, theirs) else np.inf
    a, b = ours.astype(np.complex128), theirs.astype(np.complex128)
    different = (a != b) & ~(np.isnan(a) & np.isnan(b))
    largest = np.abs(a[np.isfinite(a)]).max(initial=0.0) or 1.0
    return float(np.abs(a[different] - b[different]).max(initial=0.0) / largest)
