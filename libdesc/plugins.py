"""Whether anybody but VTensor has registered operators or libraries."""

from __future__ import annotations

import sys

#: Where operators register, which no registry knows of that is not imported yet.
_OPERATORS = "vtensor.language.operators"


def no_plugins() -> bool:
    """Whether nothing is registered but what VTensor brings, as far as anybody has imported it."""
    if _OPERATORS not in sys.modules:  # then nor is the registry
        return True
    from libdesc import registry

    return registry.no_plugins()


def plugins_version() -> int:
    """Return a number that is another one after each registration by others; 0 before the first."""
    if no_plugins():
        return 0
    from libdesc import registry

    return 1 + registry.ready().version
