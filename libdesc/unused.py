"""Reasons why a library with a correct description would still never be used."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vtensor.language.tensor import CPU

#: The kinds of devices that nodes can be placed on.
DEVICE_KINDS = (CPU,)


def why_unused(
    name: str,
    devices: Sequence[str],
    invokers: Collection[tuple[str, str]],
    named: Collection[str] = (),
    owes_invokers: bool = True,
) -> list[str]:
    """Return the reasons why a library would never be used; empty if it can be.

    Args:
        name, devices: from the library's description.
        invokers: the library and the device of every registered invoker.
        named: the library names that the invokers in the description's modules give.
        owes_invokers: False if the library may have no invokers now: some may still be registered,
            or the library has a transformer.

    >>> why_unused("direct", ["gpu"], [("direkt", "cpu")], ["direkt"])
    ["no invoker names this library; invokers there name 'direkt'", \
'no device of kind gpu here: it will never be used']
    """
    reasons = []
    mine = {device for library, device in invokers if library == name}
    others = ", ".join(repr(library) for library in sorted(set(named) - {name}))
    if not mine and (named or owes_invokers):
        reasons.append(
            "no invoker names this library" + (f"; invokers there name {others}" if others else "")
        )
    elif mine and mine.isdisjoint(devices):
        theirs = ", ".join(sorted(mine))
        reasons.append(f"its invokers are for {theirs}, it says devices = {list(devices)}")
    if set(devices).isdisjoint(DEVICE_KINDS):
        kinds = " or ".join(devices)
        reasons.append(f"no device of kind {kinds} here: it will never be used")
    return reasons
