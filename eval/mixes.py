"""The mixes of libraries in which networks are tested and timed."""

from __future__ import annotations

from libdesc.registry import registry
from vtensor.commands.shared import Mix
from vtensor.language.operators import OPERATORS

#: A session's default: all libraries, by priority.
BY_PRIORITY = Mix(None, {})


def mixes() -> dict[str, Mix]:
    """Return mixes by name: each library alone, and two that run some operators on Eigen and the
    rest on oneDNN.

    ``tensorflow`` distributes operators as TensorFlow 1.14 does between its two libraries.

    >>> list(mixes())
    ['onednn', 'eigen', 'numpy', 'elementwise', 'tensorflow']
    """
    alone = {name: Mix([name], {}) for name in ("onednn", "eigen", "numpy")}
    shared = {
        "elementwise": elementwise("eigen"),
        "tensorflow": ("BiasAdd", "Pad", "Mean"),
    }
    return alone | {
        name: Mix(["onednn"], dict.fromkeys(pinned, "eigen")) for name, pinned in shared.items()
    }


def elementwise(library: str) -> list[str]:
    """Return the names of the element-wise operators that a library has an invoker for."""
    taken = {op for op, name, _ in registry().invokers if name == library}
    return [info.name for info in OPERATORS.values() if info.elementwise and info.name in taken]
