"""Traits: what an operator declares of itself beside its dims, for passes that know no operator.

``@operator(..., traits=[Elementwise(), Cost(1)])``; ``info_of(op).trait(Cost)`` finds one again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vtensor.errors import GraphError

if TYPE_CHECKING:
    from vtensor.tensor import VTensor


class Trait:
    """Base of all traits; an operator has at most one of a kind."""


@dataclass(frozen=True)
class Elementwise(Trait):
    """The value at a place depends only on the inputs' values at that place."""


#: What ``Structural`` may say; ``rename`` takes ((old, new), ...), ``reshape`` takes
#: ((name, size), ...), ``slice`` axes and their starts, ends and steps, ``bias`` nothing: it adds
#: its second operand along that one's dims. The others are added as ONNX spells them first.
STRUCTURAL = ("rename", "reshape", "identity", "concat", "gather", "bias", "slice")

#: Those whose output is their input's memory under other dims.
VIEWS = ("rename", "reshape", "identity")


@dataclass(frozen=True)
class Structural(Trait):
    """The operator by which the front door does such a thing itself: a kind of ``STRUCTURAL``.

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
    """Operations on numbers (sums, products, comparisons, functions alike) of a call.

    Args:
        count: a number for each element of the first input, or a function that counts them:
            ``(op, *inputs, *outputs) -> int``.
    """

    count: Callable[..., int] | int


@dataclass(frozen=True)
class Linear(Trait):
    """The inputs in which the output is linear: slices of one that are scaled scale the output's.

    Args:
        inputs: by role, dims of the output with those that make them up in that input, slowest
            first, where they have other names: ``{"w": {"C": "G O"}}``.
    """

    inputs: Mapping[str, Mapping[str, str]] = field(hash=False)


@dataclass(frozen=True)
class Affine(Trait):
    """The output is ``factor * x + shift`` in one of the inputs.

    Args:
        coefficients: given the instance and the inputs, None for x, the others as arrays that
            broadcast, returns the two; or None where the output is not affine in that input.
    """

    coefficients: Callable[..., tuple[Any, Any] | None]


@dataclass(frozen=True)
class Clamp:
    """What a follower does: min(max(x, low), high); NaN stays NaN."""

    low: float
    high: float


@dataclass(frozen=True)
class Plus:
    """What a follower does: x plus its other operand, their dims meeting by name."""


@dataclass(frozen=True)
class Post(Trait):
    """It may be fused behind another operator.

    Args:
        effect: what an instance does to its one operand that is not stored yet.
    """

    effect: Callable[[Any], Clamp | Plus]


@dataclass(frozen=True)
class Picks(Trait):
    """It may read only some elements of its first input: from the first on, one in every step.

    Args:
        steps: given the instance and the inputs, returns the steps by dim, and what does the same
            to the elements picked; else None.
    """

    steps: Callable[..., tuple[Mapping[str, int], Any] | None]


@dataclass(frozen=True)
class Thins(Trait):
    """It can compute only some elements of its output: from the first on, one in every step.

    Args:
        make: given the instance, the first input and the steps by dim, returns the instance that
            does so.
    """

    make: Callable[[Any, VTensor, Mapping[str, int]], Any]
