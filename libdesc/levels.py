"""Extension modules that are compiled once an instruction set, and which of them is used."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar, cast

from libdesc.tracing import traced
from vtensor.errors import LibraryError
from vtensor.language.openmp import import_native
from vtensor.language.records import dataclass

#: Instruction sets, from the least; and the best of them that a cap of VTensor leaves.
LEVELS = ("baseline", "avx2", "avx512")
CAPS = {"sse41": "baseline", "avx2": "avx2", "avx512": "avx512", "amx": "avx512", "max": "avx512"}


class Leveled(Protocol):
    """What each module says of itself."""

    level: str

    def machine_level(self) -> str:
        """The best of the modules that this machine runs."""


M = TypeVar("M", bound=Leveled)


@dataclass
class Levels(Generic[M]):
    """The modules of one library, ``libdesc.<library>._<library>_<level>``.

    The choice is the process's, whose kernels are of one instruction set: results do not depend on
    the session.
    """

    library: str
    cap: str = "max"
    loaded: M | None = None

    def load(self) -> M:
        """The module for the best instruction set of the machine that the cap leaves.

        After the first call the choice stands.

        Raises:
            LibraryError: the extension is not there, or does not load; says why.
        """
        if self.loaded is None:
            self.loaded = self._module(self._best(self.cap))
        return traced(self.loaded)

    def limit(self, cap: str) -> None:
        """Cap the instruction set.

        Raises:
            LibraryError: another one is in use already, or there is no such cap.
        """
        if cap not in CAPS:
            raise LibraryError(f"{self.library}: there is no cap {cap!r}; one of {', '.join(CAPS)}")
        if self.loaded is not None and self.loaded.level != self._best(cap):
            raise LibraryError(
                f"{self.library}: the cap {cap} comes too late: {self.loaded.level} is in use; "
                "call limit_isa before the first session"
            )
        self.cap = cap

    def baseline(self) -> M:
        """The module that every machine runs; loading it decides nothing.

        Raises:
            LibraryError: as ``load``.
        """
        return self._module("baseline")

    def _best(self, cap: str) -> str:
        return min(self.baseline().machine_level(), CAPS[cap], key=LEVELS.index)

    def _module(self, level: str) -> M:
        name = f"libdesc.{self.library}._{self.library}_{level}"
        try:
            return cast("M", import_native(name))
        except ImportError as error:
            raise LibraryError(
                f"{self.library}: the extension module does not load: {error}"
            ) from error
