"""Networks that go along a sequence and carry a state: LSTM, GRU and the plain one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from ptensor import PTensor
from vtensor.operators import Context, Cost, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor

States = tuple[Array, ...]
#: A function's name, and its alpha and beta.
Activation = tuple[str, float, float]

#: What may be given beside x, w and r: the place of each in ONNX, and its dims.
OPTIONAL = {
    "bias": (3, "dir both"),
    "lengths": (4, "N"),
    "hidden": (5, "dir N unit"),
    "cell": (6, "dir N unit"),
    "peepholes": (7, "dir peephole"),
}

#: By ONNX's name in lower case: the function of x, alpha and beta, and the values of those of the
#: two that it has, where a node gives none.
_FUNCTIONS: dict[str, tuple[Callable[[Array, float, float], Any], tuple[float, ...]]] = {
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "elu": (lambda x, a, _: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), (1.0,)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "leakyrelu": (lambda x, a, _: np.where(x >= 0, x, a * x), (0.01,)),
    "relu": (lambda x, _, __: np.maximum(x, 0), ()),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "sigmoid": (lambda x, _, __: 0.5 * (1 + np.tanh(x / 2)), ()),
    "softplus": (lambda x, _, __: np.logaddexp(x, 0), ()),
    "softsign": (lambda x, _, __: x / (1 + np.abs(x)), ()),
    "tanh": (lambda x, _, __: np.tanh(x), ()),
    "thresholdedrelu": (lambda x, a, _: np.where(x > a, x, 0), (1.0,)),
}


@dataclass(frozen=True)
class _Recurrent:
    """The parameters and the results of all."""

    activations: tuple[Activation, ...] = param()
    direction: str = param(default="forward", choices=("forward", "reverse", "bidirectional"))
    clip: float = param(default=0.0, minimum=0)
    given: tuple[str, ...] = param(default=())

    #: Rows in w for each unit, the states that are carried, and the functions, by ONNX's default.
    gates: ClassVar[int]
    states: ClassVar[tuple[str, ...]] = ("hidden",)
    functions: ClassVar[tuple[str, ...]]

    def compute(
        self, ctx: Context, x: VTensor, w: VTensor, r: VTensor, *more: VTensor
    ) -> tuple[VTensor, ...]:
        """The hidden state at each time, and the last states."""
        state = {"dir": w.size("dir"), "N": x.size("N"), "unit": r.size("unit")}
        y = VTensor(x.dtype, {"T": x.size("T"), **state}, ctx.output(0))
        last = [VTensor(x.dtype, state, ctx.output(1 + i)) for i in range(len(self.states))]
        ctx.dispatch(self, [x, w, r, *more], [y, *last])
        return y, *last

    @property
    def directions(self) -> int:
        """One or two."""
        return 1 + (self.direction == "bidirectional")

    @property
    def count(self) -> int:
        """The functions of each direction."""
        return len(self.functions)


R = TypeVar("R", bound=_Recurrent)


def _positions(batch_first: bool) -> dict[str, str]:
    """How ONNX's positions are called."""
    state = "N dir unit" if batch_first else "dir N unit"
    x, y = ("N T F", "N T dir unit") if batch_first else ("T N F", "T dir N unit")
    names = {f"x{place}": dims for place, dims in OPTIONAL.values()}
    names |= {"x0": x, "x1": "dir gate F", "x2": "dir gate unit", "y0": y}
    return names | dict.fromkeys(("x5", "x6", "y1", "y2"), state)


def _names(node: Naming) -> None:
    for role, names in _positions(bool(node.attribute("layout", 0))).items():
        node.name(role, names)


def _activations(node: NodeReader, defaults: Sequence[str]) -> Iterator[Activation]:
    """The functions of each direction, one direction after another."""
    names = [name.lower() for name in node.attribute("activations") or defaults]
    if unknown := [name for name in names if name not in _FUNCTIONS]:
        raise node.refuse(f"activations {unknown}")
    given = [list(node.attribute(f"activation_{which}") or ()) for which in ("alpha", "beta")]
    for name in names:
        own = [0.0, 0.0]
        for place, value in enumerate(_FUNCTIONS[name][1]):
            own[place] = float(given[place].pop(0)) if given[place] else value
        yield name, own[0], own[1]


