"""Steps of training: new values of a tensor and of what is remembered, by its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf, log
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from libdesc import Routine, eigen, invoker
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from ops._names import from_attributes, same_names
from ptensor import Layout, PTensor
from vtensor.language.records import dataclass
from vtensor.operators import (
    Context,
    Expression,
    Naming,
    NodeReader,
    Spelling,
    operator,
    param,
    select,
)
from vtensor.tensor import VTensor


@dataclass(frozen=True)
class _Step:
    """The results of all: new values of x and of each state."""

    norm_coefficient: float = param(default=0.0)

    def compute(
        self, ctx: Context, rate: VTensor, count: VTensor, x: VTensor, *rest: VTensor
    ) -> tuple[VTensor, ...]:
        """New values for x and for each state; ``rest`` begins with the gradient."""
        made = [VTensor(t.dtype, t.dims, ctx.output(i)) for i, t in enumerate((x, *rest[1:]))]
        ctx.dispatch(self, [rate, count, x, *rest], made)
        return tuple(made)

    #: How many tensors are remembered from step to step.
    states = 1


S = TypeVar("S", bound=_Step)


def _spelling(cls: type[_Step]) -> Spelling:
    """One ONNX node holds any number of tensors; each has a step of its own here."""
    kinds = 2 + cls.states  # tensors, their gradients, their states

    def names(node: Naming) -> None:
        many = (len(node.roles) - 2) // kinds
        for index in range(kinds * many):
            kind, place = divmod(index, many)
            role, made = f"x{2 + index}", f"y{max(kind - 1, 0) * many + place}"
            same_names(node, f"x{2 + place}", role)
            if kind != 1:  # the gradient has no new value
                same_names(node, role, made)

    def read(node: NodeReader) -> Sequence[VTensor]:
        rate, count, *rest = node.inputs
        if len(rest) % kinds:
            raise node.refuse(f"{len(rest)} tensors are not {kinds} for each")
        given = {"nesterov": True} if node.attribute("mode") == "nesterov" else {}
        op = from_attributes(node, cls, **given)
        many, steps = len(rest) // kinds, list[Any]()
        for place in range(many):
            order = " ".join(rest[place].dims)
            own = [node.input(2 + kind * many + place, order) for kind in range(kinds)]
            steps.append(node.add(op, rate, count, *own))
        return [step[kind] for kind in range(kinds - 1) for step in steps]

    return Spelling(f"ai.onnx.preview.training::{cls.__name__}", 1, read, names)


def _scalars(op: _Step, rate: VTensor, count: VTensor, *_: VTensor) -> bool:
    return rate.num_elements == 1 and count.num_elements == 1


def _alike(op: _Step, _rate: VTensor, _count: VTensor, x: VTensor, *rest: VTensor) -> bool:
    return len(rest) == op.states + 1 and all(one.dims == x.dims for one in rest)


@dataclass_transform(frozen_default=True, field_specifiers=(param,))
def _training(cls: type[S]) -> type[S]:
    """Register a step of training."""
    declare = operator(
        cls.__name__,
        dims={"rate": "*", "count": "*", "x": "*", "rest": "*", "*y": "*"},
        holds=[
            (_scalars, "rate and count must be one number each"),
            (_alike, "there must be a gradient and {op.states} states, of x's sizes"),
        ],
        onnx=_spelling(cls),
    )
    return declare(cls)


@_training
class Momentum(_Step):
    """A step of gradient descent with momentum v.

    g = gradient + norm_coefficient * x, v' = alpha * v + beta * g (the first time beta is 1),
    x' = x - rate * v', or with Nesterov's momentum x - rate * (g + alpha * v')

    Dims:
        rate: one element    count: one element, the steps before    x: any
        rest: the gradient and v, as x    y: the new x and v
    Args:
        norm_coefficient: weight of the norm of x.
        alpha: what is left of v.
        beta: weight of the gradient in v.
        nesterov: Nesterov's momentum.
    Raises:
        DimError: sizes differ, or there is not one number of each.

    >>> from vtensor.operators import Context
    >>> one, x = VTensor("f32", {}), VTensor("f32", {"N": 2})
    >>> Momentum().compute(Context(), one, VTensor("s64", {}), x, x, x)[0].summary()
    'f32 N=2'

    Source: ONNX operator ai.onnx.preview.training Momentum, version 1.
    """

    alpha: float = param(default=0.9)
    beta: float = param(default=1.0)
    nesterov: bool = param(default=False)

    def step(self, rate: Array, count: Array, x: Array, g: Array, v: Array) -> tuple[Array, ...]:
        """New x and v."""
        new = self.alpha * v + np.where(count > 0, self.beta, 1.0) * g
        return x - rate * (g + self.alpha * new if self.nesterov else new), new

    def expressions(
        self, rate: Expression, count: Expression, x: Expression, g: Expression, v: Expression
    ) -> tuple[Expression, ...]:
        """The same of each element."""
        new = self.alpha * v + select(count > 0, self.beta, 1.0) * g
        return x - rate * (g + self.alpha * new if self.nesterov else new), new


@_training
class Adagrad(_Step):
    """A step of gradient descent by a rate that falls with the sum h of squared gradients.

    g = gradient + norm_coefficient * x, h' = h + g^2,
    x' = x - rate / (1 + count * decay_factor) * g / (sqrt(h') + epsilon)

    Dims:
        rate: one element    count: one element, the steps before    x: any
        rest: the gradient and h, as x    y: the new x and h
    Args:
        norm_coefficient: weight of the norm of x.
        decay_factor: by how much the rate falls from step to step.
        epsilon: keeps the divisor from 0.
    Raises:
        DimError: sizes differ, or there is not one number of each.

    >>> from vtensor.operators import Context
    >>> one, x = VTensor("f32", {}), VTensor("f32", {"N": 2})
    >>> Adagrad().compute(Context(), one, VTensor("s64", {}), x, x, x)[0].summary()
    'f32 N=2'

    Source: ONNX operator ai.onnx.preview.training Adagrad, version 1.
    """

    decay_factor: float = param(default=0.0)
    epsilon: float = param(default=1e-6)

    def step(self, rate: Array, count: Array, x: Array, g: Array, h: Array) -> tuple[Array, ...]:
        """New x and h."""
        total = h + g * g
        falling = rate / (1 + count * self.decay_factor)
        return x - falling * g / (np.sqrt(total) + self.epsilon), total

    def expressions(
        self, rate: Expression, count: Expression, x: Expression, g: Expression, h: Expression
    ) -> tuple[Expression, ...]:
        """The same of each element."""
        total = h + g * g
        falling = rate / (1 + count * self.decay_factor)
        return x - falling * g / (total.sqrt() + self.epsilon), total


@_training
class Adam(_Step):
    """A step of gradient descent by the averages v and h of gradients and of their squares.

    g = gradient + norm_coefficient * x, v' = alpha * v + (1 - alpha) * g,
    h' = beta * h + (1 - beta) * g^2, x' = (1 - norm_coefficient_post) * (x - r * v' / (sqrt(h') +
    epsilon)), where r is rate, after the first step * sqrt(1 - beta^count) / (1 - alpha^count)

    Dims:
        rate: one element    count: one element, the steps before
        x: any    rest: the gradient, v and h, as x    y: the new x, v and h
    Args:
        norm_coefficient, norm_coefficient_post: weight of the norm of x before and after the step.
        alpha, beta: what is left of v and h, from 0 to 1.
        epsilon: keeps the divisor from 0.
    Raises:
        DimError: sizes differ, or there is not one number of each.

    >>> from vtensor.operators import Context
    >>> one, x = VTensor("f32", {}), VTensor("f32", {"N": 2})
    >>> Adam().compute(Context(), one, VTensor("s64", {}), x, x, x, x)[0].summary()
    'f32 N=2'

    Source: ONNX operator ai.onnx.preview.training Adam, version 1.
    """

    states = 2
    alpha: float = param(default=0.9, minimum=0, maximum=1)
    beta: float = param(default=0.999, minimum=0, maximum=1)
    epsilon: float = param(default=1e-6)
    norm_coefficient_post: float = param(default=0.0)

    def step(
        self, rate: Array, count: Array, x: Array, g: Array, v: Array, h: Array
    ) -> tuple[Array, ...]:
        """New x, v and h."""
        mean = self.alpha * v + (1 - self.alpha) * g
        square = self.beta * h + (1 - self.beta) * g * g
        if count > 0:
            rate = rate * np.sqrt(1 - self.beta**count) / (1 - self.alpha**count)
        new = x - rate * mean / (np.sqrt(square) + self.epsilon)
        return (1 - self.norm_coefficient_post) * new, mean, square

    def expressions(
        self, rate: Expression, count: Expression, x: Expression, g: Expression, *states: Expression
    ) -> tuple[Expression, ...]:
        """The same of each element."""
        v, h = states
        mean = self.alpha * v + (1 - self.alpha) * g
        square = self.beta * h + (1 - self.beta) * g * g
        corrected = _left(self.beta, count).sqrt() / _left(self.alpha, count)
        rate = rate * select(count > 0, corrected, 1.0)
        new = x - rate * mean / (square.sqrt() + self.epsilon)
        return (1 - self.norm_coefficient_post) * new, mean, square


def _left(decay: float, count: Expression) -> Expression:
    """1 - decay^count, exact where that is near 0; of a count above 0."""
    return -(count * (log(decay) if decay > 0 else -inf)).expm1()


#: Of the tensors, and of the count.
_STEPPED = {"": eigen.FRACTIONS, "count": ["s64"]}


def _orders(op: _Step, rate: VTensor, count: VTensor, x: VTensor, *rest: VTensor) -> list[Layout]:
    """All tensors in x's order of dims."""
    return [Layout.plain(t.dims) for t in (rate, count, *[x] * (1 + len(rest)))]


