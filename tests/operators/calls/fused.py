"""Faults of what is fused behind an operator on oneDNN, against the definitions one by one.

Outputs are full of NaN before; inputs have NaN or infinity among them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import numpy as np

import ops
from tests.operators.calls.levels import check_same
from tests.operators.harness import Behind, Given, check_pads, definition, plain, run
from tests.operators.tables.cases import dims_of
from vtensor.errors import NoInvokerError

IMAGE, FEW, MANY = "N=2 C=6 H=5 W=4", "N=2 C=5 H=5 W=4", "N=1 C=32 H=6 W=6"
STEM = ops.Conv2D(strides=(2, 2), pads=(1, 1, 1, 1))
#: Operators and their inputs, of which ! marks a constant. Channels leave pads in blocks.
LEADS: dict[str, tuple[Any, str, str]] = {
    "stem": (STEM, "N=1 C=3 H=9 W=8", "!O=20 I=3 h=3 w=3"),
    "Conv2D": (ops.Conv2D(pads=(1, 1, 1, 1)), MANY, "!O=40 I=32 h=3 w=3"),
    "pointwise": (ops.Conv2D(), MANY, "!O=64 I=32 h=1 w=1"),
    "groups": (ops.Conv2D(group=2), IMAGE, "!G=2 O=5 I=3 h=2 w=2"),
    "depthwise": (ops.DepthwiseConv2D(), IMAGE, "!G=6 O=1 I=1 h=3 w=3"),
    "Conv1D": (ops.Conv1D(), "N=1 C=6 W=9", "!O=5 I=6 w=3"),
    "Conv3D": (ops.Conv3D(), "D=3 N=2 C=6 H=5 W=4", "!O=5 I=6 d=2 h=2 w=2"),
    "few channels": (ops.Conv2D(), FEW, "!O=7 I=5 h=3 w=3"),
    "ConvTranspose": (ops.ConvTranspose(), IMAGE, "!I=6 O=5 h=2 w=2"),
    "many back": (ops.ConvTranspose(), MANY, "!I=32 O=64 h=3 w=3"),
    "weights": (ops.MatMul("K"), "M=5 K=12", "!K=12 N=7"),
    "factors": (ops.MatMul("K"), "M=5 K=12", "K=12 N=7"),
    "stacks": (ops.MatMul("K"), "B=2 M=5 K=12", "B=2 K=12 N=7"),
}
BIAS, RELU, SUM = (ops.BiasAdd(), "bias"), (ops.Relu(), ""), (ops.Add(), "whole")
#: What is behind them: operators, each with the kind of its operand.
CHAINS: dict[str, list[tuple[object, str]]] = {
    "bias": [BIAS],
    "relu": [RELU],
    "bias relu": [BIAS, RELU],
    "bias relu6": [BIAS, (ops.Relu6(), "")],
    "clip": [(ops.Clip(0.0, 2.5), "")],
    "sum": [SUM],
    "bias sum relu": [BIAS, SUM, RELU],
    "relu sum": [RELU, SUM],
    "bias swish": [BIAS, (ops.Swish(1.5), "")],
    "bias gelu": [BIAS, (ops.Gelu("tanh"), "")],
    "bias gelu erf": [BIAS, (ops.Gelu(), "")],
    "hardsigmoid": [(ops.HardSigmoid(), "")],
    "bias hardswish sum": [BIAS, (ops.HardSwish(), ""), SUM],
    "sigmoid": [(ops.Sigmoid(), "")],
    "sigmoid mul": [(ops.Sigmoid(), ""), (ops.Mul(), "whole")],
    "tanh scale bias relu": [(ops.Tanh(), ""), (ops.Mul(), "bias"), (ops.Sub(), "bias"), RELU],
    "elu": [(ops.Elu(0.5), ""), (ops.Times(2.0), "")],
    "mish": [(ops.Mish(), "")],
    "abs": [(ops.Abs(), ""), (ops.Sqrt(), "")],
}
#: What is special about the inputs; infinity is in an operand of what is behind, if there is one;
#: a product overflows to either infinity.
SPECIAL = ("", "NaN", "inf", "-inf", "overflow", "overflow, NaN")
#: What must be taken under every cap, so that declining everything is no way to pass.
SURE = list(product(("Conv2D", "pointwise"), ("bias", "relu", "bias relu6")))
#: What must be taken under none: there bounds would not be exact.
NEVER = "relu sum"


def given(dims: dict[str, int], seed: int, constant: bool = False) -> Given:
    """Return an input of these sizes."""
    array = np.random.default_rng(seed).standard_normal([*dims.values()]).astype(np.float32)
    return plain(array, " ".join(dims), constant)


def case(lead: str, chain: str, special: str = "") -> tuple[object, list[Given], Behind]:
    """Return an operator, all inputs, and its followers."""
    op, *texts = LEADS[lead]
    inputs = [given(dims_of(text), 1 + place, "!" in text) for place, text in enumerate(texts)]
    if special.endswith("NaN"):
        inputs[0].array.flat[0] = np.nan
    if special.startswith("overflow"):
        inputs[0].array.flat[-1] = 3e38
    outcome = run("numpy", op, inputs)
    dims = dict(zip(outcome.dims[0], outcome.values[0].shape, strict=True))
    last = "C" if "C" in dims else "N"
    for place, (_, kind) in enumerate(CHAINS[chain]):
        if kind:
            taken = dims if kind == "whole" else {last: dims[last]}
            inputs.append(given(taken, 3 + place, kind == "bias"))
    if special in ("inf", "-inf") and len(inputs) > 2:
        inputs[-1].array.flat[0] = float(special)
    return op, inputs, [(follower, bool(kind)) for follower, kind in CHAINS[chain]]


def faults(share: int = 1) -> Iterator[str]:
    """Yield what is wrong, and an empty text for each pair that is taken.

    Of the calls with special inputs, one in ``share`` is drawn.
    """
    taken = set()
    specials = list(product(LEADS, CHAINS, SPECIAL[1:]))
    drawn = Random(1).sample(specials, len(specials) // share)
    for lead, chain, special in [*product(LEADS, CHAINS, [""]), *drawn]:
        with np.errstate(all="ignore"):
            op, inputs, behind = case(lead, chain, special)
        try:
            outcome = run("onednn", op, inputs, behind)
        except NoInvokerError:
            continue
        taken.add((lead, chain))
        if chain == NEVER:
            yield f"{lead}, {chain}: is taken"
        try:
            with np.errstate(all="ignore"):
                [wanted] = definition(op, inputs, behind, between="f4")
            check_same(outcome.values[0], wanted, 2e-5)
            if "NaN" not in special:  # jit:avx2 multiplies it by the weights' pads, fused or not
                check_pads(outcome.physical[0])
        except AssertionError as fault:
            yield f"{lead}, {chain}, {special}: {str(fault).strip().splitlines()[0]}"
    yield from (f"{lead}, {chain}: is not taken" for lead, chain in set(SURE) - taken)
    yield from ("" for _ in taken)
