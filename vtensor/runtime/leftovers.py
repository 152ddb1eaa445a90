"""What making plans leaves behind: kernels that were looked at and not taken, code that no run
needs, and free memory between what stays.
"""

from __future__ import annotations

import sys

from ptensor.pages import give_back, give_back_code
from vtensor.language.imported import logger

#: Parts of the paths of native code that plans are made with, of which runs need little: it is as
#: large as all that Python is made of.
CODE = (
    "-packages/highspy/",
    "-packages/onnx/",
    "-packages/ml_dtypes/",
    "-packages/libdesc/",
    "/libsqlite3.",
)

_log = logger(__name__)


def let_go() -> None:
    """Let go of it, once there is nothing more to do beside runs.

    To measure a network's nodes libraries compile ten times as many kernels as it has. Where none
    was asked, as behind a plan that was taken as it was kept, there are none.
    """
    ready = getattr(sys.modules.get("libdesc.registry"), "ready", None)
    if ready is not None:  # nor is somebody in the midst of importing it
        for library in [*ready().libraries.values()]:  # others may register some meanwhile
            try:
                library.let_go()
            except Exception as error:  # of whatever a library raises: it keeps them
                _log.debug("%s lets go of nothing: %s", library.name, error)
        give_back_code(CODE)
    give_back()
