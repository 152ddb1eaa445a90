"""Traits: properties that operators declare, so that passes need to know no operator by name.

``@operator(..., traits=[Elementwise(), Cost(1)])`` declares traits, ``info_of(op).trait(Cost)``
returns one.
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
    """The base of all traits; an operator has at most one trait of each type."""


@dataclass(frozen=True)
class Elementwise(Trait):
    """Each element of the output depends only on the inputs' elements at the same place."""


@dataclass(frozen=True)
class Commutes(Trait):
    """The operator is commutative and associative, except for rounding."""


#: The kinds of ``Structural``. Parameters of their operators: ``rename`` takes ((old, new), ...),
#: ``reshape`` takes ((name, size), ...), ``slice`` takes axes, starts, ends and steps. ``bias``
#: takes none: it adds its second operand along that operand's dims. The parameters of the others
#: are those of their first ONNX spelling.
STRUCTURAL = ("rename", "reshape", "identity", "concat", "gather", "bias", "slice")

#: The structural kinds whose output is their input's memory under other dims.
VIEWS = ("rename", "reshape", "identity")


@dataclass(frozen=True)
class Structural(Trait):
    """The operator is the one that VTensor adds to a graph when it needs an operator of this kind.

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
    """The operator's values are defined by an invoker of another library than NumPy.

    Args:
        library: the name of that library.
    """

    library: str


@dataclass(frozen=True)
class Cost(Trait):
    """The number of arithmetic operations of a call; a sum, a comparison, a function count as one.

    Args:
        count: the number per element of the first input, or a function that returns the number of
            the whole call: ``(op, *inputs, *outputs) -> int``.
    """

    count: Callable[..., int] | int


@dataclass(frozen=True)
class Linear(Trait):
    """The output is linear in some inputs: scaling a slice of one scales the output's slice.

    Args:
        inputs: by role of such an input, the output's dims with the input's dims that each
            consists of, slowest first: ``{"w": {"C": "G O"}}``. Dims with the same name in both
            are left out, so ``{"a": {}}`` means that all names agree.
    """

    inputs: Mapping[str, Mapping[str, str]] = field(hash=False)


@dataclass(frozen=True)
class Affine(Trait):
    """The output is ``factor * x + shift`` in an input ``x``.

    Args:
        coefficients: called with the instance and the inputs: None for x, and arrays that broadcast
            for the others. Returns (factor, shift); None if the output is not affine in x.
    """

    coefficients: Callable[..., tuple[Any, Any] | None]


@dataclass(frozen=True)
class Pointwise(Trait):
    """The operator is element-wise, and an expression defines each element of its output.

    Args:
        expression: called with the instance and an expression for each input; returns the output's
            expression. Inputs narrower than f32 are f32 in it.
    """

    expression: Callable[..., Expression]


@dataclass(frozen=True)
class Stretches(Trait):
    """Small results have large relative errors: an exponential's is the input's absolute error.

    At the end of a network, the error of such an operator's input is used in place of the error of
    its result.
    """


@dataclass(frozen=True)
class Jumps(Trait):
    """The operator is discontinuous, as rounding is: small errors of the input may become large.

    Operators that turn floats into integers or truth values have this property without the trait.
    """


@dataclass(frozen=True)
class Picks(Trait):
    """The operator may read only every n-th element of its first input along some dims.

    Args:
        steps: called with the instance and the inputs. Returns the step n by dim, and an operator
            that computes the same from those elements alone, the first and every n-th after it;
            None if every element is read.
    """

    steps: Callable[..., tuple[Mapping[str, int], Any] | None]


@dataclass(frozen=True)
class Thins(Trait):
    """The operator can be made to compute only every n-th element of its output along some dims.

    Args:
        make: called with the instance, the first input and the step n by dim; returns an instance
            that computes only the first element and every n-th after it.
    """

    make: Callable[[Any, VTensor, Mapping[str, int]], Any]
