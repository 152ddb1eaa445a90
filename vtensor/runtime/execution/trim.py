"""Trims what making plans leaves: kernels that no plan took, code that no run needs, free pages."""

from __future__ import annotations

import sys

from ptensor.pages import give_back, give_back_code
from vtensor.language.imported import logger
from vtensor.language.interrupts import pass_signals
from vtensor.runtime.execution.executor import is_planning

#: Parts of the paths of native code that plans are made with, of which runs need little: it is as
#: large as all that Python is made of.
CODE = (
    "-packages/highspy/",
    "-packages/onnx/",
    "-packages/ml_dtypes/",
    "-packages/libdesc/",
    "/libdnnl.",
    "/libsqlite3.",
)

_log = logger(__name__)


def trim_kernels() -> None:
    """Have libraries drop the kernels that this thread made for a plan and that the plan did not
    take. Inside another plan's making, that plan's end drops them.
    """
    loaded_registry = getattr(sys.modules.get("libdesc.registry"), "ready", None)
    if (
        loaded_registry is None or is_planning()
    ):  # ``loaded_registry`` is missing while the module is imported
        return
    for library in [*loaded_registry().libraries.values()]:  # others may register some meanwhile
        try:
            library.let_go()
        except Exception as error:  # of whatever a library raises: it keeps them
            pass_signals(error)
            _log.debug("%s lets go of nothing: %s", library.name, error)


def let_go() -> None:
    """Trim the process's memory once a first plan, a session or background work is over.

    Code goes back to the system page by page; runs of other sessions fetch what they need again.
    """
    trim_kernels()
    if "libdesc.registry" in sys.modules:
        give_back_code(CODE)
    give_back()
