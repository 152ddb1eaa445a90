"""What is wrong is refused before oneDNN or our own convolutions see it.

What has no kernel is Unimplemented.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

import libdesc.winograd
from libdesc.onednn import _onednn as dnn
from libdesc.winograd import native
from tests.libraries.processes import printed
from tests.native.packing import blocked, plain
from tests.native.refusing import HUGE, LARGEST, call, cases

LONG = 2**31
NAN = math.nan


def d(*dims: int) -> dnn.Desc:
    return plain(dims)


X, FLAT, ANY = d(2, 3, 4), d(2, 3), dnn.Desc.any((2, 3), "f32")
PLAIN = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
CONV: dict[str, Any] = {
    "src": d(1, 4, 5, 5), "weights": d(2, 4, 3, 3), "bias": None, "dst": d(1, 2, 3, 3), **PLAIN,
    "attr": None,
}  # fmt: skip
#: Five times, two sequences, three features and four units.
LSTM: dict[str, Any] = {
    "kind": "lstm", "direction": "forward", "src_layer": d(5, 2, 3),
    "weights_layer": d(1, 1, 3, 4, 4), "weights_iter": d(1, 1, 4, 4, 4), "bias": d(1, 1, 4, 4),
    "src_iter": None, "dst_layer": d(5, 2, 4), "dst_iter": d(1, 1, 2, 4),
    "dst_iter_c": d(1, 1, 2, 4), "activation": "",
}  # fmt: skip
STATES = {"dst_iter_c": None}
GRU = LSTM | STATES | {
    "kind": "gru", "weights_layer": d(1, 1, 3, 3, 4), "weights_iter": d(1, 1, 4, 3, 4),
    "bias": d(1, 1, 3, 4),
}  # fmt: skip
RNN = LSTM | STATES | {
    "kind": "vanilla_rnn", "weights_layer": d(1, 1, 3, 1, 4), "weights_iter": d(1, 1, 4, 1, 4),
    "bias": d(1, 1, 1, 4), "activation": "tanh",
}  # fmt: skip
WINOGRAD: dict[str, Any] = {
    "images": 1, "channels": 16, "outputs": 16, "groups": 1, "src": [8, 8], "dst": [8, 8],
    "begin": [1, 1], "taps": [3, 3], "results": [4, 4], "step": 1, "src_block": 0, "dst_block": 0,
    "bias": False, "other": False, "low": 0.0, "high": 1.0,
}  # fmt: skip
DEPTHWISE: dict[str, Any] = {
    "images": 1, "channels": 16, "src": [8, 8], "dst": [4, 4], "begin": [1, 1], "taps": [3, 3],
    "strides": [2, 2], "src_block": 0, "dst_block": 0, "bias": False, "other": False, "low": 0.0,
    "high": 1.0,
}  # fmt: skip

#: Arguments that are taken, by a function, whose name is the last word.
RIGHT: dict[str, dict[str, Any]] = {
    "convolution": CONV,
    "padded convolution": CONV | {"dst": d(1, 2, 5, 5), "pads_begin": (1, 1), "pads_end": (1, 1)},
    "grouped convolution": CONV | {"weights": d(2, 1, 2, 3, 3)},
    "pooling": PLAIN | {
        "kind": "max", "src": d(1, 4, 5, 5), "dst": d(1, 4, 4, 4), "kernel": (2, 2), "attr": None,
    },
    "deconvolution": CONV | {"dst": d(1, 2, 7, 7)},
    "widened deconvolution": CONV | {
        "dst": d(1, 2, 12, 12), "pads_end": (-1, -1), "strides": (2, 2),
    },
    "lstm recurrent": LSTM,
    "gru recurrent": GRU,
    "rnn recurrent": RNN,
    "resampling": {"alg": "linear", "src": X, "dst": d(2, 3, 9)},
    "prelu": {"src": X, "weights": d(1, 3, 1), "dst": X},
    "layer_normalization": {"src": X, "stat": FLAT, "dst": X, "epsilon": 0.1},
    "matmul": {"src": FLAT, "weights": d(3, 2), "bias": None, "dst": d(2, 2)},
    "inner_product": {"src": X, "weights": d(5, 3, 4), "bias": None, "dst": d(2, 5)},
    "eltwise": {"alg": "clip", "src": X, "dst": X, "alpha": 0.0, "beta": 1.0},
    "binary": {"alg": "add", "src0": X, "src1": X, "dst": X},
    "batch_normalization": {"src": X, "dst": X, "epsilon": 0.1},
    "softmax": {"src": X, "dst": X, "axis": 0, "log": False},
    "concat": {"axis": 0, "srcs": [X, X], "dst": None},
    "lrn": {
        "alg": "across_channels", "src": X, "dst": X, "size": 5, "alpha": 1, "beta": 1, "k": 1,
    },
    "reduction": {"alg": "norm_lp_sum", "src": X, "dst": d(2, 1, 4), "p": 1.0, "eps": 0.0},
    "reorder": {"src": FLAT, "dst": FLAT},
    "winograd": WINOGRAD,
    "point winograd": WINOGRAD | {"taps": [1, 1], "results": [1, 1], "begin": [0, 0]},
    "blocked winograd": WINOGRAD | {"step": 2, "src_block": 1},
    "depthwise": DEPTHWISE,
    "direct": DEPTHWISE | {"channels": 3, "outputs": 16, "src_block": 1},
}  # fmt: skip


def attempt(name: str, change: dict[str, Any]) -> Any:
    """Call a function of oneDNN's, or of our own convolutions, with one thing changed."""
    kernels, of = native.load(), name.split()[-1]
    ours: dict[str, Any] = {"winograd": kernels.convolution, "depthwise": kernels.depthwise}
    return call(
        (ours | {"direct": kernels.direct}).get(of) or getattr(dnn, of), RIGHT[name], change
    )


