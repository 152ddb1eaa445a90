"""The machine that times are of, and whether it is calm."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from libdesc.registry import ready
from vtensor.runtime.execution.processors import available_threads

#: A load average above this says that others use the machine, too.
CALM = 1.0

#: Settings of threads and kernels that change times; those that are set are kept with them.
_PREFIXES = (
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "DNNL_",
    "ONEDNN_",
    "TF_ENABLE_",
    "TF_NUM_",
    "VTENSOR_",
)


def machine() -> dict[str, Any]:
    """Processor, system, load, our libraries with the instruction sets they use, environment."""
    return {
        "processor": processor(),
        "processors": available_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "libraries": {
            library.name: library.version()
            for library in ready().libraries.values()
            if not library.absent
        },
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)
        },
    }


def processor() -> str:
    """What the processor calls itself.

    >>> bool(processor())
    True
    """
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
