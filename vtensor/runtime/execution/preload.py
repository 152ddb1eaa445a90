"""Loading of oneDNN on another thread while Python reads a model.

oneDNN is the only native library that takes milliseconds to load.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path


@cache
def load_ahead() -> None:
    """Load oneDNN once in the background: the first plan is likely to need it.

    Does nothing if oneDNN is loaded already or an environment variable names its build.
    """
    from libdesc.onednn.native import DIRECTORY_VARIABLE, EXTENSION
    from vtensor.runtime import _replay

    if os.environ.get(DIRECTORY_VARIABLE) or EXTENSION in sys.modules:
        return
    replay_file = Path(_replay.__file__)
    *folders, name = EXTENSION.split(".")
    file = replay_file.parents[2].joinpath(*folders, replay_file.name.replace("_replay", name))
    if file.is_file():
        _replay.load_ahead(str(file))
