"""Why a library whose description is right would still never be used."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vtensor.language.tensor import CPU

#: The kinds of devices that nodes are placed on.
KINDS = (CPU,)


def why_unused(
    name: str,
    devices: Sequence[str],
    invokers: Collection[tuple[str, str]],
    own: Collection[str] = (),
    owes_invokers: bool = True,
) -> list[str]:
    """The reasons, empty where there are none.

    Args:
        invokers: the library and the device of every invoker that there is.
        own: the libraries that the invokers which come with it name.
        owes_invokers: False where invokers may still follow, or where it only changes layouts.

    >>> why_unused("direct", ["gpu"], [("direkt", "cpu")], ["direkt"])
    ["no invoker names this library; invokers there name 'direkt'", \
'no device of kind gpu here: it will never be used']
    """
    reasons = []
    mine = {device for library, device in invokers if library == name}
    others = ", ".join(repr(library) for library in sorted(set(own) - {name}))
    if not mine and (own or owes_invokers):
        reasons.append(
            "no invoker names this library" + (f"; invokers there name {others}" if others else "")
        )
    elif mine and mine.isdisjoint(devices):
        theirs = ", ".join(sorted(mine))
        reasons.append(f"its invokers are for {theirs}, it says devices = {list(devices)}")
    if set(devices).isdisjoint(KINDS):
        kinds = " or ".join(devices)
        reasons.append(f"no device of kind {kinds} here: it will never be used")
    return reasons
