"""The library options of a session, checked as far as possible without its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libdesc.preferences import Preferences, check_invoker, listed
from vtensor.errors import InputError


def preferences_of(
    libraries: Sequence[str] | None = None,
    pin: Mapping[str, str] | None = None,
    barred: tuple[str, ...] = (),
) -> Preferences:
    """Return the library options of a session, checked as far as possible without its graph.

    Args:
        libraries: names in the order of trial, or a single name; None is the default order.
        pin: the library that must run an operator or a node, by the name of either. A key that is
            an operator's name means the operator, even if a node has that name.
        barred: libraries that are not used.

    Raises:
        InputError: a library is not registered, is barred or cannot be used here, or has no invoker
            of the operator that is pinned to it; the message lists the alternatives.

    >>> preferences_of(["numpy"], {"Relu": "numpy", "conv1": "numpy"}).nodes
    {'conv1': 'numpy'}
    """
    order, pins = _order(libraries, barred), _pins(pin, barred)
    if not pins:
        return Preferences(order, barred)
    from vtensor.language.operators import OPERATORS

    operators = {key: library for key, library in pins.items() if key in OPERATORS}
    for op, library in operators.items():
        check_invoker(op, op, library)
    nodes = {key: library for key, library in pins.items() if key not in OPERATORS}
    return Preferences(order, barred, operators, nodes)


def _order(libraries: Sequence[str] | None, barred: tuple[str, ...]) -> tuple[str, ...] | None:
    if libraries is None:
        return None
    from libdesc.registry import ready

    known = f"registered are {listed(ready().libraries)}"
    if not isinstance(libraries, Sequence):
        raise InputError(f"libraries={libraries!r} is no list of names; {known}")
    names = (libraries,) if isinstance(libraries, str) else tuple(libraries)
    if not names:
        raise InputError(f"libraries= (--libraries on the command line) is empty; {known}")
    for name in names:
        _check_library("libraries:", name)
        if name in barred:
            raise InputError(f"libraries: {name} is excluded from this session (reference=False)")
    return names


def _pins(pin: Mapping[str, str] | None, barred: tuple[str, ...]) -> dict[str, str]:
    if not (pin is None or isinstance(pin, Mapping)):
        raise InputError(f"pin={pin!r} is no {{operator or node: library}}")
    for key, library in (pin or {}).items():
        if not isinstance(key, str):
            raise InputError(f"pin {key!r}: no name of an operator or a node")
        _check_library(f"pin {key!r}:", library)
        if library in barred:
            raise InputError(
                f"pin {key!r}: {library} is excluded from this session (reference=False)"
            )
    return dict(pin or {})


def _check_library(what: str, name: object) -> None:
    """Check that a library is registered and can be used here.

    Args:
        what: the option that names the library; begins the message.
        name: the library's name.

    Raises:
        InputError: the library is not registered or cannot be used.
    """
    from libdesc.registry import ready

    known = ready().libraries
    if not isinstance(name, str) or name not in known:
        raise InputError(f"{what} {name} is not registered; registered are {listed(known)}")
    if known[name].absent:
        able = listed(registered for registered, library in known.items() if not library.absent)
        raise InputError(
            f"{what} {name} cannot be used here ({known[name].absent}); these can: {able}"
        )