def _read(node: NodeReader, cls: type[_Recurrent]) -> Sequence[VTensor]:
    names = _positions(bool(node.attribute("layout", 0)))
    given = tuple(name for name, (place, _) in OPTIONAL.items() if node.has(place))
    places = [0, 1, 2, *(OPTIONAL[name][0] for name in given)]
    inputs = [node.input(place, names[f"x{place}"]) for place in places]
    direction, clip = node.attribute("direction", "forward"), float(node.attribute("clip") or 0.0)
    functions = cls.functions * (1 + (direction == "bidirectional"))
    flags = ("input_forget", "linear_before_reset")
    own = {name: True for name in flags if node.attribute(name, 0)}
    op = cls(tuple(_activations(node, functions)), direction, clip, given, **own)
    outputs: Any = node.add(op, *inputs)
    return list(outputs)


def _given_fit(op: _Recurrent, x: VTensor, w: VTensor, r: VTensor, *more: VTensor) -> bool:
    units = r.size("unit")
    sizes = {**w.dims, "N": x.size("N"), "unit": units}
    sizes |= {"both": 2 * w.size("gate"), "peephole": 3 * units}
    rows = [{dim: sizes[dim] for dim in OPTIONAL[name][1].split()} for name in op.given]
    return [dict(one.dims) for one in more] == rows


def _directions_fit(op: _Recurrent, _: VTensor, w: VTensor, *__: VTensor) -> bool:
    return (w.size("dir"), len(op.activations)) == (op.directions, op.directions * op.count)


def _cost(_op: object, x: VTensor, w: VTensor, r: VTensor, *_: VTensor) -> int:
    """A product and a sum for each weight, at each time; what gates do to units is left out."""
    return 2 * x.size("T") * x.size("N") * (w.num_elements + r.num_elements)


def _recurrent(cls: type[R]) -> type[R]:
    """Register a network that carries a state."""
    name, gates = cls.__name__, f"r.unit * {cls.gates}"
    dims = {"x": "T N F", "w": "dir gate F", "r": "dir gate unit", "more": "*", "y": "T dir N unit"}
    needs = "{op.direction} needs dir={op.directions}, and {op.count} activations each"
    fits = "the dims of {op.given} must be those of x, w and r"
    declare = operator(
        name,
        dims=dims | dict.fromkeys(cls.states, "dir N unit"),
        equal=[("x.F", "w.F"), ("w.dir", "r.dir"), ("w.gate", "r.gate"), ("w.gate", gates)],
        holds=[(_given_fit, fits), (_directions_fit, needs)],
        onnx=Spelling(name, 7, lambda node: _read(node, cls), _names),
        traits=[Cost(_cost)],
    )
    return declare(cls)


@dataclass(frozen=True)
class _Cell:
    """One direction: of x and of h, weights and biases, a row for every gate; and functions."""

    weights: Sequence[Array]
    biases: Array
    peepholes: Array
    activations: Sequence[Activation]
    clip: float

    def part(self, which: int, side: int, values: Array) -> Array:
        """What goes into a gate from x (side 0) or from h (1)."""
        return np.asarray(values @ self.weights[side][which].T + self.biases[side][which])

    def gate(self, which: int, x: Array, h: Array) -> Array:
        """What goes into a gate."""
        return self.part(which, 0, x) + self.part(which, 1, h)

    def apply(self, which: int, x: Array) -> Array:
        """One of the functions, of a clipped value."""
        name, alpha, beta = self.activations[which]
        clipped = np.clip(x, -self.clip, self.clip) if self.clip else x
        return np.asarray(_FUNCTIONS[name][0](clipped, alpha, beta))


