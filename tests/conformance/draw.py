"""Calls drawn at random from what an operator declares of its dims and parameters.

What the operator's own checks refuse is drawn again. Parameters that depend on one another meet by
chance too rarely: a part of the draws takes a row of the table of cases, with other extents. That
table also says what values an operand takes.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.operators.tables.cases import CASES, FLAGS, Case, dims_of
from vtensor.errors import VTensorError
from vtensor.language.dims import DimSpec, product_source
from vtensor.language.operators import Context, run_compute
from vtensor.language.table import OperatorInfo
from vtensor.language.tensor import VTensor

Extents = dict[str, int]

#: One, odd, whole blocks, larger than a block; none at all is drawn apart.
EXTENTS = (1, 2, 3, 5, 7, 8, 9, 16, 17, 33)
#: Of dims of a window, which have small letters.
REACHES = (1, 2, 3, 5)
#: The names of a row that is open.
OPEN = ("N C H W", "N C H W", "N C W", "N C D H W", "N C", "batch seq feat", "A", "")

#: The largest operand, in elements.
LARGEST = 1 << 14
#: How many draws in a row may be refused; and after how many of them a row of the table keeps about
#: half of its extents: some operators fix several at once (an LSTM has four gates and as many rows
#: of biases, and its states are its units).
PATIENCE, EARLY = 5000, 200


class Undrawable(Exception):
    """Nothing can be drawn from a declaration."""


def draw(info: OperatorInfo, random: Random) -> Case:
    """Return a call that the operator accepts.

    Raises:
        Undrawable: none was found.
    """
    for number in range(PATIENCE):
        row = random.choice(CASES[info.name])
        kept = 0.0 if number < EARLY else 0.5
        try:
            declared = random.random() < 0.7
            op, inputs = _declared(info, random) if declared else _varied(row, random, kept)
            _settle(info, op, inputs)
        except (VTensorError, Undrawable):
            continue
        if _accepted(op, inputs):
            return Case(op, tuple(_texts(_alike(row, op, CASES[info.name]), op, inputs, random)))
    raise Undrawable(f"{info.name}: no call in {PATIENCE} draws")


def _declared(info: OperatorInfo, random: Random) -> tuple[object, list[Extents]]:
    """Return parameters and operands drawn from the declaration."""
    names = random.choice(OPEN).split()
    op = info.cls(**dict(_parameters(info.cls, names, random)))
    known = {*names, *(dim for spec in info.dims.values() for dim in spec.names)}
    sizes = _sizes(known, random)
    inputs = [_operand(info.dims[role], names, sizes, random) for role in info.inputs]
    for _ in range(random.randrange(3) if info.many & {*info.inputs} else 0):
        inputs.append(dict(inputs[0]))
        if names and random.random() < 0.7:
            inputs[-1] |= {random.choice(names): random.choice(EXTENTS)}
    return op, inputs


def _varied(row: Case, random: Random, kept: float) -> tuple[object, list[Extents]]:
    """Return a row with other extents, but for a share of dims; repeated dims stay repeated."""
    had = [dims_of(text) for text in row.inputs]
    own = {dim: size for dims in had for dim, size in dims.items() if size > 1}
    sizes = _sizes({dim for dims in had for dim in dims}, random)
    if kept:
        sizes |= {dim: size for dim, size in own.items() if random.random() < kept}
    return row.op, [{d: 1 if size == 1 else sizes[d] for d, size in dims.items()} for dims in had]


def _sizes(names: set[str], random: Random) -> Extents:
    """Return an extent for each name; now and then one is 0."""
    ordered = sorted(names)
    window = {name for name in ordered if len(name) == 1 and name.islower()}
    sizes = {name: random.choice(REACHES if name in window else EXTENTS) for name in ordered}
    if ordered and random.random() < 0.15:
        sizes[random.choice(ordered)] = 0
    return sizes


def _operand(spec: DimSpec, names: Sequence[str], sizes: Extents, random: Random) -> Extents:
    """Return dims that a row allows, in any order; some of an open row are repeated."""
    if not spec.open:
        dims = [d for d in spec.names if d in spec.required or random.random() < 0.6]
        return {dim: sizes[dim] for dim in _shuffled(dims, random)}
    whole = random.random() < 0.5
    dims = [dim for dim in names if whole or random.random() < 0.6]
    given = dict.fromkeys((*spec.required, *dims))
    repeats = 0.0 if whole else 0.15
    return {d: 1 if random.random() < repeats else sizes[d] for d in _shuffled([*given], random)}


def _shuffled(names: Sequence[str], random: Random) -> list[str]:
    """Return names in any order, mostly their own: an order of declaration carries no meaning."""
    return random.sample(names, len(names)) if random.random() < 0.25 else list(names)


#: The annotations of a class; many draws ask for them.
_hints = cache(typing.get_type_hints)


def _parameters(cls: type, names: Sequence[str], random: Random) -> Iterator[tuple[str, Any]]:
    """Yield values of the parameters that do not keep their default."""
    hints, count = _hints(cls), random.randint(1, 3)
    for field in dataclasses.fields(cls):
        if field.default is dataclasses.MISSING or random.random() < 0.5:
            yield field.name, _value(hints[field.name], field.metadata, names, count, random)


def _value(
    hint: Any, rules: Mapping[str, Any], names: Sequence[str], count: int, random: Random
) -> Any:
    """Return a value of an annotation; a tuple of any length has ``count`` or twice as many."""
    if rules.get("choices"):
        return random.choice(rules["choices"])
    if hint is bool:
        return random.random() < 0.5
    low, high = rules.get("minimum"), rules.get("maximum")
    if hint is int:
        least = -2 if low is None else low
        return random.randint(least, least + 4 if high is None else high)
    if hint is float:
        return random.uniform(max(low or 0, 0.25), 2.0 if high is None else high)
    if hint is str and names:
        return random.choice(names)
    args = typing.get_args(hint)
    if args == (str, Ellipsis) and count <= len(names):
        return tuple(random.sample(names, count))
    if args and args[0] in (int, float):
        length = random.choice((count, 2 * count)) if args[-1] is Ellipsis else len(args)
        return tuple(_value(args[0], rules, names, count, random) for _ in range(length))
    raise Undrawable(f"nothing to draw for {hint}")


def _settle(info: OperatorInfo, op: object, inputs: Sequence[Extents]) -> None:
    """Make the inputs' side of each declared equality true."""
    rows = dict(zip(info.inputs, inputs, strict=False))
    known: dict[str, Any] = {role: SimpleNamespace(dims=dims) for role, dims in rows.items()}
    for left, right in info.check.equal:
        role, _, dim = left.partition(".")
        inner = all(factor.split(".")[0].strip() not in info.outputs for factor in right.split("*"))
        if inner and dim in rows.get(role, ()):
            rows[role][dim] = eval(product_source(right), known | {"op": op})


