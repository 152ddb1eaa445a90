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
    """Each element of the output depends only on the inputs' elements at the same indices."""


@dataclass(frozen=True)
class Commutes(Trait):
    """The operator is commutative and associative, except for rounding."""


#: The kinds of ``Structural``. Parameters of their operators: ``rename`` takes ((old, new), ...),
#: ``reshape`` takes ((name, size), ...), ``slice`` takes axes, starts, ends and steps. ``bias``
#: takes none: it adds its second operand along that operand's dims. ``cast`` takes the element type
#: of its output. Operators of the other kinds have the parameters of the ONNX operator in their
#: first spelling.
STRUCTURAL = ("rename", "reshape", "identity", "concat", "gather", "bias", "slice", "cast")

#: The kinds of ``Structural`` whose output is the input's memory under other dims.
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
    """The operator's definition is not NumPy's invoker, but that of another library.

    Args:
        library: the name of the other library.
    """

    library: str


@dataclass(frozen=True)
class Cost(Trait):
    """The number of arithmetic operations of a call.

    A sum of two numbers, a comparison and a function of a number count as one operation each.

    Args:
        count: the number per element of the first input; or a function that returns the number for
            the whole call: ``(op, *inputs, *outputs) -> int``.
    """

    count: Callable[..., int] | int


@dataclass(frozen=True)
class Linear(Trait):
    """The output is linear in some inputs: scaling a slice of one scales the output's slice.

    Args:
        inputs: by role of such an input, a dict: by dim of the output, the dims of the input of
            which it consists, slowest first. ``{"w": {"C": "G O"}}``: C of the output is G and O of
            w. Dims of the same name are left out; ``{"a": {}}``: all names agree.
    """

    inputs: Mapping[str, Mapping[str, str]] = field(hash=False)


@dataclass(frozen=True)
class Affine(Trait):
    """The output is ``factor * x + shift`` in an input ``x``.

    Args:
        coefficients: called with the instance and an argument for each input: None for x, and for
            the others arrays that broadcast against each other. Returns factor and shift; None if
            the output is not affine in x.
    """

    coefficients: Callable[..., tuple[Any, Any] | None]


@dataclass(frozen=True)
class Pointwise(Trait):
    """The operator is element-wise, and an expression defines each element of its output.

    Args:
        expression: called with the instance and an expression for each input; returns the output's
            expression. Inputs of types narrower than f32 are converted to f32 before.
    """

    expression: Callable[..., Expression]


@dataclass(frozen=True)
class Stretches(Trait):
    """Small outputs have large relative errors: an exponential's equals its input's absolute error.

    At the end of a network, the error of such an operator's input is used in place of the error of
    its output.
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
        steps: called with the instance and the inputs. Returns a dict with n by dim, and an
            instance that computes the same output from every n-th element alone, beginning with the
            first; None if every element is read.
    """

    steps: Callable[..., tuple[Mapping[str, int], Any] | None]


@dataclass(frozen=True)
class Thins(Trait):
    """The operator can be made to compute only every n-th element of its output along some dims.

    Args:
        make: called with the instance, the first input and a dict with n by dim; returns an
            instance that computes only every n-th element of the output, beginning with the first.
    """

    make: Callable[[Any, VTensor, Mapping[str, int]], Any]
