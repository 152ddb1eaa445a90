"""What is wrong is refused before oneDNN sees it; what has no kernel is Unimplemented."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from libdesc.onednn import _onednn as dnn
from tests.native.packing import blocked, plain

Make = Callable[[], object]


def conv(
    src: Sequence[int] = (1, 4, 5, 5),
    weights: Sequence[int] = (2, 4, 3, 3),
    dst: Sequence[int] = (1, 2, 3, 3),
    bias: Sequence[int] | None = None,
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    begin: Sequence[int] = (0, 0),
    end: Sequence[int] = (0, 0),
    **options: Any,
) -> Make:
    made = None if bias is None else plain(bias)
    return lambda: dnn.convolution(
        *(plain(src), plain(weights), made, plain(dst), strides, dilations, begin, end), **options
    )


def pool(
    src: Sequence[int] = (1, 4, 5, 5),
    dst: Sequence[int] = (1, 4, 4, 4),
    kind: str = "max",
    kernel: Sequence[int] = (2, 2),
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    begin: Sequence[int] = (0, 0),
    end: Sequence[int] = (0, 0),
) -> Make:
    return lambda: dnn.pooling(kind, plain(src), plain(dst), kernel, strides, dilations, begin, end)


def spread(
    dst: Sequence[int] = (1, 2, 7, 7),
    weights: Sequence[int] = (2, 4, 3, 3),
    end: Sequence[int] = (0, 0),
    stride: int = 1,
) -> Make:
    window = ((stride, stride), (1, 1), (0, 0), end)
    src = plain((1, 4, 5, 5))
    return lambda: dnn.deconvolution(src, plain(weights), None, plain(dst), *window)


def follow(dims: Sequence[int]) -> dnn.Attr:
    return dnn.Attr().binary("add", plain(dims))


LONG = 2**31
X = plain((2, 3, 4))
FLAT = plain((2, 3))
REPEATED = dnn.Desc.strided((2, 3), "f32", (0, 1))


def sequence(kind: str = "lstm", direction: str = "forward", **own: dnn.Desc | str | None) -> Make:
    """A network of five times, two sequences, three features and four units."""
    states, gates = plain((1, 1, 2, 4)), {"lstm": 4, "vanilla_rnn": 1}.get(kind, 3)
    given: dict[str, Any] = {
        "src_layer": plain((5, 2, 3)),
        "weights_layer": plain((1, 1, 3, gates, 4)),
        "weights_iter": plain((1, 1, 4, gates, 4)),
        "dst_layer": plain((5, 2, 4)),
        "dst_iter": states,
        "dst_iter_c": states if kind == "lstm" else None,
        "bias": plain((1, 1, gates, 4)),
    }
    return lambda: dnn.recurrent(kind, direction, **given | own)


VALID: dict[str, Make] = {
    "an lstm": sequence(),
    "a plain network": sequence("vanilla_rnn", activation="tanh"),
    "convolution": conv(),
    "pooling": pool(),
    "padded convolution": conv(dst=(1, 2, 5, 5), begin=(1, 1), end=(1, 1)),
    "grouped convolution": conv(weights=(2, 1, 2, 3, 3)),
    "deconvolution": spread(),
    "widened deconvolution": spread(dst=(1, 2, 12, 12), end=(-1, -1), stride=2),
    "resampling": lambda: dnn.resampling("linear", X, plain((2, 3, 9))),
    "prelu": lambda: dnn.prelu(X, plain((1, 3, 1)), X),
    "layer normalization": lambda: dnn.layer_normalization(X, FLAT, X, 0.1),
}

REFUSED: dict[str, tuple[Make, str]] = {
    "recurrent cell": (sequence("mlstm"), "unknown cell"),
    "recurrent direction": (sequence(direction="up"), "unknown direction"),
    "recurrent activation": (sequence("vanilla_rnn", activation="exp"), "activation"),
    "recurrent rank": (sequence(src_layer=FLAT), "rank"),
    "recurrent features": (sequence(src_layer=plain((5, 2, 4))), "weights_layer"),
    "recurrent gates": (sequence(bias=plain((1, 1, 3, 4))), "bias"),
    "recurrent directions": (sequence(direction="bidirectional"), "weights_layer"),
    "recurrent batch": (sequence(dst_iter=plain((1, 1, 3, 4))), "dst_iter"),
    "recurrent result": (sequence(dst_layer=plain((5, 2, 8))), "dst_layer"),
    "recurrent type": (sequence(bias=dnn.Desc.any((1, 1, 4, 4), "bf16")), "f32"),
    "recurrent states": (sequence(src_iter=plain((1, 1, 2, 4))), "both states"),
    "a gru with a content": (sequence("gru", dst_iter_c=plain((1, 1, 2, 4))), "only an lstm"),
    "rank 2": (conv(src=(1, 4), weights=(2, 4), dst=(1, 2)), "rank"),
    "rank 6": (conv(src=(1, 4, 1, 1, 1, 1)), "rank"),
    "weights' rank": (conv(weights=(2, 4, 3)), "rank"),
    "dst's rank": (conv(dst=(1, 2, 3)), "rank"),
    "input channels": (conv(weights=(2, 3, 3, 3)), "channels"),
    "groups do not divide": (conv(weights=(3, 1, 1, 3, 3)), "3 groups"),
    "output channels": (conv(dst=(1, 3, 3, 3)), "channels"),
    "images": (conv(dst=(2, 2, 3, 3)), "images"),
    "bias": (conv(bias=(3,)), "bias"),
    "size by the formula": (conv(dst=(1, 2, 4, 3)), "must have 3"),
    "window too large": (conv(weights=(2, 4, 7, 3)), "does not fit"),
    "window of no elements": (conv(weights=(2, 4, 0, 3)), "kernel"),
    "stride 0": (conv(strides=(0, 1)), "strides"),
    "stride count": (conv(strides=(1,)), "strides"),
    "dilation 0": (conv(dilations=(0, 1)), "dilations"),
    "negative pads": (conv(begin=(-1, 0)), "pads_begin"),
    "long pads": (conv(end=(LONG, 0)), "pads_end"),
    "long dim": (conv(src=(1, 4, LONG, 5)), "exceeds"),
    "overflowing window": (conv(dilations=(2**31 - 1, 1)), "does not fit"),
    "follower's rank": (conv(attr=follow((1, 2))), "follower"),
    "follower's dims": (conv(attr=follow((1, 2, 2, 3))), "follower"),
    "pooling kind": (pool(kind="mean"), "unknown 'mean'"),
    "pooling channels": (pool(dst=(1, 3, 4, 4)), "first two"),
    "pooling rank": (pool(src=(1, 4), dst=(1, 4)), "rank"),
    "pooling in pads": (pool(dst=(1, 4, 6, 4), begin=(2, 0)), "in the pads"),
    "pooling size": (pool(dst=(1, 4, 4, 5)), "must have 4"),
    "deconvolution size": (spread(dst=(1, 2, 7, 8)), "must have 7"),
    "deconvolution channels": (spread(weights=(2, 3, 3, 3)), "channels"),
    "deconvolution wider than a stride": (spread(dst=(1, 2, 8, 8), end=(-1, -1)), "pads_end"),
    "resampling algorithm": (lambda: dnn.resampling("cubic", X, X), "unknown 'cubic'"),
    "resampling channels": (lambda: dnn.resampling("linear", X, plain((2, 2, 4))), "first two"),
    "resampling rank": (lambda: dnn.resampling("linear", FLAT, FLAT), "rank"),
    "prelu dims": (lambda: dnn.prelu(X, X, FLAT), "equal"),
    "prelu weights": (lambda: dnn.prelu(X, plain((1, 2, 1)), X), "weights"),
    "layer normalization stat": (lambda: dnn.layer_normalization(X, X, X, 0.1), "last dim"),
    "layer normalization epsilon": (
        lambda: dnn.layer_normalization(X, FLAT, X, -1.0),
        "epsilon",
    ),
    "matmul rank 1": (lambda: dnn.matmul(*(plain((3,)),) * 2, None, plain((3,))), "rank"),
    "matmul inner": (lambda: dnn.matmul(FLAT, FLAT, None, FLAT), "times"),
    "matmul batch": (
        lambda: dnn.matmul(plain((2, 3, 4)), plain((3, 4, 5)), None, plain((2, 3, 5))),
        "times",
    ),
    "matmul bias": (
        lambda: dnn.matmul(FLAT, plain((3, 2)), plain((1, 3)), plain((2, 2))),
        "bias",
    ),
    "inner product dims": (
        lambda: dnn.inner_product(X, plain((5, 3, 5)), None, plain((2, 5))),
        "all dims but the first",
    ),
    "inner product dst": (
        lambda: dnn.inner_product(X, plain((5, 3, 4)), None, plain((5, 2))),
        "dst",
    ),
    "inner product bias": (
        lambda: dnn.inner_product(X, plain((5, 3, 4)), plain((2,)), plain((2, 5))),
        "bias",
    ),
    "eltwise algorithm": (lambda: dnn.eltwise("add", X, X), "unknown 'add'"),
    "eltwise dims": (lambda: dnn.eltwise("relu", X, FLAT), "equal"),
    "eltwise NaN": (lambda: dnn.eltwise("clip", X, X, math.nan), "alpha"),
    "eltwise no float": (lambda: dnn.eltwise("clip", X, X, 0.0, 1e39), "beta"),
    "eltwise into one element": (lambda: dnn.eltwise("relu", FLAT, REPEATED), "stride 0"),
    "eltwise of any": (lambda: dnn.eltwise("relu", dnn.Desc.any((2, 3), "f32"), FLAT), "refuses"),
    "binary dims": (lambda: dnn.binary("add", X, plain((2, 2, 4)), X), "broadcast"),
    "binary dst": (lambda: dnn.binary("add", X, plain((2, 1, 4)), plain((2, 1, 4))), "broadcast"),
    "binary rank": (lambda: dnn.binary("add", X, plain((4,)), X), "broadcast"),
    "batch norm dims": (lambda: dnn.batch_normalization(X, FLAT, 0.1), "equal"),
    "batch norm rank": (
        lambda: dnn.batch_normalization(plain((3,)), plain((3,)), 0.1),
        "rank",
    ),
    "batch norm epsilon": (lambda: dnn.batch_normalization(X, X, math.inf), "epsilon"),
    "batch norm negative": (lambda: dnn.batch_normalization(X, X, -1.0), "epsilon"),
    "softmax axis": (lambda: dnn.softmax(X, X, 3), "axis"),
    "softmax negative axis": (lambda: dnn.softmax(X, X, -1), "axis"),
    "concat nothing": (lambda: dnn.concat(0, []), "nothing"),
    "concat axis": (lambda: dnn.concat(3, [X]), "axis"),
    "concat dims": (lambda: dnn.concat(0, [X, plain((2, 3, 5))]), "join"),
    "concat rank": (lambda: dnn.concat(0, [X, FLAT]), "join"),
    "concat types": (lambda: dnn.concat(0, [X, plain((2, 3, 4), "s32")]), "holds"),
    "concat dst": (lambda: dnn.concat(0, [X, X], X), "must be 4x3x4"),
    "lrn size": (lambda: dnn.lrn("across_channels", X, X, 0, 1, 1, 1), "odd"),
    "lrn even": (lambda: dnn.lrn("across_channels", X, X, 4, 1, 1, 1), "odd"),
    "lrn algorithm": (lambda: dnn.lrn("across", X, X, 5, 1, 1, 1), "unknown"),
    "lrn alpha": (lambda: dnn.lrn("across_channels", X, X, 5, math.nan, 1, 1), "alpha"),
    "reduction dims": (lambda: dnn.reduction("sum", X, plain((2, 2, 4))), "stretch"),
    "reduction p": (lambda: dnn.reduction("norm_lp_sum", X, plain((2, 1, 4)), 0.5), "p must"),
    "reduction eps": (lambda: dnn.reduction("sum", X, plain((2, 1, 4)), 1, math.inf), "eps"),
    "reorder dims": (lambda: dnn.reorder(X, FLAT), "equal"),
    "reorder to any": (lambda: dnn.reorder(FLAT, dnn.Desc.any((2, 3), "f32")), "any"),
}


@pytest.mark.parametrize("case", VALID)
def test_the_table_starts_from_what_is_right(case: str) -> None:
    assert isinstance(VALID[case](), dnn.Primitive)


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: dnn.eltwise("relu", None, X),  # type: ignore[arg-type]
        lambda: dnn.eltwise(1, X, X),  # type: ignore[arg-type]
        lambda: dnn.convolution(X, X, "b", X, (1,), (1,), (0,), (0,)),  # type: ignore[arg-type]
        lambda: dnn.convolution(X, X, None, X, (1.5,), (1,), (0,), (0,)),  # type: ignore[arg-type]
        lambda: dnn.convolution(X, X, None, X, (2**64,), (1,), (0,), (0,)),
        lambda: dnn.concat(0, [X, None]),  # type: ignore[list-item]
        lambda: dnn.concat(2**40, [X]),
        lambda: dnn.softmax(X, X, 0, "log"),  # type: ignore[arg-type]
        lambda: dnn.Primitive(),
        lambda: dnn.set_cache_capacity(-1),
    ],
)
def test_wrong_types(make: Make) -> None:
    with pytest.raises(TypeError):
        make()


UNSUPPORTED: dict[str, tuple[Make, str]] = {
    "no kernel": (
        lambda: dnn.lrn("across_channels", plain((2, 3), "s8"), plain((2, 3), "s8"), 5, 1, 1, 1),
        "no implementation",
    ),
    "a result from nothing": (
        conv(src=(1, 0, 5, 5), weights=(2, 0, 3, 3)),
        "an input has none",
    ),
    "a sum of nothing": (lambda: dnn.reduction("sum", plain((2, 0)), plain((2, 1))), "has none"),
    "an empty part": (lambda: dnn.concat(0, [FLAT, plain((0, 3))]), "src1 has no elements"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unimplemented(case: str) -> None:
    make, message = UNSUPPORTED[case]
    with pytest.raises(dnn.Unimplemented, match=message):
        make()
    assert issubclass(dnn.Unimplemented, RuntimeError)


# Kernels of oneDNN 3.2 that overrun their memory or compute something else: never offered.


def test_binary_of_differently_padded_forms() -> None:
    padded = dnn.Desc.tag((7, 16), "u8", "AB32a16b")
    with pytest.raises(dnn.Unimplemented, match="sound"):
        dnn.binary("add", padded, padded, plain((7, 16), "u8"))


def test_reference_eltwise_of_six_dims() -> None:
    dims = (1, 1, 2, 3, 2, 3)
    gaps = dnn.Desc.strided(dims, "f32", (1, 1, 100, 13, 3, 1))
    with pytest.raises(dnn.Unimplemented, match="sound"):
        dnn.eltwise("relu", gaps, gaps)


def test_reference_softmax_that_takes_a_step_for_another() -> None:
    dims = (1, 20, 1, 5)
    src = dnn.Desc.strided(dims, "f32", (100, 5, 500, 1))
    with pytest.raises(dnn.Unimplemented, match="sound"):
        dnn.softmax(src, dnn.Desc.any(dims, "f32"), 3)


def test_reference_kernel_with_followers_on_pads() -> None:
    dims, block = (2, 15, 3), "ABc16a16b"
    src, dst = (dnn.Desc.tag(dims, "s8", block) for _ in range(2))
    window = ((1,), (1,), (1,), (0,), (0,))
    attr = dnn.Attr().binary("add", plain(dims))
    with pytest.raises(dnn.Unimplemented, match="sound"):
        dnn.pooling("max", src, dst, *window, attr)


@pytest.mark.parametrize("scattered", ["gaps", "blocks"])
def test_scattered_follower_gets_no_compiled_kernel(scattered: str) -> None:
    if scattered == "gaps":
        operand = dnn.Desc.strided((1, 48, 1, 1), "f32", (192, 4, 1, 1))
    else:
        operand = dnn.Desc.tag((1, 48, 1, 1), "f32", "BAcd16a16b")
    dense = (plain((1, 48, 4, 4)), dnn.Desc.any((48, 48, 1, 1), "f32"))
    window = ((1, 1), (1, 1), (0, 0), (0, 0))
    primitive = dnn.convolution(*dense, None, dense[0], *window, dnn.Attr().binary("add", operand))
    assert primitive.kernel == "ref:any"
    usual = dnn.Attr().binary("add", blocked((1, 48, 1, 1)))
    assert dnn.convolution(*dense, None, dense[0], *window, usual).kernel != "ref:any"