def _accepted(op: object, inputs: Sequence[Extents]) -> bool:
    """Return whether the operator's own checks take the call, and it is not too large."""
    tensors = [VTensor("f32", dims) for dims in inputs]
    try:
        outputs = run_compute(Context(node="drawn"), op, tensors)
    except VTensorError:
        return False
    return all(t.num_elements <= LARGEST for t in (*tensors, *outputs))


def _alike(row: Case, op: object, rows: Sequence[Case]) -> Case:
    """Return the row whose values an operator takes: one of the same words, if there is one.

    Words are parameters such as an element type, which decides what is a number.
    """
    words = {name: value for name, value in vars(op).items() if isinstance(value, str)}
    same = [other for other in rows if words.items() <= vars(other.op).items()]
    return row if row in same or not same else same[0]


def _texts(row: Case, op: object, inputs: Sequence[Extents], random: Random) -> Iterator[str]:
    """Yield the inputs as a case writes them, their values of the kind that a row gives to them.

    Integers are mostly places along the dims that the operator's parameters name.
    """
    named = [part for value in vars(op).values() for part in (value, *_parts(value))]
    least = min(
        [inputs[0][dim] for dim in named if isinstance(dim, str) and dim in inputs[0]], default=None
    )
    for index, dims in enumerate(inputs):
        text = row.inputs[min(index, len(row.inputs) - 1)]
        flags = text[: len(text) - len(text.lstrip(FLAGS))]
        words = [f"{dim}={size}" for dim, size in dims.items()]
        words += [
            word if least is None or random.random() < 0.1 else f"<{max(least, 1)}"
            for word in text.split()
            if "<" in word
        ]
        yield flags + " ".join(words)


def _parts(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()
