"""Optimizers, which update tensors by their gradients: Momentum, Adagrad and Adam."""

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
    """The shared parameters and ``compute`` of optimizers."""

    norm_coefficient: float = param(default=0.0)

    def compute(
        self, ctx: Context, rate: VTensor, count: VTensor, x: VTensor, *rest: VTensor
    ) -> tuple[VTensor, ...]:
        """Return the new x and the new states.

        Args:
            ctx: the context.
            rate: the learning rate.
            count: the number of updates before this one.
            x: the tensor to update.
            rest: its gradient, then its states.
        """
        outputs = [VTensor(t.dtype, t.dims, ctx.output(i)) for i, t in enumerate((x, *rest[1:]))]
        ctx.dispatch(self, [rate, count, x, *rest], outputs)
        return tuple(outputs)

    #: The number of states, tensors that are carried from one update to the next.
    states = 1


S = TypeVar("S", bound=_Step)


def _spelling(cls: type[_Step]) -> Spelling:
    """Return the ONNX spelling of an optimizer, in which one node updates any number of tensors.

    Reading the node adds an operator for each tensor.
    """
    kinds = 2 + cls.states  # tensors, their gradients, their states

    def names(node: Naming) -> None:
        many = (len(node.roles) - 2) // kinds
        for index in range(kinds * many):
            kind, place = divmod(index, many)
            role, output = f"x{2 + index}", f"y{max(kind - 1, 0) * many + place}"
            same_names(node, f"x{2 + place}", role)
            if kind != 1:  # the gradient has no new value
                same_names(node, role, output)

    def read(node: NodeReader) -> Sequence[VTensor]:
        rate, count, *tensors = node.inputs
        if len(tensors) % kinds:
            raise node.refuse(f"{len(tensors)} tensors are not {kinds} for each")
        options = {"nesterov": True} if node.attribute("mode") == "nesterov" else {}
        op = from_attributes(node, cls, **options)
        many, steps = len(tensors) // kinds, list[Any]()
        for place in range(many):
            order = " ".join(tensors[place].dims)
            operands = [node.input(2 + kind * many + place, order) for kind in range(kinds)]
            steps.append(node.add(op, rate, count, *operands))
        return [step[kind] for kind in range(kinds - 1) for step in steps]

    return Spelling(f"ai.onnx.preview.training::{cls.__name__}", 1, read, names)


def _scalars(op: _Step, rate: VTensor, count: VTensor, *_: VTensor) -> bool:
    return rate.num_elements == 1 and count.num_elements == 1


def _sizes_agree(op: _Step, _rate: VTensor, _count: VTensor, x: VTensor, *rest: VTensor) -> bool:
    return len(rest) == op.states + 1 and all(tensor.dims == x.dims for tensor in rest)


@dataclass_transform(frozen_default=True, field_specifiers=(param,))
def _training(cls: type[S]) -> type[S]:
    """Register the class of an optimizer as an operator, and return it."""
    declare = operator(
        cls.__name__,
        dims={"rate": "*", "count": "*", "x": "*", "rest": "*", "*y": "*"},
        holds=[
            (_scalars, "rate and count must be one number each"),
            (_sizes_agree, "there must be a gradient and {op.states} states, of x's sizes"),
        ],
        onnx=_spelling(cls),
    )
    return declare(cls)


