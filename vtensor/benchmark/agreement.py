"""Whether two peers compute the same: asked before anything is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vtensor.benchmark.peer import Array, Precision
from vtensor.errors import PeerError

#: Largest difference that is accepted, of the largest output. In bf16, whose numbers are 2**-8
#: apart, every layer rounds, and a Softmax at the end magnifies that (0.51 on VGG19): there
#: the bound tells another network, and no more.
BOUNDS: Mapping[Precision, float] = {"f32": 1e-4, "bf16": 0.75}

#: Kinds of NumPy's types that hold text, bytes, objects.
_NO_NUMBERS = frozenset("UTSO")


def difference(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """The largest difference of any output, of that output's largest finite value.

    Equal infinities, and NaN in both, differ by nothing; one alone is infinite, or NaN. What holds
    no numbers is equal, or infinitely different.

    Raises:
        PeerError: there are other outputs, or of other sizes.

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
