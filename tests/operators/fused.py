"""A program: what is fused behind an operator on oneDNN, under a cap on instruction sets.

``python -m tests.operators.fused CAP [SHARE]`` prints a line for each fault and, last, how many
cases it took: each pair against the definitions one by one, its outputs full of NaN before; with
NaN or infinity among the inputs too. With a share it takes one in so many of the latter. It is a
process of its own because oneDNN fixes its cap at its first use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import numpy as np

from ops import (
    Abs,
    Add,
    BiasAdd,
    Clip,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvTranspose,
    DepthwiseConv2D,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    MatMul,
    Mish,
    Mul,
    Relu,
    Relu6,
    Sigmoid,
    Sqrt,
    Sub,
    Swish,
    Tanh,
    Times,
)
from ptensor.layout import Layout
from tests.operators.harness import Behind, Given, check_pads, definition, run
from tests.operators.levels import check_same
from vtensor import limit_isa
from vtensor.errors import NoInvokerError

Array = np.ndarray[Any, Any]

IMAGE = {"N": 2, "C": 6, "H": 5, "W": 4}
STEM = {"N": 1, "C": 3, "H": 9, "W": 8}
MANY = {"N": 1, "C": 32, "H": 6, "W": 6}
#: Operators, their inputs' dims, and whether the second is constant. Channels leave pads in blocks.
LEADS: dict[str, tuple[object, dict[str, int], dict[str, int], bool]] = {
    "stem": (Conv2D(strides=(2, 2), pads=(1,) * 4), STEM, {"O": 20, "I": 3, "h": 3, "w": 3}, True),
    "Conv2D": (Conv2D(pads=(1, 1, 1, 1)), MANY, {"O": 40, "I": 32, "h": 3, "w": 3}, True),
    "pointwise": (Conv2D(), MANY, {"O": 64, "I": 32, "h": 1, "w": 1}, True),
    "groups": (Conv2D(group=2), IMAGE, {"G": 2, "O": 5, "I": 3, "h": 2, "w": 2}, True),
    "depthwise": (DepthwiseConv2D(), IMAGE, {"G": 6, "O": 1, "I": 1, "h": 3, "w": 3}, True),
    "Conv1D": (Conv1D(), {"N": 1, "C": 6, "W": 9}, {"O": 5, "I": 6, "w": 3}, True),
    "Conv3D": (Conv3D(), {"D": 3, **IMAGE}, {"O": 5, "I": 6, "d": 2, "h": 2, "w": 2}, True),
    "few channels": (Conv2D(), {**IMAGE, "C": 5}, {"O": 7, "I": 5, "h": 3, "w": 3}, True),
    "ConvTranspose": (ConvTranspose(), IMAGE, {"I": 6, "O": 5, "h": 2, "w": 2}, True),
    "many back": (ConvTranspose(), MANY, {"I": 32, "O": 64, "h": 3, "w": 3}, True),
    "weights": (MatMul("K"), {"M": 5, "K": 12}, {"K": 12, "N": 7}, True),
    "factors": (MatMul("K"), {"M": 5, "K": 12}, {"K": 12, "N": 7}, False),
    "stacks": (MatMul("K"), {"B": 2, "M": 5, "K": 12}, {"B": 2, "K": 12, "N": 7}, False),
}
#: What is behind them: operators, each with the kind of its operand.
CHAINS: dict[str, list[tuple[object, str]]] = {
    "bias": [(BiasAdd(), "bias")],
    "relu": [(Relu(), "")],
    "bias relu": [(BiasAdd(), "bias"), (Relu(), "")],
    "bias relu6": [(BiasAdd(), "bias"), (Relu6(), "")],
    "clip": [(Clip(0.0, 2.5), "")],
    "sum": [(Add(), "whole")],
    "bias sum relu": [(BiasAdd(), "bias"), (Add(), "whole"), (Relu(), "")],
    "relu sum": [(Relu(), ""), (Add(), "whole")],
    "bias swish": [(BiasAdd(), "bias"), (Swish(1.5), "")],
    "bias gelu": [(BiasAdd(), "bias"), (Gelu("tanh"), "")],
    "bias gelu erf": [(BiasAdd(), "bias"), (Gelu(), "")],
    "hardsigmoid": [(HardSigmoid(), "")],
    "bias hardswish sum": [(BiasAdd(), "bias"), (HardSwish(), ""), (Add(), "whole")],
    "sigmoid": [(Sigmoid(), "")],
    "sigmoid mul": [(Sigmoid(), ""), (Mul(), "whole")],
    "tanh scale bias relu": [(Tanh(), ""), (Mul(), "bias"), (Sub(), "bias"), (Relu(), "")],
    "elu": [(Elu(0.5), ""), (Times(2.0), "")],
    "mish": [(Mish(), "")],
    "abs": [(Abs(), ""), (Sqrt(), "")],
}
#: What is special about the inputs; infinity is in an operand of what is behind, if there is one;
#: a product overflows to either infinity.
SPECIAL = ("", "NaN", "inf", "-inf", "overflow", "overflow, NaN")
#: What must be taken under every cap, so that declining everything is no way to pass.
SURE = list(product(("Conv2D", "pointwise"), ("bias", "relu", "bias relu6")))
#: What must be taken under none: there bounds would not be exact.
NEVER = "relu sum"


def given(dims: dict[str, int], seed: int, constant: bool = False) -> Given:
    array = np.random.default_rng(seed).standard_normal([*dims.values()]).astype(np.float32)
    return Given(array, tuple(dims), Layout.plain(dims), constant)


def case(lead: str, chain: str, special: str = "") -> tuple[object, list[Given], Behind]:
    """An operator, all inputs, and what is behind it."""
    op, first, second, constant = LEADS[lead]
    inputs = [given(first, 1), given(second, 2, constant)]
    if special.endswith("NaN"):
        inputs[0].array.flat[0] = np.nan
    if special.startswith("overflow"):
        inputs[0].array.flat[-1] = 3e38
    [value] = definition(op, inputs)
    names = [*first] if len(first) > 2 and "C" in first else [*first, *second]
    dims = dict(zip(dict.fromkeys(d for d in names if d != "K"), value.shape, strict=True))
    last = "C" if "C" in dims else "N"
    for place, (_, kind) in enumerate(CHAINS[chain]):
        if kind:
            taken = dims if kind == "whole" else {last: dims[last]}
            inputs.append(given(taken, 3 + place, kind == "bias"))
    if special in ("inf", "-inf") and len(inputs) > 2:
        inputs[-1].array.flat[0] = float(special)
    return op, inputs, [(one, bool(kind)) for one, kind in CHAINS[chain]]


def expected(op: object, inputs: Sequence[Given], behind: Behind) -> Array:
    """The definitions, one after another, f32 between them."""
    own = len(inputs) - sum(count for _, count in behind)
    [value], rest = definition(op, inputs[:own]), iter(inputs[own:])
    dims = run("numpy", op, inputs[:own]).dims[0]
    for one, count in behind:
        before = Given(value.astype(np.float32), dims, Layout.plain(dims))
        [value] = definition(one, [before, *(next(rest) for _ in range(count))])
    return value


def faults(share: int = 1) -> Iterator[str]:
    """What is wrong, a line each; the last line counts what was taken."""
    taken = set()
    special_ones = [one for one in product(LEADS, CHAINS, SPECIAL) if one[2]]
    drawn = Random(1).sample(special_ones, len(special_ones) // share)
    for lead, chain, special in [*product(LEADS, CHAINS, [""]), *drawn]:
        with np.errstate(all="ignore"):
            op, inputs, behind = case(lead, chain, special)
        try:
            found = run("onednn", op, inputs, behind)
        except NoInvokerError:
            continue
        taken.add((lead, chain))
        if chain == NEVER:
            yield f"{lead}, {chain}: is taken"
        try:
            [value], [storage] = found.values, found.physical
            with np.errstate(all="ignore"):
                wanted = expected(op, inputs, behind)
            check_same(value, wanted, 2e-5)
            if "NaN" not in special:  # jit:avx2 multiplies it by the weights' pads, fused or not
                check_pads(storage)
        except AssertionError as fault:
            yield f"{lead}, {chain}, {special}: {str(fault).strip().splitlines()[0]}"
    yield from (f"{lead}, {chain}: is not taken" for lead, chain in set(SURE) - taken)
    yield f"{len(taken)} taken"


if __name__ == "__main__":
    limit_isa(sys.argv[1])
    print(*faults(int((sys.argv[2:] or ["1"])[0])), sep="\n")