@_training
class Momentum(_Step):
    """Update x by gradient descent with momentum v.

    g = gradient + norm_coefficient * x, v' = alpha * v + beta * g (the first time beta is 1),
    x' = x - rate * v', or with Nesterov's momentum x - rate * (g + alpha * v')

    Dims:
        rate: one element    count: one element, the number of earlier updates    x: any
        rest: the gradient and v, as x    y: the new x and v
    Args:
        norm_coefficient: weight of the norm of x.
        alpha: factor of the old v.
        beta: weight of the gradient in v.
        nesterov: use Nesterov's momentum.
    Raises:
        DimError: sizes differ, or rate or count is not one element.

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
        """Return the new x and v; ``g`` is the gradient plus norm_coefficient * x."""
        new = self.alpha * v + np.where(count > 0, self.beta, 1.0) * g
        return x - rate * (g + self.alpha * new if self.nesterov else new), new

    def expressions(
        self, rate: Expression, count: Expression, x: Expression, g: Expression, v: Expression
    ) -> tuple[Expression, ...]:
        """Return the results of ``step`` as expressions of one element."""
        new = self.alpha * v + select(count > 0, self.beta, 1.0) * g
        return x - rate * (g + self.alpha * new if self.nesterov else new), new


@_training
class Adagrad(_Step):
    """Update x by gradient descent with a rate that falls with the sum h of squared gradients.

    g = gradient + norm_coefficient * x, h' = h + g^2,
    x' = x - rate / (1 + count * decay_factor) * g / (sqrt(h') + epsilon)

    Dims:
        rate: one element    count: one element, the number of earlier updates    x: any
        rest: the gradient and h, as x    y: the new x and h
    Args:
        norm_coefficient: weight of the norm of x.
        decay_factor: decay of the rate with each update.
        epsilon: added to the divisor, which it keeps from 0.
    Raises:
        DimError: sizes differ, or rate or count is not one element.

    >>> from vtensor.operators import Context
    >>> one, x = VTensor("f32", {}), VTensor("f32", {"N": 2})
    >>> Adagrad().compute(Context(), one, VTensor("s64", {}), x, x, x)[0].summary()
    'f32 N=2'

    Source: ONNX operator ai.onnx.preview.training Adagrad, version 1.
    """

    decay_factor: float = param(default=0.0)
    epsilon: float = param(default=1e-6)

    def step(self, rate: Array, count: Array, x: Array, g: Array, h: Array) -> tuple[Array, ...]:
        """Return the new x and h; ``g`` is the gradient plus norm_coefficient * x."""
        total = h + g * g
        falling = rate / (1 + count * self.decay_factor)
        return x - falling * g / (np.sqrt(total) + self.epsilon), total

    def expressions(
        self, rate: Expression, count: Expression, x: Expression, g: Expression, h: Expression
    ) -> tuple[Expression, ...]:
        """Return the results of ``step`` as expressions of one element."""
        total = h + g * g
        falling = rate / (1 + count * self.decay_factor)
        return x - falling * g / (total.sqrt() + self.epsilon), total


@_training
class Adam(_Step):
    """Update x by gradient descent along averages v of gradients and h of their squares.

    g = gradient + norm_coefficient * x, v' = alpha * v + (1 - alpha) * g,
    h' = beta * h + (1 - beta) * g^2, x' = (1 - norm_coefficient_post) * (x - r * v' / (sqrt(h') +
    epsilon)), where r is rate * sqrt(1 - beta^count) / (1 - alpha^count), the first time rate

    Dims:
        rate: one element    count: one element, the number of earlier updates
        x: any    rest: the gradient, v and h, as x    y: the new x, v and h
    Args:
        norm_coefficient, norm_coefficient_post: weight of the norm of x before and after the
            update.
        alpha, beta: factors of the old v and h, from 0 to 1.
        epsilon: added to the divisor, which it keeps from 0.
    Raises:
        DimError: sizes differ, or rate or count is not one element.

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
        """Return the new x, v and h; ``g`` is the gradient plus norm_coefficient * x."""
        mean = self.alpha * v + (1 - self.alpha) * g
        square = self.beta * h + (1 - self.beta) * g * g
        if count > 0:
            rate = rate * np.sqrt(1 - self.beta**count) / (1 - self.alpha**count)
        new = x - rate * mean / (np.sqrt(square) + self.epsilon)
        return (1 - self.norm_coefficient_post) * new, mean, square

    def expressions(
        self, rate: Expression, count: Expression, x: Expression, g: Expression, *states: Expression
    ) -> tuple[Expression, ...]:
        """Return the results of ``step`` as expressions of one element."""
        v, h = states
        mean = self.alpha * v + (1 - self.alpha) * g
        square = self.beta * h + (1 - self.beta) * g * g
        corrected = _one_minus_power(self.beta, count).sqrt() / _one_minus_power(self.alpha, count)
        rate = rate * select(count > 0, corrected, 1.0)
        new = x - rate * mean / (square.sqrt() + self.epsilon)
        return (1 - self.norm_coefficient_post) * new, mean, square


def _one_minus_power(decay: float, count: Expression) -> Expression:
    """Return 1 - decay^count for a count above 0, accurate near 0."""
    return -(count * (log(decay) if decay > 0 else -inf)).expm1()


#: The element types that Eigen takes.
_STEPPED = {"": eigen.FRACTIONS, "count": ["s64"]}


def _orders(op: _Step, rate: VTensor, count: VTensor, x: VTensor, *rest: VTensor) -> list[Layout]:
    """Return for each tensor the layout in x's order of dims; rate and count keep their own."""
    return [Layout.plain(t.dims) for t in (rate, count, *[x] * (1 + len(rest)))]


def _result_expression(
    op: Any, result: int, rate: Expression, count: Expression, x: Expression, *rest: Expression
) -> Expression:
    """Return the expression of output number ``result`` of an optimizer: x is 0, states follow."""
    gradient, *states = rest
    g = gradient + op.norm_coefficient * x
    results: tuple[Expression, ...] = op.expressions(rate, count.to("f32"), x, g, *states)
    return results[result]


@invoker("Adagrad", library="eigen", dtypes=_STEPPED)
@invoker("Adam", library="eigen", dtypes=_STEPPED)
@invoker("Momentum", library="eigen", dtypes=_STEPPED)
def eigen_step(ctx: Context, op: Any, *operands: VTensor) -> list[Routine]:
    inputs = 4 + op.states
    results = enumerate(operands[inputs:])
    return [
        eigen.computed(partial(_result_expression, op, i), [*operands[:inputs], y])
        for i, y in results
    ]


@definition("Adagrad", "Adam", "Momentum", dtypes={"": FLOATS, "count": ["s64"]}, orders=_orders)
def training(ctx: Context, op: Any, *operands: PTensor) -> None:
    inputs = 4 + op.states
    rate, count, x, gradient, *states = (wide(t.data()) for t in operands[:inputs])
    g = gradient + op.norm_coefficient * x
    values = op.step(rate.reshape(()), count.reshape(()), x, g, *states)
    for target, value in zip(operands[inputs:], values, strict=True):
        target.data()[...] = value
