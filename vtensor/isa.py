"""The limit on the instruction sets that the libraries' kernels may use."""

from __future__ import annotations

from vtensor.errors import InputError

#: The instruction sets that kernels can be limited to, in order; ``max`` is no limit.
CAPS = ("sse41", "avx2", "avx512", "amx", "max")


_cap = "max"


def isa_cap() -> str:
    """Return the largest instruction set that kernels may use, one of ``CAPS``."""
    return _cap


def limit_isa(cap: str) -> None:
    """Limit the libraries' kernels to an instruction set, for the rest of the process.

    Args:
        cap: the largest instruction set that kernels may use: ``"sse41"``, ``"avx2"``,
            ``"avx512"``, ``"amx"`` or ``"max"`` (no limit).

    Raises:
        InputError: ``cap`` is none of these.
        LibraryError: a library has already fixed another limit, as libraries do at their first use;
            call this function before the first session.

    The limit holds for libraries that name a ``limit_isa`` handler in their description.

    Source: oneDNN's manual, CPU dispatcher control.
    """
    if cap not in CAPS:
        raise InputError(f"limit_isa({cap!r}): one of {', '.join(CAPS)}")
    from libdesc.registry import ready

    global _cap
    for library in ready().libraries.values():
        library.limit_isa(cap)
    _cap = cap
