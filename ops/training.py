"""Steps of training: new values of a tensor and of what is remembered, by its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, wide
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]


def _spelling(op_type: str, states: int, make: Callable[[NodeReader], object]) -> Spelling:
    """One ONNX node holds any number of tensors; each has a step of its own here."""

    def names(node: Naming) -> None:
        many = (len(node.roles) - 2) // (2 + states)
        for place in range(many):
            for kind in range(2 + states):
                role = f"x{2 + kind * many + place}"
                for position in range(node.rank(role)):
                    node.same(f"x{2 + place}", position, role, position)
                    if kind != 1:  # the gradient has no new value
                        made = f"y{max(kind - 1, 0) * many + place}"
                        node.same(role, position, made, position)

    def read(node: NodeReader) -> Sequence[VTensor]:
        rate, count, *rest = node.inputs
        if len(rest) % (2 + states):
            raise node.refuse(f"{len(rest)} tensors are not {2 + states} for each")
        many, op = len(rest) // (2 + states), make(node)
        steps: list[Any] = []
        for place in range(many):
            order = " ".join(rest[place].dims)
            own = [node.input(2 + kind * many + place, order) for kind in range(2 + states)]
            steps.append(node.add(op, rate, count, *own))
        return [step[kind] for kind in range(1 + states) for step in steps]

    return Spelling(f"ai.onnx.preview.training::{op_type}", 1, read, names)


@dataclass(frozen=True)
class _Step:
    """The results of all: new values of x and of each state."""

    norm_coefficient: float = param(default=0.0)

    def compute(
        self, ctx: Context, rate: VTensor, count: VTensor, x: VTensor, *rest: VTensor
    ) -> tuple[VTensor, ...]:
        """New values for x and for each state; ``rest`` begins with the gradient."""
        if rate.num_elements != 1 or count.num_elements != 1:
            raise DimError("rate and count must be one number each")
        if any(one.dims != x.dims for one in rest) or len(rest) != self.states + 1:
            raise DimError(f"there must be a gradient and {self.states} states, of x's sizes")
        made = [VTensor(t.dtype, t.dims, ctx.output(i)) for i, t in enumerate((x, *rest[1:]))]
        ctx.dispatch(self, [rate, count, x, *rest], made)
        return tuple(made)

    #: How many tensors are remembered from step to step.
    states = 1


_DIMS = {"rate": "*", "count": "*", "x": "*", "rest": "*", "*y": "*"}


@operator(
    "Momentum",
    dims=_DIMS,
    onnx=_spelling(
        "Momentum",
        1,
        lambda node: Momentum(
            float(node.attribute("norm_coefficient")),
            float(node.attribute("alpha")),
            float(node.attribute("beta")),
            node.attribute("mode") == "nesterov",
        ),
    ),
)
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
        g = g + self.norm_coefficient * x
        new = self.alpha * v + np.where(count > 0, self.beta, 1.0) * g
        return x - rate * (g + self.alpha * new if self.nesterov else new), new


@operator(
    "Adagrad",
    dims=_DIMS,
    onnx=_spelling(
        "Adagrad",
        1,
        lambda node: Adagrad(
            float(node.attribute("norm_coefficient", 0.0)),
            float(node.attribute("decay_factor", 0.0)),
            float(node.attribute("epsilon", 1e-6)),
        ),
    ),
)
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
        g = g + self.norm_coefficient * x
        total = h + g * g
        falling = rate / (1 + count * self.decay_factor)
        return x - falling * g / (np.sqrt(total) + self.epsilon), total


@operator(
    "Adam",
    dims=_DIMS,
    onnx=_spelling(
        "Adam",
        2,
        lambda node: Adam(
            float(node.attribute("norm_coefficient", 0.0)),
            float(node.attribute("alpha", 0.9)),
            float(node.attribute("beta", 0.999)),
            float(node.attribute("epsilon", 1e-6)),
            float(node.attribute("norm_coefficient_post", 0.0)),
        ),
    ),
)
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
        alpha, beta: what is left of v and h.
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
    alpha: float = param(default=0.9)
    beta: float = param(default=0.999)
    epsilon: float = param(default=1e-6)
    norm_coefficient_post: float = param(default=0.0)

    def step(
        self, rate: Array, count: Array, x: Array, g: Array, v: Array, h: Array
    ) -> tuple[Array, ...]:
        """New x, v and h."""
        g = g + self.norm_coefficient * x
        mean = self.alpha * v + (1 - self.alpha) * g
        square = self.beta * h + (1 - self.beta) * g * g
        if count > 0:
            rate = rate * np.sqrt(1 - self.beta**count) / (1 - self.alpha**count)
        new = x - rate * mean / (np.sqrt(square) + self.epsilon)
        return (1 - self.norm_coefficient_post) * new, mean, square


def _numpy(name: str) -> None:
    @invoker(name, library="numpy", dtypes={"": FLOATS, "count": ["s64"]}, python=True)
    def run(
        ctx: Context, op: Any, rate: VTensor, count: VTensor, x: VTensor, *rest: VTensor
    ) -> None:
        order, given = Layout.plain(x.dims), op.states + 1
        numbers = [PTensor(t).require(Layout.plain(t.dims)) for t in (rate, count)]
        own = [PTensor(t).require(order) for t in (x, *rest[:given])]
        made = [PTensor(t).require(order) for t in rest[given:]]
        if lib_tagger("numpy", [*numbers, *own], made):
            return
        scalars = (wide(t.data()).reshape(()) for t in numbers)
        values = op.step(*scalars, *(wide(t.data()) for t in own))
        for target, value in zip(made, values, strict=True):
            target.data()[...] = value


for _name in ("Adagrad", "Adam", "Momentum"):
    _numpy(_name)
