"""The description of the machine on which times are measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from libdesc.registry import ready
from vtensor.runtime.execution.processors import available_threads

#: The largest load average of an idle machine.
CALM = 1.0

#: Prefixes of environment variables that change times; those that are set are part of a report.
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
    """Return facts by name: processor, system, load, libraries, environment variables."""
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
    """Return the name of the processor.

    >>> bool(processor())
    True
    """
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
