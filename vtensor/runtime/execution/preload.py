"""A native library that another thread loads while Python reads a model: oneDNN, the only one whose
loading takes milliseconds.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path


@cache
def load_ahead() -> None:
    """Have it loaded, once: the first plan is likely to need it. Another build is left to who looks
    for it.
    """
    from libdesc.onednn.native import DIRECTORY_VARIABLE, EXTENSION
    from vtensor.runtime import _replay

    if os.environ.get(DIRECTORY_VARIABLE) or EXTENSION in sys.modules:
        return
    own = Path(_replay.__file__)
    *folders, name = EXTENSION.split(".")
    file = own.parents[2].joinpath(*folders, own.name.replace("_replay", name))
    if file.is_file():
        _replay.load_ahead(str(file))
