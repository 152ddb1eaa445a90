"""Recurrent networks, which carry a state along a sequence: RNN, GRU and LSTM.

A network has one or two directions, forward and backward in time. In each it has *units*. A *gate*
is a vector with an element for each unit, which is computed from the input and the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from libdesc.routine import Routine
from ptensor import PTensor
from vtensor.language.records import dataclass
from vtensor.operators import Context, Cost, Naming, NodeReader, Spelling, named, operator, param
from vtensor.tensor import VTensor

States = tuple[Array, ...]
#: An activation function's name, alpha and beta.
Activation = tuple[str, float, float]

#: By name of an optional operand: the index of ONNX's input, and the operand's dims.
OPTIONAL = {
    "bias": (3, "dir row unit"),
    "lengths": (4, "N"),
    "hidden": (5, "dir N unit"),
    "cell": (6, "dir N unit"),
    "peepholes": (7, "dir peephole unit"),
}

#: By name of an activation function, ONNX's in lower case: the function of x, alpha and beta, and
#: the defaults of alpha and beta. An unused alpha or beta has none.
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
class Recurrent:
    """The shared parameters of recurrent networks."""

    activations: tuple[Activation, ...] = param()
    direction: str = param(default="forward", choices=("forward", "reverse", "bidirectional"))
    clip: float = param(default=0.0, minimum=0)
    given: tuple[str, ...] = param(default=())

    #: The number of gates of each unit.
    gates: ClassVar[int]
    #: ONNX's index of each gate, in the order that this file uses; empty if it is ONNX's order.
    places: ClassVar[tuple[int, ...]] = ()
    #: The names of the states that are carried from one time to the next.
    states: ClassVar[tuple[str, ...]] = ("hidden",)
    #: The names of the operands between the weights and the optional operands.
    others: ClassVar[tuple[str, ...]] = ()
    #: ONNX's default activation functions of a direction.
    functions: ClassVar[tuple[str, ...]]

    def dispatched(
        self, ctx: Context, x: VTensor, w: VTensor, r: VTensor, *more: VTensor
    ) -> tuple[VTensor, ...]:
        """Dispatch on all operands, and return the outputs.

        They are the hidden state at each time, then, for each name in ``states``, the last state.
        """
        state = {"dir": w.size("dir"), "N": x.size("N"), "unit": r.size("unit")}
        y = VTensor(x.dtype, {"T": x.size("T"), **state}, ctx.output(0))
        last = [VTensor(x.dtype, state, ctx.output(1 + i)) for i in range(len(self.states))]
        ctx.dispatch(self, [x, w, r, *more], [y, *last])
        return y, *last

    @property
    def directions(self) -> int:
        """The number of directions: two if ``direction`` is ``bidirectional``, else one."""
        return 1 + (self.direction == "bidirectional")

    @property
    def rows(self) -> int:
        """The number of biases of each unit."""
        return self.gates

    @property
    def count(self) -> int:
        """The number of activation functions that each direction has."""
        return len(self.functions)


class _Plain(Recurrent):
    """The shared ``compute`` of ONNX's recurrent networks."""

    def compute(
        self, ctx: Context, x: VTensor, w: VTensor, r: VTensor, *more: VTensor
    ) -> tuple[VTensor, ...]:
        """Dispatch on all operands, and return the outputs; see ``dispatched``."""
        return self.dispatched(ctx, x, w, r, *more)


R = TypeVar("R", bound=Recurrent)


def _positions(batch_first: bool) -> dict[str, str]:
    """Return the dim names of each input and output of a node, in ONNX's order of axes.

    The keys are roles: ``x0`` is input 0, ``y0`` is output 0. ``batch_first`` is ONNX's attribute
    ``layout``: True if N comes before time.
    """
    state = "N dir unit" if batch_first else "dir N unit"
    x, y = ("N T F", "N T dir unit") if batch_first else ("T N F", "T dir N unit")
    names = {"x0": x, "x1": "dir gate F", "x2": "dir gate unit", "x3": "dir both", "x4": "N"}
    names |= {"x7": "dir peephole", "y0": y}
    return names | dict.fromkeys(("x5", "x6", "y1", "y2"), state)


