"""Release of memory after planning: unused kernels, code pages that no run needs, free memory."""

from __future__ import annotations

import sys

from ptensor.pages import give_back, give_back_code
from vtensor.language.process.imported import logger
from vtensor.language.process.interrupts import pass_signals
from vtensor.runtime.execution.executor import is_planning

#: Parts of the paths of native libraries that planning uses and runs hardly need: their code is as
#: large as Python itself.
PLANNING_CODE_PATHS = (
    "-packages/highspy/",
    "-packages/onnx/",
    "-packages/ml_dtypes/",
    "-packages/libdesc/",
    "/libdnnl.",
    "/libsqlite3.",
)

_log = logger(__name__)


def trim_kernels() -> None:
    """Let libraries drop kernels that this thread compiled for a plan although the plan does not
    use them.

    Does nothing inside ``Executor.planning``. The call after the outermost planning drops the
    kernels.
    """
    loaded_registry = getattr(sys.modules.get("libdesc.registry"), "ready", None)
    # None if no module has imported the registry, or while its import is in progress
    if loaded_registry is None or is_planning():
        return
    for library in [*loaded_registry().libraries.values()]:  # other threads may add some
        try:
            library.let_go()
        except Exception as error:  # any error of a library: it keeps its kernels
            pass_signals(error)
            _log.debug("%s releases no kernels: %s", library.name, error)


def trim_memory() -> None:
    """Trim the process's memory after a first plan, a session or background work.

    Code goes back to the system page by page; runs of other sessions fetch the pages that they
    need.
    """
    trim_kernels()
    if "libdesc.registry" in sys.modules:
        give_back_code(PLANNING_CODE_PATHS)
    give_back()
