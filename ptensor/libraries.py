"""The table of libraries, empty here; ``libdesc`` fills it from descriptions.

PTensors need three things of a library by its name: its word for a layout, its guideline, and
whether it really takes a row of layouts. The floor below ``libdesc`` sees them through this
protocol.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vtensor.errors import LibraryError

if TYPE_CHECKING:
    from ptensor.call import Call, CallOperand
    from ptensor.layout import Layout

#: What a guideline may answer for one operand: a layout, several in order of preference, or ANY.
Answer = "Layout | Sequence[Layout]"


class Library(Protocol):
    """A registered library, as PTensors see it."""

    @property
    def name(self) -> str:
        """The name in descriptions, invokers and plans."""

    @property
    def guideline_place(self) -> str:
        """File and line of what answers ``guideline``; empty where nobody knows."""

    def guideline(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """What the library would like for each operand of the call, by operand index."""

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """None when the library takes the call with one layout an operand, else the reason."""

    def library_desc(self, tensor: CallOperand) -> Any:
        """The library's own description of a PTensor in its layout."""


#: The libraries by name of the registry that is installed, whose dict is its ``data``.
LIBRARIES: UserDict[str, Library] = UserDict()


def library(name: str) -> Library:
    """A library by name.

    Raises:
        LibraryError: none of this name is registered.
    """
    try:
        return LIBRARIES[name]
    except KeyError:
        known = ", ".join(sorted(LIBRARIES)) or "none"
        raise LibraryError(f"no library {name!r} is registered; registered are {known}") from None
