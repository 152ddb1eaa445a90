"""The handlers of the library's description. Importing them loads nothing native."""

from __future__ import annotations

from libdesc.narrow import native
from libdesc.schema import Speed
from vtensor import __version__
from vtensor.errors import LibraryError


def available() -> str | None:
    """Return None if the kernels can be used in this process, else the reason why not."""
    try:
        native.load_baseline()
    except LibraryError as error:
        return str(error)
    return None


def version() -> str:
    """Return VTensor's version, of which the kernels are a part, and their instructions."""
    return f"{__version__} on {native.instructions()}"


def limit_isa(cap: str) -> None:
    """Cap the instructions; see ``native.limit``."""
    native.limit(cap)


#: How many times as fast products of bytes are as those of f32, by kind of instructions.
PRODUCTS = {
    **{"plain": 0.5, "avx2": 1.2, "avx_vnni": 2.5},
    **{"avx512": 1.5, "vnni": 3.0, "amx": 6.0},
}

#: How many times as many bytes as of f32 are read and written in a second, sums in s32 counted, if
#: memory limits both. Kernels with few terms for each sum, such as depthwise ones, widen each byte.
NBYTES = 0.5


def speeds() -> dict[str, Speed]:
    """Return how fast products of bytes are with the present instructions.

    They name no instructions: ``vtensor libs`` shows those of oneDNN.
    """
    speed = Speed("", PRODUCTS[native.instructions()], NBYTES)
    return {"u8": speed, "s8": speed}
