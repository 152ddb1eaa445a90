"""What follows exact sums in the same step: scaling, additions, bounds, and rounding to bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, TypedDict

from libdesc.patterns import OTHER, X, bounds, matched
from ptensor.encoding import integer_range
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from vtensor.language.expression import Expression
from vtensor.language.operators import Follower, info_of
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from ptensor.tensor import PTensor

#: The element types of the factors, and of rounded results.
BYTES = ("u8", "s8")

#: The operands of a follower after ``OTHER``.
SECOND, THIRD, FOURTH, FIFTH = (Expression(index) for index in range(2, 6))

#: The stages of an ending, in order. Their operands are described at the kernels.
ORDER = (
    *("sum", "scale", "code", "decode_zero", "decode_scale", "bias"),
    *("other", "other_zero", "other_scale", "bounds", "step", "zero"),
)


#: The prefixes of zero points, and the stages whose element type they have.
_ZEROS = (("decode", "code"), ("other", "other"))


def _bytes(steps: Expression, dtype: str) -> Expression:
    low, high = integer_range(dtype)
    return steps.max(low).min(high).to(dtype)


def _decoded(codes: Expression, zero: Expression, scale: Expression) -> Expression:
    return (codes.to("f32") - zero.to("f32")) * scale


def _patterns() -> Iterator[tuple[tuple[str, ...], str, Expression]]:
    """Yield what a follower may compute: the stages of its operands, the element type of the value
    that it follows, and its expression.
    """
    yield ("sum",), "s32", X + OTHER
    yield ("scale",), "s32", X * OTHER
    yield ("scale",), "s32", X.to("f32") * OTHER
    yield ("other", "other_zero", "other_scale"), "f32", X + _decoded(OTHER, SECOND, THIRD)
    scaled = (X.to("f32") * OTHER.to("f32")).apply("round")
    divided = (X.to("f32") / OTHER.to("f32")).to("f32").apply("round")
    mine, others = ("decode_scale", "decode_zero"), ("other", "other_scale", "other_zero")
    for dtype in BYTES:
        own, other = _decoded(X, SECOND, OTHER), _decoded(THIRD, FIFTH, FOURTH)
        yield (*mine, *others), dtype, own + other
        own, other = _decoded(X, FIFTH, FOURTH), _decoded(OTHER, THIRD, SECOND)
        yield (*others, *mine), dtype, other + own
        yield ("scale",), "s32", _bytes(scaled, dtype)
        yield ("scale", "zero"), "s32", _bytes(scaled + SECOND, dtype)
        yield ("step",), "f32", divided.to(dtype)
        yield ("step", "zero"), "f32", (divided + SECOND.to("f32")).to(dtype)


#: By what a follower computes, the stages of its operands.
PATTERNS = [*_patterns()]


class Arguments(TypedDict):
    """The arguments of a kernel that describe an ending."""

    stages: list[tuple[str, str, int]]
    to: str
    low: float
    high: float


class Ending:
    """The followers of an exact product, as stages of a kernel.

    Args:
        follow: the fused followers.
        dst: the output of the last follower.
        columns: the dims that each column of the product has, with their sizes.

    Attributes:
        tensors: the operands of the followers, in the order of the stages.
        low, high: bounds of scaled sums.

    Raises:
        Decline: a follower is none of the stages, or comes after a later stage.
    """

    def __init__(
        self, follow: Sequence[Follower], dst: VTensor, columns: Mapping[str, int]
    ) -> None:
        self.dst, self.columns = dst, dict(columns)
        self.low, self.high = -inf, inf
        self.stages: dict[str, VTensor] = {}
        self._past = 0
        self._cast = False
        for follower in follow:
            self._take(follower)
        if self._cast:
            raise Decline("converts no sums without scaling them")
        types = {name: tensor.dtype for name, tensor in self.stages.items()}
        pairs = (("zero", dst.dtype), *((f"{x}_zero", types.get(y)) for x, y in _ZEROS))
        if any(types.get(name, dtype) != dtype for name, dtype in pairs):
            raise Decline("takes zero points of the type of their integers")
        self.stages = {name: self.stages[name] for name in ORDER if name in self.stages}
        self.tensors = tuple(self.stages.values())

    def _take(self, follower: Follower) -> None:
        name = info_of(follower.op).name
        operands = [
            Expression(index, dtype=operand.dtype)
            for index, operand in enumerate(follower.operands, 1)
        ]
        takes = follower.takes or self.dst.dtype
        does = follower.expression(Expression(0, dtype=takes), operands)
        stages = None if does is None else self._stages(takes, follower.operands, does)
        if stages is None or not all(map(self._fits, stages, follower.operands)):
            raise Decline(f"cannot fuse {name} here")
        if takes in BYTES and self.stages.keys() >= {"scale", "zero"} and "step" not in self.stages:
            self.stages["code"] = self.stages.pop("zero")  # not the last rounding
            if self.stages["code"].dtype != takes:
                raise Decline("takes zero points of the type of their integers")
            self._past = ORDER.index("decode_zero")
        places = [ORDER.index(stage) for stage in stages or ([] if self._cast else ["bounds"])]
        if places and min(places) < self._past:
            raise Decline(f"cannot fuse {name} so late")
        self._past = max([place + 1 for place in places], default=self._past)
        self.stages |= dict(zip(stages, follower.operands, strict=True))

    def _stages(
        self, takes: str, operands: Sequence[VTensor], does: Expression
    ) -> tuple[str, ...] | None:
        """Return the stages of a follower's operands; None if it computes something else.

        Args:
            takes: the element type of the value that it follows.
            operands: its other operands.
            does: what it computes.
        """
        if takes == "s32" and not operands and matched(does, X.to("f32")) is not None:
            self._cast = True
            return ()
        if takes == "f32" and self._cast:
            self._cast = False
            return ("scale",) if matched(does, X * OTHER) is not None else None
        if takes == "f32" and not operands and (limits := bounds(does)) is not None:
            if limits.low > limits.high:
                return None
            self.low, self.high = limits
            return ()
        if takes == "f32" and len(operands) == 1 and matched(does, X + OTHER) is not None:
            whole = dict(operands[0].dims) == dict(self.dst.dims)
            return ("other",) if whole else ("bias",)
        return next(
            (
                stages
                for stages, type_, pattern in PATTERNS
                if type_ == takes and len(stages) == len(operands)
                if matched(does, pattern) is not None
            ),
            None,
        )

    def _fits(self, stage: str, operand: VTensor) -> bool:
        """Return whether an operand has the dims and the element type that a stage needs."""
        types = {"sum": ("s32",), "other": ("f32", *BYTES)}
        types |= dict.fromkeys(("decode_zero", "other_zero", "zero"), BYTES)
        if operand.dtype not in types.get(stage, ("f32",)):
            return False
        if stage == "other":
            return dict(operand.dims) == dict(self.dst.dims)
        single = operand.num_elements == 1
        if stage.startswith(("zero", "decode", "other")):
            return single
        return single or dict(operand.dims) == self.columns

    def layouts(self, dst: Layout) -> list[Layout]:
        """Return the layouts of ``tensors``, given that of the output."""
        return [
            dst if stage == "other" else Layout.plain(dim for dim in dst.dims if dim in tensor.dims)
            for stage, tensor in self.stages.items()
        ]

    def arguments(self, tensors: Sequence[PTensor]) -> Arguments:
        """Return the arguments of a kernel that describe the ending.

        Args:
            tensors: the PTensors of ``tensors``.
        """
        rows = zip(self.stages, tensors, strict=True)
        return {
            "stages": [
                (name, tensor.dtype, tensor.required_layout.num_elements(tensor.dims))
                for name, tensor in rows
            ],
            "to": self.dst.dtype,
            "low": self.low,
            "high": self.high,
        }
