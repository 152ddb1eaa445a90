"""The table of libraries, empty here; ``libdesc`` fills it from descriptions.

A PTensor knows a library by its name. It needs three answers of it: the library's own description
of a tensor in a layout, its guideline, and whether it takes a call with given layouts. The protocol
below stands for the library, since ``ptensor`` may not import ``libdesc``.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vtensor.errors import LibraryError

if TYPE_CHECKING:
    from ptensor.call import Call, CallOperand
    from ptensor.layout import Layout

#: A guideline's answer for one operand: a layout, several in order of preference, or ANY.
Answer = "Layout | Sequence[Layout]"


class Library(Protocol):
    """A registered library, as PTensors see it."""

    @property
    def name(self) -> str:
        """The name in descriptions, invokers and plans."""

    @property
    def guideline_place(self) -> str:
        """File and line of the guideline's code; empty if unknown."""

    def guideline(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """Return the layouts that the library prefers for the call, by operand index."""

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the library takes the call with one layout per operand, else the
        reason.
        """

    def library_desc(self, tensor: CallOperand) -> Any:
        """Return the library's own description of a PTensor in its layout."""


#: Libraries by name. Its ``data`` is the dict of the registry that is installed.
LIBRARIES: UserDict[str, Library] = UserDict()


def library(name: str) -> Library:
    """Return a library by name.

    Raises:
        LibraryError: no library of this name is registered.
    """
    try:
        return LIBRARIES[name]
    except KeyError:
        known = ", ".join(sorted(LIBRARIES)) or "none"
        raise LibraryError(f"no library {name!r} is registered; registered are {known}") from None