def network_names(node: Naming) -> None:
    """Name the dims of a recurrent network's inputs and outputs."""
    for role, names in _positions(bool(node.attribute("layout", 0))).items():
        node.name(role, names)


def _activations(node: NodeReader, defaults: Sequence[str]) -> Iterator[Activation]:
    """Yield (name, alpha, beta) of each activation function of a node, direction by direction.

    ``defaults`` are the functions' names if the node has no attribute ``activations``.
    """
    names = [name.lower() for name in node.attribute("activations") or defaults]
    if unknown := [name for name in names if name not in _FUNCTIONS]:
        raise node.refuse(f"activations {unknown}")
    remaining = [list(node.attribute(f"activation_{which}") or ()) for which in ("alpha", "beta")]
    for name in names:
        values = [0.0, 0.0]
        for i, default in enumerate(_FUNCTIONS[name][1]):
            values[i] = float(remaining[i].pop(0)) if remaining[i] else default
        yield name, values[0], values[1]


def _cut(node: NodeReader, t: VTensor, dim: str, begin: int, end: int) -> VTensor:
    return node.ahead(named("Slice")((dim,), (begin,), (end,), (1,)), t)


def by_gate(node: NodeReader, t: VTensor, gates: int, places: Sequence[int]) -> VTensor:
    """Split the dim ``gate`` of weights into ``gate`` and ``unit``, and return the weights.

    Args:
        node: the ONNX node that is read.
        t: the weights; along ``gate`` they have all units of one gate, then those of the next.
        gates: the number of gates.
        places: for each gate of the result, its index in ``t``; empty keeps the gates' order.
    """
    apart = {"gate": gates, "unit": t.size("gate") // gates}
    sizes: dict[str, int] = {}
    for dim, size in t.dims.items():
        sizes |= apart if dim == "gate" else {dim: size}
    t = node.reshape(t, sizes)
    parts = [_cut(node, t, "gate", place, place + 1) for place in places]
    return node.ahead(named("Concat")("gate"), *parts) if parts else t


def _bias(node: NodeReader, cls: type[Recurrent], linear: bool) -> VTensor:
    """Return the operand ``bias`` of a network, with the dims dir, row and unit.

    ONNX has two biases for each gate and unit: of the input and of the state. A row is their sum.
    With ``linear`` (a GRU's linear_before_reset), the last gate has two rows instead: one for each
    of its biases.
    """
    t = node.input(3, "dir both")
    t = node.reshape(t, {"dir": t.size("dir"), "side": 2, "gate": t.size("both") // 2})
    sides = by_gate(node, t, cls.gates, cls.places)
    total = node.ahead(named("ReduceSum")(("side",), keepdims=False), sides)
    sizes = {"dir": t.size("dir"), "row": cls.gates, "unit": sides.size("unit")}
    if not linear:
        return node.reshape(total, sizes)
    last = _cut(node, sides, "gate", cls.gates - 1, cls.gates)
    last = node.reshape(last, {**sizes, "row": 2})
    first = node.reshape(_cut(node, total, "gate", 0, cls.gates - 1), {**sizes, "row": 2})
    return node.ahead(named("Concat")("row"), first, last)


def _operand(node: NodeReader, cls: type[Recurrent], name: str, linear: bool) -> VTensor:
    """Return the optional operand ``name``, a key of ``OPTIONAL``, read from a node.

    ``linear`` is True for a GRU with linear_before_reset, whose last gate has two biases.
    """
    if name == "bias":
        return _bias(node, cls, linear)
    if name != "peepholes":
        place, _ = OPTIONAL[name]
        return node.input(place, _positions(bool(node.attribute("layout", 0)))[f"x{place}"])
    t = by_gate(node, node.input(7, "dir gate"), 3, (0, 2, 1))
    return node.reshape(t, dict(zip(OPTIONAL[name][1].split(), t.dims.values(), strict=True)))


def _read(node: NodeReader, cls: type[Recurrent]) -> Sequence[VTensor]:
    return read_network(
        node,
        cls,
        1,
        lambda: [
            by_gate(node, node.input(1, "dir gate F"), cls.gates, cls.places),
            by_gate(node, node.input(2, "dir gate state"), cls.gates, cls.places),
        ],
    )


def read_network(
    node: NodeReader,
    cls: type[Recurrent],
    axis: int,
    weights: Callable[[], Sequence[VTensor]],
) -> Sequence[VTensor]:
    """Read a recurrent network and return its outputs.

    Args:
        node: the ONNX node that is read.
        cls: the operator's class.
        axis: the axis of the weights that has the units of all gates.
        weights: returns the operands between x and the optional ones; it is called after the sizes
            were checked.
    """
    given = tuple(name for name, (place, _) in OPTIONAL.items() if node.has(place))
    direction, clip = node.attribute("direction", "forward"), float(node.attribute("clip") or 0.0)
    functions = cls.functions * (1 + (direction == "bidirectional"))
    flags = ("input_forget", "linear_before_reset")
    options = {name: True for name in flags if node.attribute(name, 0)}
    op = cls(tuple(_activations(node, functions)), direction, clip, given, **options)
    _check_rows(node, cls, axis)
    inputs = [
        node.input(0, _positions(bool(node.attribute("layout", 0)))["x0"]),
        *weights(),
        *(_operand(node, cls, name, op.rows > cls.gates) for name in given),
    ]
    outputs: Any = node.add(op, *inputs)
    return list(outputs)


def _check_rows(node: NodeReader, cls: type[Recurrent], axis: int) -> None:
    """Raise an error if the node's weights or biases cannot be split into the gates of ``cls``, or
    have another number of units than its attribute ``hidden_size``.

    ``axis`` is the axis of the weights that has the units of all gates.
    """
    rows = {1: (axis, cls.gates), 2: (axis, cls.gates), 3: (1, 2 * cls.gates), 7: (1, 3)}
    for place, (at, count) in rows.items():
        if node.has(place) and list(node.input(place).dims.values())[at] % count:
            raise node.refuse(f"input {place}, {node.input(place).summary()}: no {count} gates")
    units = list(node.input(1).dims.values())[axis] // cls.gates
    if node.attribute("hidden_size", units) != units:
        raise node.refuse(f"hidden_size {node.attribute('hidden_size')}, the weights have {units}")


def _gates_fit(op: Recurrent, x: VTensor, w: VTensor, *_: VTensor) -> bool:
    return w.size("gate") == op.gates


def _optional_operands_fit(
    op: Recurrent, x: VTensor, w: VTensor, r: VTensor, *more: VTensor
) -> bool:
    sizes = {**w.dims, "N": x.size("N"), "row": op.rows, "peephole": 3}
    rows = [{dim: sizes[dim] for dim in OPTIONAL[name][1].split()} for name in op.given]
    return [dict(operand.dims) for operand in more[len(op.others) :]] == rows


def _directions_fit(op: Recurrent, _: VTensor, w: VTensor, *__: VTensor) -> bool:
    return (w.size("dir"), len(op.activations)) == (op.directions, op.directions * op.count)


def _cost(_op: object, x: VTensor, w: VTensor, r: VTensor, *_: VTensor) -> int:
    """Return the number of floating-point operations of a network's matrix products.

    There are two for each weight, at each time of each sequence. Other operations are not counted.
    """
    return 2 * x.size("T") * x.size("N") * (w.num_elements + r.num_elements)


def _recurrent(cls: type[R]) -> type[R]:
    """Register the class of one of ONNX's recurrent networks as an operator, and return it."""
    spelling = Spelling(cls.__name__, 7, lambda node: _read(node, cls), network_names)
    return declare_network(cls, spelling)


def declare_network(cls: type[R], spelling: Spelling) -> type[R]:
    """Register the class of a recurrent network as an operator, and return it."""
    dims = {"x": "T N F", "w": "dir gate unit F", "r": "dir gate unit state"}
    dims |= dict.fromkeys(cls.others, "dir gate unit")
    dims |= {"more": "*", "y": "T dir N unit"}
    gates = f"w and r must have {cls.gates} gates"
    needs = "{op.direction} needs dir={op.directions}, and {op.count} activations each"
    fits = "the dims of {op.given} must be those of x, w and r"
    declare = operator(
        cls.__name__,
        dims=dims | dict.fromkeys(cls.states, "dir N unit"),
        equal=[
            *(
                ("w." + dim, f"{role}.{dim}")
                for role in ("r", *cls.others)
                for dim in ("dir", "gate", "unit")
            ),
            ("x.F", "w.F"),
            ("r.unit", "r.state"),
        ],
        holds=[(_gates_fit, gates), (_optional_operands_fit, fits), (_directions_fit, needs)],
        onnx=spelling,
        traits=[Cost(_cost)],
    )
    return declare(cls)


@dataclass(frozen=True)
class Cell:
    """One direction of a recurrent network, as the NumPy library computes it.

    Attributes:
        weights: two arrays: the weights by which the input x is multiplied (gate, unit, F), and
            those of the hidden state h (gate, unit, state).
        biases: the biases (row, unit): a row for each gate, and one more with linear_before_reset.
        peepholes: the weights by which the gates i, forget and o multiply the cell state; None if
            there are none.
        activations: the activation functions: name, alpha, beta.
        clip: the largest magnitude of the functions' arguments; 0 is no limit.
    """

    weights: Sequence[Array]
    biases: Array
    peepholes: Array | None
    activations: Sequence[Activation]
    clip: float

    def part(self, which: int, side: int, values: Array) -> Array:
        """Return ``values`` times the weights of gate number ``which``.

        Side 0 takes the weights of the input x, side 1 those of the hidden state h.
        """
        return np.asarray(values @ self.weights[side][which].T)

    def gate(self, which: int, x: Array, h: Array) -> Array:
        """Return gate number ``which`` before its activation function is applied.

        It is the gate's weights times x, plus those times h, plus the gate's bias.
        """
        both = self.part(which, 0, x) + self.part(which, 1, h)
        return np.asarray(both + self.biases[which])

    def peephole(self, which: int, carried: Array) -> Array | float:
        """Return the cell state ``carried`` times the peephole weights number ``which``.

        Numbers 0 to 2 are those of i, forget and o. Without peephole weights the result is 0.
        """
        return 0.0 if self.peepholes is None else np.asarray(self.peepholes[which] * carried)

    def apply(self, which: int, x: Array) -> Array:
        """Clip ``x``, then apply activation function number ``which`` of this direction to it."""
        name, alpha, beta = self.activations[which]
        clipped = np.clip(x, -self.clip, self.clip) if self.clip else x
        return np.asarray(_FUNCTIONS[name][0](clipped, alpha, beta))


@_recurrent
class RNN(_Plain):
    """Carry a hidden state h along a sequence.

    h' = f(w x + r h + biases)

    Dims:
        x: T N F    w: dir gate unit F    r: dir gate unit state; one gate, state as large as unit
        more: the operands in ``given``: ``bias``, dir row unit with one row; ``lengths``, N;
            ``hidden``, dir N unit, the first state
        y: T dir N unit, the hidden state at each time    hidden: dir N unit, the last
    Args:
        activations: f of each direction, with alpha and beta.
        direction: ``forward``, ``reverse``, or ``bidirectional``, which has both.
        clip: limit of the magnitude of f's argument; 0 is none.
        given: the names of the operands in ``more``, in order.
    Raises:
        DimError: sizes do not fit together, or the number of activations is wrong.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"T": 9, "N": 2, "F": 3})
    >>> rows = {"dir": 1, "gate": 1, "unit": 5}
    >>> w, r = (VTensor("f32", {**rows, **d}) for d in ({"F": 3}, {"state": 5}))
    >>> [t.summary() for t in RNN((("tanh", 0.0, 0.0),)).compute(Context(), x, w, r)]
    ['f32 T=9 dir=1 N=2 unit=5', 'f32 dir=1 N=2 unit=5']

    Source: ONNX operator RNN, opset 22.
    """

    gates, functions = 1, ("tanh",)

    def step(self, cell: Cell, x: Array, h: Array) -> States:
        """Return the hidden state after x, the next element of the sequence, as a tuple of one."""
        return (cell.apply(0, cell.gate(0, x, h)),)


@_recurrent
class GRU(_Plain):
    """Carry a hidden state h along a sequence, with gates that update (z) and reset (r) it.

    z = f(gate z), reset = f(gate r), n = g(w x + r (reset * h) + biases),
    h' = (1 - z) * n + z * h, where a gate is w x + r h + biases

    Dims:
        x: T N F    w: dir gate unit F    r: dir gate unit state; gates z, r and n, state as
            large as unit
        more: the operands in ``given``: ``bias``, dir row unit with a row for each gate, and with
            linear_before_reset one for r h; ``lengths``, N; ``hidden``, dir N unit, the first state
        y: T dir N unit, the hidden state at each time    hidden: dir N unit, the last
    Args:
        activations: f and g of each direction, with alpha and beta.
        direction: ``forward``, ``reverse``, or ``bidirectional``, which has both.
        clip: limit of the magnitude of f's and g's arguments; 0 is none.
        given: the names of the operands in ``more``, in order.
        linear_before_reset: True multiplies r h and its bias by reset, False only h.
    Raises:
        DimError: sizes do not fit together, or the number of activations is wrong.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"T": 9, "N": 2, "F": 3})
    >>> rows = {"dir": 1, "gate": 3, "unit": 5}
    >>> w, r = (VTensor("f32", {**rows, **d}) for d in ({"F": 3}, {"state": 5}))
    >>> op = GRU((("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)))
    >>> [t.summary() for t in op.compute(Context(), x, w, r)]
    ['f32 T=9 dir=1 N=2 unit=5', 'f32 dir=1 N=2 unit=5']

    Source: ONNX operator GRU, opset 22.
    """

    gates, functions = 3, ("sigmoid", "tanh")
    linear_before_reset: bool = param(default=False)

    @property
    def rows(self) -> int:
        """The number of biases of each unit: one more than gates with ``linear_before_reset``."""
        return self.gates + self.linear_before_reset

    def step(self, cell: Cell, x: Array, h: Array) -> States:
        """Return the hidden state after x, the next element of the sequence, as a tuple of one."""
        update, reset = (cell.apply(0, cell.gate(i, x, h)) for i in range(2))
        if self.linear_before_reset:
            hidden = reset * (cell.part(2, 1, h) + cell.biases[3])
        else:
            hidden = cell.part(2, 1, reset * h)
        new = cell.apply(1, cell.part(2, 0, x) + cell.biases[2] + hidden)
        return ((1 - update) * new + update * h,)


@_recurrent
class LSTM(_Plain):
    """Carry a hidden state h and a cell c along a sequence, with three gates.

    i = f(gate i + p_i c), forget = f(gate forget + p_forget c), c' = forget * c + i * g(gate c),
    o = f(gate o + p_o c'), h' = o * last(c'), where a gate is w x + r h + biases

    Dims:
        x: T N F    w: dir gate unit F    r: dir gate unit state; gates i, forget, c and o, state
            as large as unit
        more: the operands in ``given``: ``bias``, dir row unit with a row for each gate;
            ``lengths``, N; ``hidden`` and ``cell``, dir N unit, the first h and c; ``peepholes``,
            dir peephole unit, the weights p of i, forget and o
        y: T dir N unit, the hidden state at each time    hidden, cell: dir N unit, the last
    Args:
        activations: f, g and last of each direction, with alpha and beta.
        direction: ``forward``, ``reverse``, or ``bidirectional``, which has both.
        clip: limit of the magnitude of f's and g's arguments; 0 is none.
        given: the names of the operands in ``more``, in order.
        input_forget: True computes forget as 1 - i.
    Raises:
        DimError: sizes do not fit together, or the number of activations is wrong.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"T": 9, "N": 2, "F": 3})
    >>> rows = {"dir": 1, "gate": 4, "unit": 5}
    >>> w, r = (VTensor("f32", {**rows, **d}) for d in ({"F": 3}, {"state": 5}))
    >>> op = LSTM((("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0)))
    >>> [t.summary() for t in op.compute(Context(), x, w, r)][1:]
    ['f32 dir=1 N=2 unit=5', 'f32 dir=1 N=2 unit=5']

    Source: ONNX operator LSTM, opset 22.
    """

    gates, places, states = 4, (0, 2, 3, 1), ("hidden", "cell")
    functions = ("sigmoid", "tanh", "tanh")
    input_forget: bool = param(default=False)

    def step(self, cell: Cell, x: Array, h: Array, c: Array) -> States:
        """Return the hidden state and the cell after x, the next element of the sequence."""
        inward, forget, content, outward = (cell.gate(i, x, h) for i in range(4))
        i = cell.apply(0, inward + cell.peephole(0, c))
        kept = 1 - i if self.input_forget else cell.apply(0, forget + cell.peephole(1, c))
        new = kept * c + i * cell.apply(1, content)
        return cell.apply(0, outward + cell.peephole(2, new)) * cell.apply(2, new), new


def cells(op: Any, w: Array, r: Array, more: dict[str, Array]) -> Iterator[Cell]:
    """Yield a ``Cell`` for each direction of the network ``op``.

    ``w`` and ``r`` are the weights of all directions; ``more`` has the optional operands by name.
    """
    directions, _, units, _ = w.shape
    biases = more.get("bias", np.zeros((directions, op.rows, units), w.dtype))
    peepholes = more.get("peepholes")
    for d in range(directions):
        activations = op.activations[d * op.count :][: op.count]
        yield Cell(
            (w[d], r[d]),
            biases[d],
            None if peepholes is None else peepholes[d],
            activations,
            op.clip,
        )


def _run_network(
    op: Any, x: Array, w: Array, r: Array, more: dict[str, Array]
) -> tuple[Array, list[Array]]:
    """Run the network ``op`` on the sequences ``x`` (T N F).

    After the end of a sequence that is shorter than ``x``, its states stay as they are, and the
    returned hidden state is 0. ``more`` has the optional operands by name.

    Returns:
        The hidden state at each time (T dir N unit), and a list of the last states (dir N unit).
    """
    times, batch = x.shape[:2]
    y = np.zeros((times, len(w), batch, r.shape[-1]), x.dtype)
    last = [more.get(name, np.zeros(y.shape[1:], x.dtype)).copy() for name in op.states]
    lengths = more.get("lengths", np.full(batch, times))
    for direction, cell in enumerate(cells(op, w, r, more)):
        backwards = op.direction == "reverse" or direction == 1
        states: States = tuple(state[direction] for state in last)
        for t in range(times)[:: -1 if backwards else 1]:
            running = (t < lengths)[:, np.newaxis]
            pairs = zip(op.step(cell, x[t], *states), states, strict=True)
            states = tuple(np.where(running, new, old) for new, old in pairs)
            y[t, direction] = np.where(running, states[0], 0)
        for state, values in zip(last, states, strict=True):
            state[direction] = values
    return y, last


TYPES = {"": FLOATS, "more": (*FLOATS, "s32", "s64")}
NATIVE = {"": ["f32"], "more": ["f32", "s32", "s64"]}
#: By name of an operator, the name of the network in oneDNN.
_ONEDNN_KINDS = {"RNN": "vanilla_rnn", "GRU": "gru", "LSTM": "lstm"}
#: By activation function of an RNN, its name in oneDNN. ``relu`` is missing: oneDNN's relu of slope
#: 0 returns 0 for a NaN.
_ONEDNN = {"tanh": "tanh", "leakyrelu": "relu", "sigmoid": "logistic"}


def _refusal(op: Any, *operands: VTensor) -> bool | str:
    """Return True if oneDNN can compute the network, else the reason why not, as text."""
    names = [name for name, _, _ in op.activations]
    if op.clip or getattr(op, "input_forget", False):
        return "neither clips nor couples gates"
    if len(set(op.activations[:: op.count])) > 1 or (
        names != [*op.functions] * op.directions if op.count > 1 else names[0] not in _ONEDNN
    ):
        return f"has no functions {' '.join(names)}"
    if op.count == 1 and op.activations[0][:2] == ("leakyrelu", 0.0):
        return "makes 0 of a NaN, where a leakyrelu has no slope"
    optional = dict(zip(op.given, operands[3:], strict=False))
    if "bias" not in optional:
        return "takes a bias"
    if "cell" in op.states and ("hidden" in optional) != ("cell" in optional):
        return "takes both first states or none"
    if "lengths" in optional and not _whole(optional["lengths"], operands[0].size("T")):
        return "takes whole sequences, their lengths known before a run"
    return True


def _whole(lengths: VTensor, times: int) -> bool:
    """Return whether all ``lengths`` are known before a run, and equal ``times``.

    ``times`` is the size of the operand x along T.
    """
    return lengths.constant and bool((lengths.data() == times).all())


@invoker("RNN", library="onednn", dtypes=NATIVE, when=_refusal)
@invoker("GRU", library="onednn", dtypes=NATIVE, when=_refusal)
@invoker("LSTM", library="onednn", dtypes=NATIVE, when=_refusal)
def onednn_recurrent(ctx: Context, op: Any, *operands: VTensor) -> Routine:
    inputs = 3 + len(op.given)
    kind = "lbr_gru" if op.rows > op.gates else _ONEDNN_KINDS[type(op).__name__]
    name, alpha, _ = op.activations[0]
    function = (_ONEDNN[name], alpha) if op.count == 1 else ("", 0.0)
    named_inputs = dict(zip(op.given, operands[3:inputs], strict=True))
    return onednn.Recurrent(
        kind, op.direction, operands[:3], named_inputs, operands[inputs:], function
    )


def typed(op: Any, *operands: VTensor) -> bool | str:
    """Return True if the optional operands have the types that Eigen takes, else the reason.

    ``lengths`` must not be f32, all others must.
    """
    rows = zip(op.given, operands[3:], strict=False)
    fits = all((operand.dtype == "f32") != (name == "lengths") for name, operand in rows)
    return fits or "takes what is given in f32, and lengths as integers"


@invoker("RNN", library="eigen", dtypes=NATIVE, when=typed)
@invoker("GRU", library="eigen", dtypes=NATIVE, when=typed)
@invoker("LSTM", library="eigen", dtypes=NATIVE, when=typed)
def eigen_recurrent(ctx: Context, op: Any, *operands: VTensor) -> Routine:
    cell = "lbr_gru" if op.rows > op.gates else type(op).__name__.lower()
    coupled = getattr(op, "input_forget", False)
    how = (cell, op.direction, op.activations, op.given, op.clip, coupled)
    return eigen.recurrent(operands, *how)


def _orders(op: Recurrent, *_: VTensor) -> list[str]:
    given = [OPTIONAL[name][1] for name in op.given]
    outputs = ["T dir N unit", *["dir N unit"] * len(op.states)]
    return ["T N F", "dir gate unit F", "dir gate unit state", *given, *outputs]


@definition("RNN", "GRU", "LSTM", dtypes=TYPES, orders=_orders)
def recurrent(ctx: Context, op: Any, *operands: PTensor) -> None:
    inputs = 3 + len(op.given)
    x, w, r, *more = (wide(t.data()) for t in operands[:inputs])
    y, last = _run_network(op, x, w, r, dict(zip(op.given, more, strict=True)))
    for target, values in zip(operands[inputs:], (y, *last), strict=True):
        target.data()[...] = values
