"""What making plans leaves behind: kernels that were looked at and not taken, and free memory
between what stays.
"""

from __future__ import annotations

import sys

from ptensor.pages import give_back
from vtensor.language.imported import logger

_log = logger(__name__)


def let_go() -> None:
    """Let go of it, once there is nothing more to do beside runs.

    To measure a network's nodes libraries compile ten times as many kernels as it has. Where none
    was asked, as behind a plan that was taken as it was kept, there are none.
    """
    known = sys.modules.get("libdesc.registry")
    for library in known.ready().libraries.values() if known is not None else ():
        try:
            library.let_go()
        except Exception as error:  # of whatever a library raises: it keeps them
            _log.debug("%s lets go of nothing: %s", library.name, error)
    give_back()