def _new(
    op: Any, result: int, rate: Expression, count: Expression, x: Expression, *rest: Expression
) -> Expression:
    """What a step makes of each element: one of its results."""
    gradient, *states = rest
    g = gradient + op.norm_coefficient * x
    made: tuple[Expression, ...] = op.expressions(rate, count.to("f32"), x, g, *states)
    return made[result]


@invoker("Adagrad", library="eigen", dtypes=_STEPPED)
@invoker("Adam", library="eigen", dtypes=_STEPPED)
@invoker("Momentum", library="eigen", dtypes=_STEPPED)
def eigen_step(ctx: Context, op: Any, *operands: VTensor) -> list[Routine]:
    given = 4 + op.states
    results = enumerate(operands[given:])
    return [eigen.computed(partial(_new, op, i), [*operands[:given], y]) for i, y in results]


@definition("Adagrad", "Adam", "Momentum", dtypes={"": FLOATS, "count": ["s64"]}, orders=_orders)
def training(ctx: Context, op: Any, *operands: PTensor) -> None:
    given = 4 + op.states
    rate, count, *own = (wide(t.data()) for t in operands[:given])
    x, gradient, *states = own
    g = gradient + op.norm_coefficient * x
    values = op.step(rate.reshape(()), count.reshape(()), x, g, *states)
    for target, value in zip(operands[given:], values, strict=True):
        target.data()[...] = value
