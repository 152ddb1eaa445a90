"""Names of values and nodes: taken ones and free ones."""

from __future__ import annotations

from collections.abc import Iterable


class TakenNames(set[str]):
    """The names of a network's values and nodes; ``free`` makes new ones and adds them.

    >>> names = TakenNames(["row"])
    >>> names.free("row"), names.free("row"), names.free("sum"), "row:3" in names
    ('row:2', 'row:3', 'sum', True)
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self._numbers: dict[str, int] = {}  # the last number of each stem

    def free(self, stem: str) -> str:
        """Add ``stem``, or if it is taken, ``stem`` with the next number from 2 on; return the
        added name.
        """
        name, number = stem, self._numbers.get(stem, 1)
        while name in self:
            number += 1
            name = f"{stem}:{number}"
        self._numbers[stem] = number
        self.add(name)
        return name
