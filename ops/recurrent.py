"""Networks that go along a sequence and carry a state: LSTM, GRU and the plain one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, wide
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Cost, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]
States = tuple[Array, ...]
#: A function's name, and its alpha and beta.
Activation = tuple[str, float, float]

#: What may be given beside x, w and r: the place of each in ONNX, its dims, and what it is.
OPTIONAL = {
    "bias": (3, "dir both"),
    "lengths": (4, "N"),
    "hidden": (5, "dir N unit"),
    "cell": (6, "dir N unit"),
    "peepholes": (7, "dir peephole"),
}

#: By ONNX's name in lower case: the function of x, alpha and beta.
_FUNCTIONS: dict[str, Callable[[Array, float, float], Any]] = {
    "affine": lambda x, a, b: a * x + b,
    "elu": lambda x, a, _: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "leakyrelu": lambda x, a, _: np.where(x >= 0, x, a * x),
    "relu": lambda x, _, __: np.maximum(x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "sigmoid": lambda x, _, __: 0.5 * (1 + np.tanh(x / 2)),
    "softplus": lambda x, _, __: np.logaddexp(x, 0),
    "softsign": lambda x, _, __: x / (1 + np.abs(x)),
    "tanh": lambda x, _, __: np.tanh(x),
    "thresholdedrelu": lambda x, a, _: np.where(x > a, x, 0),
}

#: Alpha, or alpha and beta, of those that have any, where a node gives none.
_DEFAULTS: dict[str, tuple[float, ...]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0,),
}


def _names(node: Naming) -> None:
    batch_first = bool(node.attribute("layout", 0))
    for role, names in _positions(batch_first).items():
        node.name(role, names)


def _positions(batch_first: bool) -> dict[str, str]:
    """How ONNX's positions are called."""
    state = "N dir unit" if batch_first else "dir N unit"
    names = {f"x{place}": dims for place, dims in OPTIONAL.values()}
    return names | {
        "x0": "N T F" if batch_first else "T N F",
        "x1": "dir gate F",
        "x2": "dir gate unit",
        "x5": state,
        "x6": state,
        "y0": "N T dir unit" if batch_first else "T dir N unit",
        "y1": state,
        "y2": state,
    }


def _activations(node: NodeReader, count: int, defaults: Sequence[str]) -> tuple[Activation, ...]:
    """The functions of each direction, one direction after another."""
    names = [name.lower() for name in node.attribute("activations") or [*defaults] * count]
    if unknown := [name for name in names if name not in _FUNCTIONS]:
        raise node.refuse(f"activations {unknown}")
    alphas, betas = (list(node.attribute(f"activation_{n}") or ()) for n in ("alpha", "beta"))
    rows: list[Activation] = []
    for name in names:
        own = [*_DEFAULTS.get(name, ()), 0.0, 0.0][:2]
        for place, given in enumerate((alphas, betas)):
            if given and place < len(_DEFAULTS.get(name, ())):
                own[place] = float(given.pop(0))
        rows.append((name, own[0], own[1]))
    return tuple(rows)


def _spelling(op_type: str, make: Callable[..., object], defaults: Sequence[str]) -> Spelling:
    def read(node: NodeReader) -> Sequence[VTensor]:
        names = _positions(bool(node.attribute("layout", 0)))
        given = [name for name, (place, _) in OPTIONAL.items() if node.has(place)]
        places = [0, 1, 2, *(OPTIONAL[name][0] for name in given)]
        inputs = [node.input(place, names[f"x{place}"]) for place in places]
        direction = node.attribute("direction", "forward")
        parameters = {
            "direction": direction,
            "activations": _activations(node, 1 + (direction == "bidirectional"), defaults),
            "clip": float(node.attribute("clip") or 0.0),
            "given": tuple(given),
        }
        for name in ("input_forget", "linear_before_reset"):
            if node.attribute(name, 0):
                parameters[name] = True
        outputs: Any = node.add(make(**parameters), *inputs)
        return list(outputs)

    return Spelling(op_type, 7, read, _names)


def _dims(last: Sequence[str]) -> dict[str, str]:
    rows = {"x": "T N F", "w": "dir gate F", "r": "dir gate unit", "more": "*", "y": "T dir N unit"}
    return rows | dict.fromkeys(last, "dir N unit")