def follow(*dims: int) -> dict[str, dnn.Attr]:
    return {"attr": dnn.Attr().binary("add", d(*dims))}


OVER, ABOVE, VECTORS, TWO = "overflow", "not above 0", "whole vectors", "two spatial dims"
FORM, LARGE, NOTHING = "no such form", "as large as the filter", "hold nothing"
REFUSED = [
    ("lstm recurrent", "unknown cell", {"kind": "mlstm"}),
    ("lstm recurrent", "unknown direction", {"direction": "up"}),
    ("lstm recurrent", "rank", {"src_layer": FLAT}),
    ("lstm recurrent", "weights_layer", {"src_layer": d(5, 2, 4)}, {"direction": "bidirectional"}),
    ("lstm recurrent", "bias", {"bias": d(1, 1, 3, 4)}),
    ("lstm recurrent", "dst_iter", {"dst_iter": d(1, 1, 3, 4)}),
    ("lstm recurrent", "dst_layer", {"dst_layer": d(5, 2, 8)}),
    ("lstm recurrent", "f32", {"bias": dnn.Desc.any((1, 1, 4, 4), "bf16")}),
    ("lstm recurrent", "both states", {"src_iter": d(1, 1, 2, 4)}),
    ("gru recurrent", "only an lstm", {"dst_iter_c": d(1, 1, 2, 4)}),
    ("rnn recurrent", "activation", {"activation": "exp"}),
    ("convolution", "rank", {"src": d(1, 4), "weights": d(2, 4), "dst": d(1, 2)}),
    ("convolution", "rank", {"src": d(1, 4, 1, 1, 1, 1)}, {"weights": d(2, 4, 3)}),
    ("convolution", "rank", {"dst": d(1, 2, 3)}),
    ("convolution", "channels", {"weights": d(2, 3, 3, 3)}, {"dst": d(1, 3, 3, 3)}),
    ("convolution", "3 groups", {"weights": d(3, 1, 1, 3, 3)}),
    ("convolution", "images", {"dst": d(2, 2, 3, 3)}),
    ("convolution", "bias", {"bias": d(3)}),
    ("convolution", "must have 3", {"dst": d(1, 2, 4, 3)}),
    ("convolution", "does not fit", {"weights": d(2, 4, 7, 3)}, {"dilations": (LONG - 1, 1)}),
    ("convolution", "kernel", {"weights": d(2, 4, 0, 3)}),
    ("convolution", "strides", {"strides": (0, 1)}, {"strides": (1,)}),
    ("convolution", "dilations", {"dilations": (0, 1)}),
    ("convolution", "pads_begin", {"pads_begin": (-1, 0)}),
    ("convolution", "pads_end", {"pads_end": (LONG, 0)}),
    ("convolution", "exceeds", {"src": d(1, 4, LONG, 5)}),
    ("convolution", "follower", follow(1, 2), follow(1, 2, 2, 3)),
    ("pooling", "unknown 'mean'", {"kind": "mean"}),
    ("pooling", "first two", {"dst": d(1, 3, 4, 4)}),
    ("pooling", "rank", {"src": d(1, 4), "dst": d(1, 4)}),
    ("pooling", "in the pads", {"dst": d(1, 4, 6, 4), "pads_begin": (2, 0)}),
    ("pooling", "must have 4", {"dst": d(1, 4, 4, 5)}),
    ("deconvolution", "must have 7", {"dst": d(1, 2, 7, 8)}),
    ("deconvolution", "channels", {"weights": d(2, 3, 3, 3)}),
    ("deconvolution", "pads_end", {"dst": d(1, 2, 8, 8), "pads_end": (-1, -1)}),
    ("resampling", "unknown 'cubic'", {"alg": "cubic", "dst": X}),
    ("resampling", "first two", {"dst": d(2, 2, 4)}),
    ("resampling", "rank", {"src": FLAT, "dst": FLAT}),
    ("prelu", "equal", {"weights": X, "dst": FLAT}),
    ("prelu", "weights", {"weights": d(1, 2, 1)}),
    ("layer_normalization", "last dim", {"stat": X}),
    ("layer_normalization", "epsilon", {"epsilon": -1.0}),
    ("matmul", "rank", {"src": d(3), "weights": d(3), "dst": d(3)}),
    ("matmul", "times", {"weights": FLAT, "dst": FLAT}),
    ("matmul", "times", {"src": X, "weights": d(3, 4, 5), "dst": d(2, 3, 5)}),
    ("matmul", "bias", {"bias": d(1, 3)}),
    ("inner_product", "all dims but the first", {"weights": d(5, 3, 5)}),
    ("inner_product", "dst", {"dst": d(5, 2)}),
    ("inner_product", "bias", {"bias": d(2)}),
    ("eltwise", "unknown 'add'", {"alg": "add"}),
    ("eltwise", "equal", {"dst": FLAT}),
    ("eltwise", "alpha", {"alpha": NAN}),
    ("eltwise", "beta", {"beta": 1e39}),
    ("eltwise", "stride 0", {"src": FLAT, "dst": dnn.Desc.strided((2, 3), "f32", (0, 1))}),
    ("eltwise", "refuses", {"src": ANY, "dst": FLAT}),
    ("binary", "broadcast", {"src1": d(2, 2, 4)}, {"src1": d(4)}),
    ("binary", "broadcast", {"src1": d(2, 1, 4), "dst": d(2, 1, 4)}),
    ("batch_normalization", "equal", {"dst": FLAT}),
    ("batch_normalization", "rank", {"src": d(3), "dst": d(3)}),
    ("batch_normalization", "epsilon", {"epsilon": math.inf}, {"epsilon": -1.0}),
    ("softmax", "axis", {"axis": 3}, {"axis": -1}),
    ("concat", "nothing", {"srcs": []}),
    ("concat", "axis", {"axis": 3}),
    ("concat", "join", {"srcs": [X, d(2, 3, 5)]}, {"srcs": [X, FLAT]}),
    ("concat", "holds", {"srcs": [X, plain((2, 3, 4), "s32")]}),
    ("concat", "must be 4x3x4", {"dst": X}),
    ("lrn", "odd", {"size": 0}, {"size": 4}),
    ("lrn", "unknown", {"alg": "across"}),
    ("lrn", "alpha", {"alpha": NAN}),
    ("reduction", "stretch", {"alg": "sum", "dst": d(2, 2, 4)}),
    ("reduction", "p must", {"p": 0.5}),
    ("reduction", "eps", {"alg": "sum", "eps": math.inf}),
    ("reorder", "equal", {"src": X}),
    ("reorder", "any", {"dst": ANY}),
    ("winograd", ABOVE, {"channels": 0}, {"dst": [8, -1]}),
    ("winograd", TWO, {"src": [8]}),
    ("winograd", "negative", {"begin": [-1, 0]}),
    ("winograd", FORM, {"taps": [5, 5]}, {"results": [4, 6]}),
    ("winograd", FORM, {"step": 2, "taps": [1, 3], "results": [1, 4]}),
    ("winograd", "steps are 1 or 2", {"step": 3}),
    ("winograd", VECTORS, {"src_block": 1}, {"src_block": 3}, {"step": 2, "dst_block": 1}),
    ("winograd", VECTORS, {"groups": 2, "channels": 6, "outputs": 6}),
    ("winograd", NOTHING, {"low": 2.0}, {"low": NAN}),
    ("winograd", OVER, {"step": 2, "dst": [HUGE, 8]}, {"outputs": HUGE}, {"begin": [LARGEST, 0]}),
    ("winograd", OVER, {"src": [LONG, LONG], "channels": LONG}),
    ("winograd", OVER, {"groups": 2, "channels": HUGE, "outputs": HUGE}),
    ("winograd", "as many outputs", {"groups": 0}, {"groups": 3}, {"groups": 2, "outputs": 32}),
    ("winograd", "no such form of groups", {"groups": 2, "taps": [1, 3], "results": [1, 4]}),
    ("point winograd", "changes its size", {"begin": [0, 1]}, {"dst": [8, 7]}),
    ("point winograd", OVER, {"channels": 1 << 60}),
    ("depthwise", ABOVE, {"channels": 0}, {"strides": [0, 1]}, {"taps": [-1, 3]}),
    ("depthwise", TWO, {"taps": [3]}),
    ("depthwise", "negative", {"begin": [-1, 0]}),
    ("depthwise", LARGE, {"begin": [3, 0]}),
    ("depthwise", "3, 5 or 7 taps", {"taps": [3, 4]}),
    ("depthwise", "1 or 2", {"strides": [2, 3], "dst": [4, 3]}),
    ("depthwise", "sees nothing", {"dst": [4, 6]}),
    ("depthwise", VECTORS, {"dst_block": 3}),
    ("depthwise", NOTHING, {"low": NAN}),
    ("depthwise", OVER, {"src": [LONG, LONG], "channels": LONG}, {"taps": [1 << 60, 3]}),
    ("depthwise", OVER, {"dst": [HUGE, 4], "strides": [HUGE, 2]}),
    ("direct", ABOVE, {"channels": 0}, {"outputs": 0}, {"strides": [0, 1]}, {"taps": [-1, 3]}),
    ("direct", TWO, {"taps": [3]}),
    ("direct", "negative", {"begin": [-1, 0]}),
    ("direct", LARGE, {"begin": [0, 3]}),
    ("direct", "1, 2 or 4", {"strides": [2, 3], "dst": [4, 3]}),
    ("direct", "sees nothing", {"dst": [4, 6]}),
    ("direct", "channels lie apart", {"src_block": 0}),
    ("direct", VECTORS, {"dst_block": 1}),
    ("direct", "window is too large", {"channels": 1000}),
    ("direct", NOTHING, {"low": NAN}),
    ("direct", OVER, {"src": [LONG, LONG]}, {"outputs": HUGE}, {"channels": 1 << 60}),
    ("direct", OVER, {"strides": [2, HUGE], "dst": [4, 1]}),
    ("direct", OVER, {"dst": [HUGE, 4], "strides": [HUGE, 2]}),
]


