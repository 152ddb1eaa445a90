"""The cap on the instruction sets that the libraries' kernels may use."""

from __future__ import annotations

from vtensor.errors import InputError

#: The caps, from the lowest to no cap.
CAPS = ("sse41", "avx2", "avx512", "amx", "max")


_cap = "max"


def isa_cap() -> str:
    """Return the cap of this process."""
    return _cap


def limit_isa(cap: str) -> None:
    """Limit the libraries to an instruction set, for the rest of the process.

    Args:
        cap: ``"sse41"``, ``"avx2"``, ``"avx512"``, ``"amx"`` or ``"max"`` (no cap).

    Raises:
        InputError: there is no such cap.
        LibraryError: a library has already fixed another cap, as libraries do at their first use;
            call this function before the first session.

    The cap holds for libraries that name a ``limit_isa`` handler in their description.

    Source: oneDNN's manual, CPU dispatcher control.
    """
    if cap not in CAPS:
        raise InputError(f"limit_isa({cap!r}): one of {', '.join(CAPS)}")
    from libdesc.registry import ready

    global _cap
    for library in ready().libraries.values():
        library.limit_isa(cap)
    _cap = cap