@_recurrent
class RNN(_Recurrent):
    """Go along a sequence and carry a hidden state h.

    h' = f(w x + r h + biases)

    Dims:
        x: T N F    w: dir gate F    r: dir gate unit, gate being unit
        more: any of bias, dir both (w's, then r's), lengths, N, and the first hidden, dir N unit
        y: T dir N unit, the hidden state at each time    hidden: dir N unit, the last
    Args:
        activations: f of each direction, with alpha and beta.
        direction: ``forward``, ``reverse`` or ``bidirectional``, which is two.
        clip: what goes into f is at most this far from 0; 0: as it is.
        given: the names of more.
    Raises:
        DimError: sizes do not fit together, or there are not as many activations.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"T": 9, "N": 2, "F": 3})
    >>> w, r = (VTensor("f32", {"dir": 1, "gate": 5, **d}) for d in ({"F": 3}, {"unit": 5}))
    >>> [t.summary() for t in RNN((("tanh", 0.0, 0.0),)).compute(Context(), x, w, r)]
    ['f32 T=9 dir=1 N=2 unit=5', 'f32 dir=1 N=2 unit=5']

    Source: ONNX operator RNN, opset 22.
    """

    gates, functions = 1, ("tanh",)

    def step(self, cell: _Cell, x: Array, h: Array) -> States:
        """The state after one more element."""
        return (cell.apply(0, cell.gate(0, x, h)),)


@_recurrent
class GRU(_Recurrent):
    """Go along a sequence and carry a hidden state h, which gates update (z) and reset (r).

    z = f(gate z), r = f(gate r), n = g(w x + r (reset * h) + biases), h' = (1 - z) * n + z * h

    Dims:
        x: T N F    w: dir gate F    r: dir gate unit, gate being z, r and n of each unit
        more: any of bias, dir both (w's, then r's), lengths, N, and the first hidden, dir N unit
        y: T dir N unit, the hidden state at each time    hidden: dir N unit, the last
    Args:
        activations: f and g of each direction, with alpha and beta.
        direction: ``forward``, ``reverse`` or ``bidirectional``, which is two.
        clip: what goes into f and g is at most this far from 0; 0: as it is.
        given: the names of more.
        linear_before_reset: what is reset is r h with its bias, not h.
    Raises:
        DimError: sizes do not fit together, or there are not as many activations.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"T": 9, "N": 2, "F": 3})
    >>> w, r = (VTensor("f32", {"dir": 1, "gate": 15, **d}) for d in ({"F": 3}, {"unit": 5}))
    >>> op = GRU((("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)))
    >>> [t.summary() for t in op.compute(Context(), x, w, r)]
    ['f32 T=9 dir=1 N=2 unit=5', 'f32 dir=1 N=2 unit=5']

    Source: ONNX operator GRU, opset 22.
    """

    gates, functions = 3, ("sigmoid", "tanh")
    linear_before_reset: bool = param(default=False)

    def step(self, cell: _Cell, x: Array, h: Array) -> States:
        """The state after one more element."""
        update, reset = (cell.apply(0, cell.gate(i, x, h)) for i in range(2))
        linear = self.linear_before_reset
        hidden = reset * cell.part(2, 1, h) if linear else cell.part(2, 1, reset * h)
        return ((1 - update) * cell.apply(1, cell.part(2, 0, x) + hidden) + update * h,)