@cases(REFUSED)
def test_what_is_wrong_is_refused(name: str, reason: str, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=reason):
        attempt(name, change)


@pytest.mark.parametrize("name", RIGHT)
def test_the_same_without_a_fault_is_taken(name: str) -> None:
    assert attempt(name, {}).kernel


#: Kernels of oneDNN 3.2 that overrun their memory or compute something else are not sound: never
#: offered.
GAPS = dnn.Desc.strided((1, 1, 2, 3, 2, 3), "f32", (1, 1, 100, 13, 3, 1))
TAKEN_FOR_ANOTHER = dnn.Desc.strided((1, 20, 1, 5), "f32", (100, 5, 500, 1))
SERIES = {"kernel": (1,), "strides": (1,), "dilations": (1,), "pads_begin": (0,), "pads_end": (0,)}
PADDED, PADS = dnn.Desc.tag((7, 16), "u8", "AB32a16b"), dnn.Desc.tag((2, 15, 3), "s8", "ABc16a16b")


@cases(
    [
        ("lrn", "no implementation", dict.fromkeys(("src", "dst"), plain((2, 3), "s8"))),
        ("convolution", "an input has none", {"src": d(1, 0, 5, 5), "weights": d(2, 0, 3, 3)}),
        ("reduction", "has none", {"alg": "sum", "src": d(2, 0), "dst": d(2, 1)}),
        ("concat", "src1 has no elements", {"srcs": [FLAT, d(0, 3)]}),
        ("binary", "sound", {"src0": PADDED, "src1": PADDED, "dst": plain((7, 16), "u8")}),
        ("eltwise", "sound", {"alg": "relu", "src": GAPS, "dst": GAPS}),
        ("pooling", "sound", {"src": PADS, "dst": PADS, **SERIES, **follow(2, 15, 3)}),
        (
            *("softmax", "sound"),
            {"src": TAKEN_FOR_ANOTHER, "dst": dnn.Desc.any((1, 20, 1, 5), "f32"), "axis": 3},
        ),
    ]
)
def test_what_has_no_sound_kernel_is_unimplemented(
    name: str, reason: str, change: dict[str, Any]
) -> None:
    assert issubclass(dnn.Unimplemented, RuntimeError)
    with pytest.raises(dnn.Unimplemented, match=reason):
        attempt(name, change)


@pytest.mark.parametrize(
    ("operand", "compiled"),
    [
        (dnn.Desc.strided((1, 48, 1, 1), "f32", (192, 4, 1, 1)), False),
        (dnn.Desc.tag((1, 48, 1, 1), "f32", "BAcd16a16b"), False),
        (blocked((1, 48, 1, 1)), True),
    ],
    ids=["gaps", "blocks", "dense"],
)
def test_a_scattered_follower_gets_no_compiled_kernel(operand: dnn.Desc, compiled: bool) -> None:
    image, weights = d(1, 48, 4, 4), dnn.Desc.any((48, 48, 1, 1), "f32")
    attr = dnn.Attr().binary("add", operand)
    primitive = dnn.convolution(image, weights, None, image, **PLAIN, attr=attr)
    assert (primitive.kernel != "ref:any") == compiled


def test_importing_the_routine_of_winograd_loads_nothing() -> None:
    code = "import sys, libdesc.winograd as w; print(any('_winograd_' in m for m in sys.modules))"
    assert printed("-c", code).strip() == "False"
    assert libdesc.winograd.Convolution.inexact
