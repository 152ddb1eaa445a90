"""Extension modules that are compiled once for each instruction set (*level*), and the choice
between them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Generic, Protocol, TypeVar, cast

from libdesc.tracing import traced
from vtensor.errors import LibraryError
from vtensor.language.process.openmp import import_native
from vtensor.language.records import dataclass

#: The instruction sets that modules are compiled for, the smallest first.
LEVELS = ("baseline", "avx2", "avx512")

#: A cap names the largest instruction set that may be used. For each, the largest of ``LEVELS``
#: that it allows.
CAPS = {"sse41": "baseline", "avx2": "avx2", "avx512": "avx512", "amx": "avx512", "max": "avx512"}


class Leveled(Protocol):
    """The attributes that each of these extension modules has.

    Attributes:
        level: the instruction set that the module is compiled for, one of ``LEVELS``.
    """

    level: str

    def machine_level(self) -> str:
        """Return the largest instruction set of ``LEVELS`` that this machine can execute."""


M = TypeVar("M", bound=Leveled)


@dataclass
class Levels(Generic[M]):
    """The extension modules of one library, ``libdesc.<library>._<library>_<level>``, one for each
    instruction set.

    A process uses kernels of one instruction set, so that results do not depend on the session.

    Attributes:
        library: the library's name.
        cap: the largest instruction set that may be used, a key of ``CAPS``.
        loaded: the chosen module; None before the first ``load``.
    """

    library: str
    cap: str = "max"
    loaded: M | None = None

    def load(self) -> M:
        """Return the module for the largest instruction set that the machine and the cap allow.

        Later calls in the process return the same module.

        Raises:
            LibraryError: the extension module is missing or does not load; the message says why.
        """
        if self.loaded is None:
            self.loaded = self._module(self._best(self.cap))
        return traced(self.loaded)

    def limit(self, cap: str) -> None:
        """Cap the instruction set that ``load`` chooses.

        Args:
            cap: the largest instruction set that may be used, a key of ``CAPS``.

        Raises:
            LibraryError: ``load`` has already chosen a module for another instruction set, or there
                is no such cap.
        """
        if cap not in CAPS:
            raise LibraryError(f"{self.library}: there is no cap {cap!r}; one of {', '.join(CAPS)}")
        if self.loaded is not None and self.loaded.level != self._best(cap):
            raise LibraryError(
                f"{self.library}: the cap {cap} comes too late: {self.loaded.level} is in use; "
                "call limit_isa before the first session"
            )
        self.cap = cap

    def version(self, version: str, instructions: str = "") -> str:
        """Return a library's version as text, with the time at which its kernels were built. The
        cache keeps times and plans of each version apart, so also those of each build.

        Args:
            version: the version of the kernels' source.
            instructions: what the kernels use, if not just the module's instruction set.
        """
        level = self.load().level
        built = Path(str(sys.modules[_name(self.library, level)].__file__)).stat().st_mtime
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(built))
        return f"{version} on {instructions or level}, built {text}"

    def unavailable(self) -> str | None:
        """Return the reason why the kernels cannot be used in this process; None if they can."""
        try:
            self.baseline()
        except LibraryError as error:
            return str(error)
        return None

    def baseline(self) -> M:
        """Return the module that every machine can execute. This does not affect which module
        ``load`` chooses.

        Raises:
            LibraryError: the extension module is missing or does not load; the message says why.
        """
        return self._module("baseline")

    def _best(self, cap: str) -> str:
        return min(self.baseline().machine_level(), CAPS[cap], key=LEVELS.index)

    def _module(self, level: str) -> M:
        try:
            return cast("M", import_native(_name(self.library, level)))
        except ImportError as error:
            raise LibraryError(
                f"{self.library}: the extension module does not load: {error}"
            ) from error


def _name(library: str, level: str) -> str:
    return f"libdesc.{library}._{library}_{level}"