def _equal(gates: int) -> list[tuple[str, str]]:
    return [
        ("x.F", "w.F"),
        ("w.dir", "r.dir"),
        ("w.gate", "r.gate"),
        ("w.gate", f"r.unit * {gates}"),
    ]


def _cost(_op: object, x: VTensor, w: VTensor, r: VTensor, *_: VTensor) -> int:
    """A product and a sum for each weight, at each time; what gates do to units is left out."""
    return 2 * x.size("T") * x.size("N") * (w.num_elements + r.num_elements)


@dataclass(frozen=True)
class _Recurrent:
    """The parameters and the results of all."""

    activations: tuple[Activation, ...] = param()
    direction: str = param(default="forward", choices=("forward", "reverse", "bidirectional"))
    clip: float = param(default=0.0, minimum=0)
    given: tuple[str, ...] = param(default=())

    def compute(
        self, ctx: Context, x: VTensor, w: VTensor, r: VTensor, *more: VTensor
    ) -> tuple[VTensor, ...]:
        """The hidden state at each time, and the last states."""
        state = {"dir": w.size("dir"), "N": x.size("N"), "unit": r.size("unit")}
        self._check(x, w, r, more)
        y = VTensor(x.dtype, {"T": x.size("T"), **state}, ctx.output(0))
        last = [VTensor(x.dtype, state, ctx.output(1 + i)) for i in range(self.states)]
        ctx.dispatch(self, [x, w, r, *more], [y, *last])
        return y, *last

    #: Number of states that are carried, of functions, and of rows in w for each unit.
    states, functions, gates = 1, 1, 1

    def _check(self, x: VTensor, w: VTensor, r: VTensor, more: Sequence[VTensor]) -> None:
        units = r.size("unit")
        sizes = {**w.dims, "N": x.size("N"), "unit": units}
        sizes |= {"both": 2 * w.size("gate"), "peephole": 3 * units}
        rows = [{dim: sizes[dim] for dim in OPTIONAL[name][1].split()} for name in self.given]
        if [dict(one.dims) for one in more] != rows:
            raise DimError(f"of {self.given} the dims must be {rows}")
        directions = 2 if self.direction == "bidirectional" else 1
        if w.size("dir") != directions or len(self.activations) != directions * self.functions:
            raise DimError(
                f"{self.direction} needs dir={directions}, and {self.functions} activations each"
            )

    def apply(self, which: int, direction: int, x: Array) -> Array:
        """One of the functions, of a clipped value."""
        name, alpha, beta = self.activations[direction * self.functions + which]
        clipped = np.clip(x, -self.clip, self.clip) if self.clip else x
        return np.asarray(_FUNCTIONS[name](clipped, alpha, beta))


@dataclass(frozen=True)
class _Weights:
    """What one direction multiplies by: a row of each for every gate."""

    w: Array
    r: Array
    input_bias: Array
    state_bias: Array
    peepholes: Array

    def gate(self, which: int, x: Array, hidden: Array) -> Array:
        """What goes into a gate."""
        of_x = x @ self.w[which].T + self.input_bias[which]
        return np.asarray(of_x + self.recur(which, hidden))

    def recur(self, which: int, hidden: Array) -> Array:
        """The part of the hidden state in it."""
        return np.asarray(hidden @ self.r[which].T + self.state_bias[which])


def _weights(
    op: _Recurrent, direction: int, w: Array, r: Array, more: dict[str, Array]
) -> _Weights:
    units = r.shape[-1]
    biases = more.get("bias", np.zeros((len(w), 2 * op.gates * units), w.dtype))[direction]
    peepholes = more.get("peepholes", np.zeros((len(w), 3 * units), w.dtype))[direction]
    input_bias, state_bias = biases.reshape(2, op.gates, units)
    return _Weights(
        w[direction].reshape(op.gates, units, -1),
        r[direction].reshape(op.gates, units, units),
        input_bias,
        state_bias,
        peepholes.reshape(3, units),
    )


