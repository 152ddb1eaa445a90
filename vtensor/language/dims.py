"""Declarations of operands' dims, the Python expressions that check them, and rules of sizes.

A declaration is a row of names: ``"N C H W"`` means exactly these dims, in any order; in
``"G? O I h w"`` G may be absent; ``"* M K"`` means these and any others. An equality compares two
products of sizes and parameters: ``("x.C", "w.G * w.I")``; an absent dim counts as 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vtensor.errors import DimError
from vtensor.language.records import dataclass


@dataclass(frozen=True)
class DimSpec:
    """A parsed row of dim names.

    Attributes:
        required, optional: the names that are written without and with ``?``.
        open: True if the row has a ``*``. An operand may then have other dims as well.
        names: all names, in the order of the row.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    open: bool
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> DimSpec:
        """Parse a row such as ``"G? O I h w"``.

        Raises:
            DimError: a name is no identifier, or is there twice.

        >>> DimSpec.parse("G? O I").optional
        ('G',)
        """
        words = text.split()
        names = [word.removesuffix("?") for word in words if word != "*"]
        if len(set(names)) != len(names) or not all(name.isidentifier() for name in names):
            raise DimError(f"{text!r} must be dim names, each an identifier and none twice")
        return cls(
            tuple(word for word in words if word != "*" and not word.endswith("?")),
            tuple(word[:-1] for word in words if word.endswith("?")),
            "*" in words,
            tuple(names),
        )

    def of_rank(self, rank: int) -> tuple[str, ...] | None:
        """Return the dims of an operand with ``rank`` axes, in the order of the row.

        If there are fewer axes than names, optional dims are left out, those that come first in the
        row first. None if that cannot give ``rank`` names, or if the row has a ``*``.

        >>> DimSpec.parse("N C D? H? W").of_rank(4)
        ('N', 'C', 'H', 'W')
        """
        left_out = len(self.names) - rank
        if self.open or not 0 <= left_out <= len(self.optional):
            return None
        absent = self.optional[:left_out]
        return tuple(name for name in self.names if name not in absent)

    def condition(self, role: str) -> str:
        """Return a Python expression that is true if the VTensor ``role`` has these dims.

        Args:
            role: the name of the variable that holds the VTensor.
        """
        required = "{" + ", ".join(repr(name) for name in self.required) + "}"
        if self.open:
            return f"{role}.dims.keys() >= {required}" if self.required else "True"
        if self.optional:
            optional = "{" + ", ".join(repr(name) for name in self.optional) + "}"
            return f"{role}.dims.keys() - {optional} == {required}"
        return f"{role}.dims.keys() == {required}"


def product_source(expression: str) -> str:
    """Return the Python expression that computes a product of sizes and parameters.

    In the Python expression, the names of the roles are variables that hold the operands, and
    ``op`` is the operator instance.

    Args:
        expression: one side of an equality, ``"w.G * w.I"``.

    Raises:
        DimError: the text is no product of ``role.DIM``, parameters and integers.

    >>> product_source("w.G * w.I")
    "w.dims.get('G', 1) * w.dims.get('I', 1)"
    >>> product_source("group")
    'op.group'
    """
    factors = []
    for factor in (part.strip() for part in expression.split("*")):
        if re.fullmatch(r"\d+", factor):
            factors.append(factor)
        elif match := re.fullmatch(r"(\w+)\.(\w+)", factor):
            factors.append(f"{match[1]}.dims.get({match[2]!r}, 1)")
        elif factor.isidentifier():
            factors.append(f"op.{factor}")
        else:
            raise DimError(f"{expression!r} is no product of 'role.DIM', parameters and integers")
    return " * ".join(factors)


def is_one(size: int) -> bool:
    """Return whether a size is the plain integer 1; a symbolic size never is.

    Code that calls this function before it compares a size adds fewer guards to a trace, so that a
    symbolic plan that is recorded for a batch of 1 also holds for other batches.
    """
    return type(size) is int and size == 1


def same_sizes(dims: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Return whether two tensors have the same dims, in any order, with the same sizes.

    A symbolic size and the number 1 count as different; this comparison adds no guard to a trace.

    Args:
        dims, other: the sizes of each tensor by dim.

    >>> same_sizes({"N": 2, "C": 3}, {"C": 3, "N": 2}), same_sizes({"N": 1}, {"N": 2})
    (True, False)
    """
    return dims.keys() == other.keys() and all(
        is_one(size) == is_one(other[dim]) and size == other[dim] for dim, size in dims.items()
    )


def broadcast(*operands: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes by dim of an element-wise result, which has the dims of all operands.

    A dim has the size that is not 1, if any operand has such a size. An operand in which the dim
    has size 1 or is absent is repeated along it (broadcast). The result has first the dims of the
    operand with the most dims (the first of several), in its order; then the dims that this operand
    lacks.

    Args:
        operands: for each operand, its sizes by dim.

    Raises:
        DimError: two sizes of one dim differ and neither is 1.

    >>> broadcast({"C": 3}, {"N": 2, "C": 3, "H": 1}, {"H": 5})
    {'N': 2, 'C': 3, 'H': 5}
    """
    result: dict[str, int] = {}
    for dims in sorted(operands, key=len, reverse=True):
        for name, size in dims.items():
            largest = result.get(name, 1)
            if is_one(largest):
                result[name] = size
            elif not is_one(size) and largest != size:
                if 1 not in (largest, size):
                    raise DimError(f"dim {name} is {largest} in one operand and {size} in another")
                result[name] = size if largest == 1 else largest
    return result


def dim_names(row: str | Sequence[str]) -> tuple[str, ...]:
    """Return the dim names in ``row``: a text with spaces between the names, or a sequence of them.

    Raises:
        DimError: ``row`` is neither, or has a name twice.

    >>> dim_names("N C"), dim_names(["batch"])
    (('N', 'C'), ('batch',))
    """
    names = row.split() if isinstance(row, str) else row
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise DimError(f"dims are named as 'N C H W' or as a list of names, not by {row!r}")
    if len(set(names)) != len(names):
        raise DimError(f"a name is there twice: {' '.join(names)}")
    return tuple(names)
