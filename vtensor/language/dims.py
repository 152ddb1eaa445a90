"""What an operator declares of its operands' dims, and the check that is generated from it.

A declaration is a row of names: ``"N C H W"`` exactly these, in any order; ``"G? O I h w"`` G may
be absent; ``"* M K"`` these and any others. An equality compares two products of sizes and
parameters: ``("x.C", "w.G * w.I")``; an absent dim counts as 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vtensor.errors import DimError
from vtensor.language.records import dataclass


@dataclass(frozen=True)
class DimSpec:
    """A parsed row of dim names."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    open: bool
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> DimSpec:
        """Parse ``"G? O I h w"``.

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
        """The names of ``rank`` axes, as declared; the last optional dims are there first.

        None where the row cannot have this many, or leaves the names open.

        >>> DimSpec.parse("N C D? H? W").of_rank(4)
        ('N', 'C', 'H', 'W')
        """
        left_out = len(self.names) - rank
        if self.open or not 0 <= left_out <= len(self.optional):
            return None
        absent = self.optional[:left_out]
        return tuple(name for name in self.names if name not in absent)

    def condition(self, role: str) -> str:
        """The expression that is true when the operand ``role`` has these dims."""
        required = "{" + ", ".join(repr(name) for name in self.required) + "}"
        if self.open:
            return f"{role}.dims.keys() >= {required}" if self.required else "True"
        if self.optional:
            optional = "{" + ", ".join(repr(name) for name in self.optional) + "}"
            return f"{role}.dims.keys() - {optional} == {required}"
        return f"{role}.dims.keys() == {required}"


def product_source(expression: str) -> str:
    """Python for one side of an equality.

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
    """Return whether a size is the integer 1; a symbolic size is not, though its number may be 1.

    Code that tests this first adds no guard to a trace, so that a recording for a batch of one
    holds for others.
    """
    return type(size) is int and size == 1


def same_sizes(dims: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Return whether two tensors have the same dims and sizes; a symbolic size is never the size 1.

    >>> same_sizes({"N": 2, "C": 3}, {"C": 3, "N": 2}), same_sizes({"N": 1}, {"N": 2})
    (True, False)
    """
    return dims.keys() == other.keys() and all(
        is_one(size) == is_one(other[dim]) and size == other[dim] for dim, size in dims.items()
    )


def broadcast(*operands: Mapping[str, int]) -> dict[str, int]:
    """Sizes of an element-wise result: every name, each size the largest; size 1 and absence
    broadcast.

    The order is that of the operand with the most dims, others' names after it, so it does not
    depend on which operand comes first unless they tie.

    Raises:
        DimError: two sizes of one name differ and neither is 1.

    >>> broadcast({"C": 3}, {"N": 2, "C": 3, "H": 1}, {"H": 5})
    {'N': 2, 'C': 3, 'H': 5}
    """
    result: dict[str, int] = {}
    for dims in sorted(operands, key=len, reverse=True):
        for name, size in dims.items():
            have = result.get(name, 1)
            if is_one(have):
                result[name] = size
            elif not is_one(size) and have != size:
                if 1 not in (have, size):
                    raise DimError(f"dim {name} is {have} in one operand and {size} in another")
                result[name] = size if have == 1 else have
    return result


def dim_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """A row of names, each once, from text or a sequence.

    Raises:
        DimError: it is neither, or a name is there twice.

    >>> dim_names("N C"), dim_names(["batch"])
    (('N', 'C'), ('batch',))
    """
    names = given.split() if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise DimError(f"dims are named as 'N C H W' or as a list of names, not by {given!r}")
    if len(set(names)) != len(names):
        raise DimError(f"a name is there twice: {' '.join(names)}")
    return tuple(names)
