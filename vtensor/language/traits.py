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


#: The kinds of ``Structural``, and the parameters of their operators. ``rename`` has ((old, new),
#: ...); ``reshape`` has ((name, size), ...); ``slice`` has axes, starts, ends and steps. ``bias``
#: has none; it adds its second operand along that operand's dims. ``cast`` has the element type of
#: its output. The others have the parameters of the ONNX operator in their first spelling.
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
        count: the number of operations per element of the first input. Or a function that returns
            the number for the whole call: ``(op, *inputs, *outputs) -> int``.
    """

    count: Callable[..., int] | int


@dataclass(frozen=True)
class Linear(Trait):
    """The output is linear in some inputs: if a slice of one is scaled, so is a slice of the
    output.

    Args:
        inputs: for each such input, by its role, how dims of the output are made of dims of the
            input. This is a dict from an output dim to the input's dims, slowest first. Dims with
            the same name in both are left out. ``{"w": {"C": "G O"}}``: the output's C consists of
            G and O of input ``w``; ``{"a": {}}``: output and input ``a`` have the same dim names.
    """

    inputs: Mapping[str, Mapping[str, str]] = field(hash=False)


@dataclass(frozen=True)
class Affine(Trait):
    """The output is ``factor * x + shift`` in an input ``x``.

    Args:
        coefficients: called with the instance and an argument for each input: None for ``x``, an
            array for each other input; the arrays broadcast against each other. Returns (factor,
            shift); None if the output is not affine in ``x``.
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
class Encodes(Trait):
    """The operator changes how numbers are stored. Its inputs are the numbers, a scale and, if
    there is one, a zero point; both may vary along dims.

    Args:
        back: False if the operator stores numbers as integers, True if it makes numbers of them.
    """

    back: bool


@dataclass(frozen=True)
class Opaque(Trait):
    """Elements are only passed on, or compared for equality. Numbers may stand for them, as they do
    for texts.
    """


def _same(op: Any, _: object) -> Any:
    return op


@dataclass(frozen=True)
class Moves(Trait):
    """Each element of the output is an element of an input, the largest of some, or the smallest.

    So the operator commutes with any function of elements that never decreases.

    Args:
        inputs: the roles of these inputs; the other inputs decide which elements are taken.
        made: called with the instance and such a function on numbers, which may return None.
            Returns the instance that applies to results of the function; None if there is none.
    """

    inputs: tuple[str, ...] = ("x",)
    made: Callable[[Any, Callable[[float], float | None]], Any] = _same


@dataclass(frozen=True)
class Stretches(Trait):
    """Small outputs have large relative errors, as an exponential's do.

    The relative error of an exponential is the absolute error of its input. At the end of a
    network, the error of such an operator's input is used in place of the error of its output.
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
        steps: called with the instance and the inputs. Returns (n by dim, instance): the returned
            instance computes the same output from every n-th element alone, beginning with the
            first. None if every element is read.
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