@_recurrent
class LSTM(_Recurrent):
    """Go along a sequence and carry a hidden state h and a cell c, behind three gates.

    i = f(gate i + p_i c), forget = f(gate forget + p_forget c), c' = forget * c + i * g(gate c),
    o = f(gate o + p_o c'), h' = o * last(c')

    Dims:
        x: T N F    w: dir gate F    r: dir gate unit, gate being i, o, forget and c of each unit
        more: any of bias, dir both (w's, then r's), lengths, N, the first hidden and the first
            cell, dir N unit, and peepholes p, dir peephole (i, o and forget of each unit)
        y: T dir N unit, the hidden state at each time    hidden, cell: dir N unit, the last
    Args:
        activations: f, g and last of each direction, with alpha and beta.
        direction: ``forward``, ``reverse`` or ``bidirectional``, which is two.
        clip: what goes into f and g is at most this far from 0; 0: as it is.
        given: the names of more.
        input_forget: forget is 1 - i.
    Raises:
        DimError: sizes do not fit together, or there are not as many activations.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"T": 9, "N": 2, "F": 3})
    >>> w, r = (VTensor("f32", {"dir": 1, "gate": 20, **d}) for d in ({"F": 3}, {"unit": 5}))
    >>> op = LSTM((("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0)))
    >>> [t.summary() for t in op.compute(Context(), x, w, r)][1:]
    ['f32 dir=1 N=2 unit=5', 'f32 dir=1 N=2 unit=5']

    Source: ONNX operator LSTM, opset 22.
    """

    gates, states, functions = 4, ("hidden", "cell"), ("sigmoid", "tanh", "tanh")
    input_forget: bool = param(default=False)

    def step(self, cell: _Cell, x: Array, h: Array, c: Array) -> States:
        """The states after one more element."""
        inward, outward, forget, content = (cell.gate(i, x, h) for i in range(4))
        p = cell.peepholes
        i = cell.apply(0, inward + p[0] * c)
        kept = 1 - i if self.input_forget else cell.apply(0, forget + p[2] * c)
        new = kept * c + i * cell.apply(1, content)
        return cell.apply(0, outward + p[1] * new) * cell.apply(2, new), new


def _cells(op: Any, w: Array, r: Array, more: dict[str, Array]) -> Iterator[_Cell]:
    """Each direction."""
    directions, units = len(w), r.shape[-1]
    rows = (op.gates, units)
    none = np.zeros((directions, 2 * w.shape[1] + 3 * units), w.dtype)
    biases = more.get("bias", none[:, : 2 * w.shape[1]]).reshape(directions, 2, *rows)
    peepholes = more.get("peepholes", none[:, : 3 * units]).reshape(directions, 3, units)
    for d in range(directions):
        weights = [t[d].reshape(*rows, t.shape[-1]) for t in (w, r)]
        own = op.activations[d * op.count :][: op.count]
        yield _Cell(weights, biases[d], peepholes[d], own, op.clip)


def _run(
    op: Any, x: Array, w: Array, r: Array, more: dict[str, Array]
) -> tuple[Array, list[Array]]:
    """The hidden state at each time (T dir N unit), then each last state (dir N unit).

    Beyond the end of a sequence its states stay, and what is hidden is 0.
    """
    times, batch = x.shape[:2]
    y = np.zeros((times, len(w), batch, r.shape[-1]), x.dtype)
    last = [more.get(name, np.zeros(y.shape[1:], x.dtype)).copy() for name in op.states]
    lengths = more.get("lengths", np.full(batch, times))
    for direction, cell in enumerate(_cells(op, w, r, more)):
        backwards = op.direction == "reverse" or direction == 1
        states: States = tuple(state[direction] for state in last)
        for t in range(times)[:: -1 if backwards else 1]:
            there = (t < lengths)[:, np.newaxis]
            pairs = zip(op.step(cell, x[t], *states), states, strict=True)
            states = tuple(np.where(there, new, old) for new, old in pairs)
            y[t, direction] = np.where(there, states[0], 0)
        for state, values in zip(last, states, strict=True):
            state[direction] = values
    return y, last


def _orders(op: _Recurrent, *_: VTensor) -> list[str]:
    given = [OPTIONAL[name][1] for name in op.given]
    outputs = ["T dir N unit", *["dir N unit"] * len(op.states)]
    return ["T N F", "dir gate F", "dir gate unit", *given, *outputs]


_TYPES = {"": FLOATS, "more": (*FLOATS, "s32", "s64")}


@definition("RNN", "GRU", "LSTM", dtypes=_TYPES, orders=_orders)
def recurrent(ctx: Context, op: Any, *operands: PTensor) -> None:
    inputs = 3 + len(op.given)
    x, w, r, *more = (wide(t.data()) for t in operands[:inputs])
    y, last = _run(op, x, w, r, dict(zip(op.given, more, strict=True)))
    for target, values in zip(operands[inputs:], (y, *last), strict=True):
        target.data()[...] = values
