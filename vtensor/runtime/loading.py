"""Native libraries that another thread loads while Python reads a model."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

#: The one whose loading takes milliseconds, by its folder and the module of ours that needs it;
#: and the variable by which another build of it is chosen, which is then looked for.
_FOLDER, _MODULE, _CHOSEN = "libdesc/onednn", "_onednn", "VTENSOR_ONEDNN_DIR"


@cache
def load_ahead() -> None:
    """Have it loaded, once: the first plan is likely to need it."""
    from vtensor.runtime import _replay

    if os.environ.get(_CHOSEN) or f"{_FOLDER.replace('/', '.')}.{_MODULE}" in sys.modules:
        return
    own = Path(_replay.__file__)
    file = own.parents[2] / _FOLDER / own.name.replace("_replay", _MODULE)
    if file.is_file():
        _replay.load_ahead(str(file))
