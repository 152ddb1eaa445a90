"""Open sizes, which a run decides: ``Graph.input`` turns a size of None into one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from math import prod
from numbers import Integral
from typing import TYPE_CHECKING, Any, NoReturn

from vtensor.errors import DimError

# ``OpenSize`` must not derive from ``int``: C code takes the value of an ``int`` without calling
# any method of its class, as in range(n), np.zeros(n), 1 | n.
if TYPE_CHECKING:
    _Integer = int
else:
    _Integer = object


class OpenSize(_Integer):
    """A size that is not known yet: a number times names, as in ``6*N``.

    An open size can be multiplied by integers and open sizes, and compared for equality. Any other
    use of its value is an error, since the answer would hold for one size only. ``OpenSize`` is no
    subclass of ``int``, except to type checkers, as sizes are annotated with ``int``.

    Attributes:
        factor: the number.
        names: the names of the sizes that are multiplied, sorted; a name may occur several times.

    >>> n = OpenSize.of("N")
    >>> 2 * n * 3, 6 * n == n * 6, n == 6
    (6*N, True, False)
    """

    factor: int
    names: tuple[str, ...]

    #: Makes NumPy's numbers and arrays leave arithmetic with a size to this class.
    __array_ufunc__ = None

    @classmethod
    def of(cls, *names: str, factor: int = 1) -> OpenSize:
        """Return the open size that is the product of ``factor`` and the sizes of ``names``."""
        size = cls()
        size.factor, size.names = int(factor), tuple(sorted(names))
        return size

    def at(self, sizes: Mapping[str, int]) -> int:
        """Return the number that this open size is, given the size of each name."""
        return self.factor * prod(sizes[name] for name in self.names)

    def __mul__(self, other: Any) -> int:
        if isinstance(other, OpenSize):
            return OpenSize.of(*self.names, *other.names, factor=self.factor * other.factor)
        if not isinstance(other, Integral):
            self._needed()
        return OpenSize.of(*self.names, factor=self.factor * int(other)) if other != 0 else 0

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OpenSize):
            return False
        return (self.factor, self.names) == (other.factor, other.names)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.factor, self.names))

    def __repr__(self) -> str:
        return "*".join([str(self.factor)] * (self.factor != 1) + list(self.names))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """Format the size as text.

        Raises:
            DimError: ``spec`` is a format of numbers, such as ``d``.
        """
        try:
            return format(repr(self), spec)
        except ValueError:
            self._needed()

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error for an attribute that integers have, such as ``n.real`` or
        ``n.bit_length()``.

        Raises:
            DimError: integers have an attribute of this name.
            AttributeError: integers have none, or the name begins with ``__``.
        """
        if name in dir(int) and not name.startswith("__"):
            self._needed()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _needed(self, *_: object, **__: object) -> NoReturn:
        raise DimError(
            f"the size {self} is open until a run decides it, and is needed here: give the input "
            "a size, not None"
        )

    __index__ = __int__ = __float__ = __complex__ = __bool__ = __array__ = _needed
    __round__ = __trunc__ = __floor__ = __ceil__ = _needed
    __neg__ = __pos__ = __abs__ = __invert__ = _needed
    __lt__ = __le__ = __gt__ = __ge__ = _needed
    __add__ = __radd__ = __sub__ = __rsub__ = __matmul__ = __rmatmul__ = _needed
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = _needed
    __pow__ = __rpow__ = __divmod__ = __rdivmod__ = _needed
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _needed
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _needed


def open_names(sizes: Iterable[int]) -> set[str]:
    """Return the names that the open sizes among ``sizes`` consist of."""
    return {name for size in sizes if isinstance(size, OpenSize) for name in size.names}


def closed(value: Any, sizes: Mapping[str, int]) -> Any:
    """Return a value with numbers in place of its open sizes.

    Args:
        value: a size, a tuple, or a dataclass such as an operator. Any other value is returned as
            it is.
        sizes: the numbers that replace the names in open sizes, by name.
    """
    if isinstance(value, OpenSize):
        return value.at(sizes)
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(closed(part, sizes) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        decided = {name: closed(part, sizes) for name, part in parts.items()}
        changed = {name: part for name, part in decided.items() if part is not parts[name]}
        return dataclasses.replace(value, **changed) if changed else value
    return value
