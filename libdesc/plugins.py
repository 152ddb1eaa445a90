"""Whether other distributions or the program have registered operators or libraries."""

from __future__ import annotations

import sys

#: The module with which operators are registered. Before it is imported, nothing can be registered.
_OPERATORS = "vtensor.language.operators"


def no_plugins() -> bool:
    """Return whether all operators, libraries, invokers and rules that are registered so far are
    VTensor's own.
    """
    if _OPERATORS not in sys.modules:  # then the registry is not imported either
        return True
    from libdesc import registry

    return registry.no_plugins()


def plugins_version() -> int:
    """Return 0 if all that is registered is VTensor's own. Otherwise return a number that changes
    with each registration.
    """
    if no_plugins():
        return 0
    from libdesc import registry

    return 1 + registry.ready().version
