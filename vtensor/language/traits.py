"""Traits: what an operator declares of itself beside its dims, for passes that know no operator.

``@operator(..., traits=[Elementwise(), Cost(1)])``; ``info_of(op).trait(Cost)`` finds one again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from vtensor.errors import GraphError
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from vtensor.language.expression import Expression
    from vtensor.tensor import VTensor


class Trait:
    """Base of all traits; an operator has at most one of a kind."""


@dataclass(frozen=True)
class Elementwise(Trait):
    """The value at a place depends only on the inputs' values at that place."""


@dataclass(frozen=True)
class Commutes(Trait):
    """Operands may be exchanged, and a chain of it may be bracketed anew, roundings aside."""


#: What ``Structural`` may say; ``rename`` takes ((old, new), ...), ``reshape`` takes
#: ((name, size), ...), ``slice`` axes and their starts, ends and steps, ``bias`` nothing: it adds
#: its second operand along that one's dims. The others are added as ONNX spells them first.
STRUCTURAL = ("rename", "reshape", "identity", "concat", "gather", "bias", "slice")

#: Those whose output is their input's memory under other dims.
VIEWS = ("rename", "reshape", "identity")


@dataclass(frozen=True)
class Structural(Trait):
    """The operator that VTensor itself adds to a graph when it needs one of this kind.

    Args:
        kind: one of ``STRUCTURAL``.

    Raises:
        GraphError: there is no such kind.
    """

    kind: str

    def __post_init__(self) -> None:
        if self.kind not in STRUCTURAL:
            raise GraphError(f"Structural({self.kind!r}): none of {', '.join(STRUCTURAL)}")


@dataclass(frozen=True)
class DefinedBy(Trait):
    """The library whose invoker says what the values are, where that is not NumPy's."""

    library: str


@dataclass(frozen=True)
class Cost(Trait):
    """How many arithmetic operations a call takes; a sum, a comparison, a function count as one.

    Args:
        count: a number for each element of the first input, or a function that counts them:
            ``(op, *inputs, *outputs) -> int``.
    """

    count: Callable[..., int] | int


@dataclass(frozen=True)
class Linear(Trait):
    """The inputs in which the output is linear: scaling a slice of one scales the output's slice.

    Args:
        inputs: by role of the input, which of its dims each dim of the output is made of, slowest
            first: ``{"w": {"C": "G O"}}``. Dims with the same name in both are left out.
    """

    inputs: Mapping[str, Mapping[str, str]] = field(hash=False)


@dataclass(frozen=True)
class Affine(Trait):
    """The output is ``factor * x + shift`` in one of the inputs.

    Args:
        coefficients: called with the instance and the inputs, where x is None and the others are
            arrays that broadcast; returns (factor, shift), or None where the output is not affine
            in that input.
    """

    coefficients: Callable[..., tuple[Any, Any] | None]


@dataclass(frozen=True)
class Pointwise(Trait):
    """What an element-wise operator computes of each element.

    Args:
        expression: called with the instance and an expression an input; returns the output's. What
            is narrower than f32 comes in f32.
    """

    expression: Callable[..., Expression]


@dataclass(frozen=True)
class Stretches(Trait):
    """Small results have large relative errors: those of exponentials are the input's, times it.

    At the end of a network, the error of what it reads says more than that of its result.
    """


@dataclass(frozen=True)
class Jumps(Trait):
    """A small difference of the input may be any difference of the result, as of a rounded number.

    That is so by itself where numbers with fractions decide whole numbers or truth values.
    """


@dataclass(frozen=True)
class Picks(Trait):
    """It may read only every n-th element of its first input along some dims, from the first on.

    Args:
        steps: called with the instance and the inputs. Returns the step by dim, and the operator
            that computes the same from an input that has only those elements; None where every
            element is read.
    """

    steps: Callable[..., tuple[Mapping[str, int], Any] | None]


@dataclass(frozen=True)
class Thins(Trait):
    """It can compute only every n-th element of its output along some dims, from the first on.

    Args:
        make: called with the instance, the first input and the step by dim; returns the instance
            that computes only those elements.
    """

    make: Callable[[Any, VTensor, Mapping[str, int]], Any]