def _run(
    op: Any, x: Array, w: Array, r: Array, more: dict[str, Array]
) -> tuple[Array, list[Array]]:
    """The hidden state at each time (T dir N unit), then each last state (dir N unit).

    Beyond the end of a sequence its states stay, and what is hidden is 0.
    """
    time, batch, directions, units = len(x), x.shape[1], len(w), r.shape[-1]
    y = np.zeros((time, directions, batch, units), x.dtype)
    zeros = np.zeros((directions, batch, units), x.dtype)
    last = [more.get(name, zeros).copy() for name in ("hidden", "cell")[: op.states]]
    lengths = more.get("lengths", np.full(batch, time))
    for direction in range(directions):
        weights = _weights(op, direction, w, r, more)
        backwards = op.direction == "reverse" or direction == 1
        states: States = tuple(state[direction] for state in last)
        for t in reversed(range(time)) if backwards else range(time):
            there = (t < lengths)[:, np.newaxis]
            stepped = op.step(direction, weights, x[t], *states)
            states = tuple(
                np.where(there, new, old) for new, old in zip(stepped, states, strict=True)
            )
            y[t, direction] = np.where(there, states[0], 0)
        for state, value in zip(last, states, strict=True):
            state[direction] = value
    return y, last


@operator(
    "RNN",
    dims=_dims(["hidden"]),
    equal=_equal(1),
    onnx=_spelling("RNN", lambda **given: RNN(**given), ["Tanh"]),
    traits=[Cost(_cost)],
)
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

    def step(self, direction: int, weights: _Weights, x: Array, h: Array) -> States:
        """The state after one more element."""
        return (self.apply(0, direction, weights.gate(0, x, h)),)


@operator(
    "GRU",
    dims=_dims(["hidden"]),
    equal=_equal(3),
    onnx=_spelling("GRU", lambda **given: GRU(**given), ["Sigmoid", "Tanh"]),
    traits=[Cost(_cost)],
)
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

    functions, gates = 2, 3
    linear_before_reset: bool = param(default=False)

    def step(self, direction: int, weights: _Weights, x: Array, h: Array) -> States:
        """The state after one more element."""
        update, reset = (self.apply(0, direction, weights.gate(i, x, h)) for i in range(2))
        if self.linear_before_reset:
            new = x @ weights.w[2].T + weights.input_bias[2] + reset * weights.recur(2, h)
        else:
            new = weights.gate(2, x, reset * h)
        return ((1 - update) * self.apply(1, direction, new) + update * h,)


@operator(
    "LSTM",
    dims=_dims(["hidden", "cell"]),
    equal=_equal(4),
    onnx=_spelling("LSTM", lambda **given: LSTM(**given), ["Sigmoid", "Tanh", "Tanh"]),
    traits=[Cost(_cost)],
)
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

    states, functions, gates = 2, 3, 4
    input_forget: bool = param(default=False)

    def step(self, direction: int, weights: _Weights, x: Array, h: Array, c: Array) -> States:
        """The states after one more element."""
        inward, outward, forget, cell = (weights.gate(i, x, h) for i in range(4))
        p = weights.peepholes
        i = self.apply(0, direction, inward + p[0] * c)
        kept = 1 - i if self.input_forget else self.apply(0, direction, forget + p[2] * c)
        new = kept * c + i * self.apply(1, direction, cell)
        o = self.apply(0, direction, outward + p[1] * new)
        return o * self.apply(2, direction, new), new


_TYPES = {"": FLOATS, "more": (*FLOATS, "s32", "s64")}


def _numpy(name: str) -> None:
    @invoker(name, library="numpy", dtypes=_TYPES, python=True)
    def run(ctx: Context, op: Any, x: VTensor, w: VTensor, r: VTensor, *rest: VTensor) -> None:
        given = dict(zip(op.given, rest, strict=False))
        ins = [PTensor(x).require("TNF")]
        ins += [
            PTensor(t).require(Layout.plain(("dir", "gate", d))) for t, d in ((w, "F"), (r, "unit"))
        ]
        ins += [PTensor(t).require(Layout.plain(OPTIONAL[n][1].split())) for n, t in given.items()]
        state = ("dir", "N", "unit")
        orders = [("T", *state), *[state] * op.states]
        outs = [
            PTensor(t).require(Layout.plain(order))
            for t, order in zip(rest[len(given) :], orders, strict=True)
        ]
        if lib_tagger("numpy", ins, outs):
            return
        sequence, weights, recurrent, *more = (wide(t.data()) for t in ins)
        optional = dict(zip(given, more, strict=True))
        y, last = _run(op, sequence, weights, recurrent, optional)
        for target, values in zip(outs, (y, *last), strict=True):
            target.data()[...] = values


for _name in ("RNN", "GRU", "LSTM"):
    _numpy(_name)
