"""The cap on instruction sets: which kernels of the machine's best the libraries may use."""

from __future__ import annotations

from vtensor.errors import InputError

#: Caps, from the least to no cap at all.
CAPS = ("sse41", "avx2", "avx512", "amx", "max")


_chosen = "max"


def isa_cap() -> str:
    """The cap of this process."""
    return _chosen


def limit_isa(cap: str) -> None:
    """Keep every library that can be capped to an instruction set, for the rest of the process.

    Args:
        cap: ``"sse41"``, ``"avx2"``, ``"avx512"``, ``"amx"`` or ``"max"`` (no cap).

    Raises:
        InputError: there is no such cap.
        LibraryError: a library has already fixed another one, which it does at its first use; call
            this before the first session.

    A library takes part by naming a ``limit_isa`` handler in its description.

    Source: oneDNN's manual, CPU dispatcher control.
    """
    if cap not in CAPS:
        raise InputError(f"limit_isa({cap!r}): one of {', '.join(CAPS)}")
    from libdesc.registry import ready

    global _chosen
    for library in ready().libraries.values():
        library.limit_isa(cap)
    _chosen = cap
