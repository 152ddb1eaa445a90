"""Nodes of ONNX's operators that reduce, pick, put together and resize."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from ops._learned import ML
from tests.operators.tables.nodes import IMAGE, fed, floats, integers, node, numbers, twice

LONG = TensorProto.INT64
SQUARE = (1, 2, 5, 6)
ROWS = integers(1, 1, 0, 3, 2, 2).reshape(3, 2)
NONE = np.zeros(0, np.float32)
REDUCTIONS = ("Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")

MODE, RATIO = "coordinate_transformation_mode", "keep_aspect_ratio_policy"
CROPPED = numbers(0, 0, 0.2, -0.1, 1, 1, 0.9, 1.3)
CROP: dict[str, Any] = {MODE: "tf_crop_and_resize", "extrapolation_value": 9.0}
OUTSIDE: dict[str, Any] = {"exclude_outside": 1, "cubic_coeff_a": -0.5}

SHAPES = [
    *(node(f"Reduce{name}", 11, IMAGE, axes=[2, -1], keepdims=0) for name in REDUCTIONS),
    *(node(f"Reduce{name}", 12, IMAGE, axes=[1]) for name in REDUCTIONS),
    *(node(f"Reduce{name}", 18, (2, 3, 4), integers(-1)) for name in REDUCTIONS),
    *(node(f"Reduce{name}", 18, (2, 3), keepdims=0) for name in REDUCTIONS),
    node("ReduceSum", 13, IMAGE, integers(0, 3), keepdims=0),
    node("ReduceSum", 13, (2, 3), integers(), noop_with_empty_axes=1),
    node("ReduceLogSum", 18, (2, 3, 0), integers(1)),
    node("Slice", 9, IMAGE, starts=[1, -3], ends=[5, 99], axes=[1, 3]),
    node("Slice", 9, IMAGE, starts=[1, 2], ends=[2, 4]),
    node("Slice", 10, IMAGE, integers(-1), integers(-99), integers(2), integers(-2)),
    node("Slice", 11, IMAGE, integers(5), integers(3), integers(1)),
    node("Slice", 13, (5,), integers(-99), integers(-99), integers(0), integers(-1)),
    node("Slice", 13, IMAGE, integers(2**62), integers(-(2**62)), integers(3), integers(-1)),
    node("Split", 11, IMAGE, axis=1, outputs=3),
    node("Split", 11, IMAGE, axis=-1, split=[3, 5], outputs=2),
    node("Split", 13, IMAGE, integers(2, 4), axis=1, outputs=2),
    node("Split", 18, (7, 2), num_outputs=3, outputs=3),
    node("Pad", 7, IMAGE, pads=[0, 1, 2, 0, 0, 0, 1, 3], value=2.5),
    node("Pad", 7, IMAGE, pads=[0, 1, 2, 0, 0, 0, 1, 3], mode="reflect"),
    node("Pad", 11, (3, 4), integers(1, 0, 2, 1), mode="edge"),
    node("Pad", 13, (3, 4), integers(-1, 1, 0, -2), np.array(1.5, "f4")),
    node("Pad", 18, IMAGE, integers(1, 2, 0, 1), None, integers(-1, 1)),
    node("Pad", 19, (3, 4), integers(0, 2, 1, 2), mode="wrap"),
    node("Gather", 7, (5, 3, 4), integers(0, 4, 2), axis=1 - 1),
    node("Gather", 11, (5, 3, 4), integers(-1, 0).reshape(1, 2), axis=-2),
    node("Gather", 13, (5, 3), np.array(2), axis=1),
    node("GatherElements", 11, (3, 4), integers(0, -1, 2, 1).reshape(2, 2), axis=1),
    node("GatherElements", 13, (3, 4), integers(0, -1, 2, 1).reshape(1, 4)),
    node("GatherND", 11, (3, 4, 5), integers(2, 1, 0, -1).reshape(2, 2)),
    node("GatherND", 12, (3, 4, 5), integers(2, 1, 0).reshape(3, 1), batch_dims=1),
    node("GatherND", 13, (2, 3, 4), integers(2, 1, 0, 3).reshape(2, 1, 2), batch_dims=1),
    node("Scatter", 9, (3, 4), integers(1, 0, 2, 1).reshape(2, 2), (2, 2), axis=1),
    node("ScatterElements", 11, (3, 4), integers(1, -1).reshape(1, 2), (1, 2)),
    *(
        node("ScatterElements", 18, (3, 4), ROWS, (3, 2), axis=1, reduction=how)
        for how in ("add", "mul", "max", "min")
    ),
    node("ScatterElements", 16, (3, 4), ROWS, (3, 2), axis=1, reduction="add"),
    node("ScatterND", 11, (3, 4, 5), integers(2, 1, 0, -1).reshape(2, 2), (2, 5)),
    node("ScatterND", 13, (3, 4), integers(2).reshape(1, 1), (1, 4)),
    node("ScatterND", 16, (3, 4), integers(2, 2).reshape(2, 1), (2, 4), reduction="mul"),
    node("ScatterND", 18, (3, 4), integers(2, 2).reshape(2, 1), (2, 4), reduction="max"),
    node("EyeLike", 9, (3, 4), k=1),
    node("Einsum", 12, (2, 3, 4), (2, 4, 5), equation="bij, bjk -> bik"),
    node("Einsum", 12, (3, 4), floats(4, 5), equation="ij,jk"),
    node("Einsum", 12, (2, 4, 4), equation="...ii->...i"),
    twice(node("Einsum", 12, (4, 4), equation="ij,ij->")),
    node("Einsum", 12, (3, 4), equation="ij->ji"),
    node("Einsum", 12, (3, 2, 4), (2,), equation="a...b,...->b...a"),
    node("EyeLike", 9, (4, 3), dtype=LONG),
    node("Expand", 8, (3, 1), integers(2, 1, 4)),
    node("Expand", 13, (2, 3, 1), integers(4)),
    node("Expand", 13, (3, 1), integers(3, 4)),
    node("Tile", 7, (3, 4), integers(2, 1)),
    node("Tile", 13, (3, 4), integers(1, 3)),
    node("DepthToSpace", 7, (2, 12, 3, 2), blocksize=2),
    node("DepthToSpace", 11, (2, 12, 3, 2), blocksize=2, mode="CRD"),
    node("DepthToSpace", 13, (2, 18, 3, 2), blocksize=3, mode="DCR"),
    node("SpaceToDepth", 7, (2, 3, 6, 4), blocksize=2),
    node("SpaceToDepth", 13, (2, 3, 6, 9), blocksize=3),
    node("ArgMax", 7, IMAGE, axis=1),
    node("ArgMax", 12, (2, 3), axis=-1, keepdims=0, select_last_index=1),
    node("ArgMin", 11, (2, 3), keepdims=0),
    node("ArgMin", 13, IMAGE, axis=2),
    node("TopK", 7, IMAGE, k=3, axis=1, outputs=2),
    node("TopK", 10, IMAGE, integers(2), outputs=2),
    node("TopK", 11, IMAGE, integers(9), axis=2, largest=0, outputs=2),
    node("Upsample", 7, SQUARE, scales=[1.0, 1.0, 2.0, 3.0]),
    node("Upsample", 7, SQUARE, scales=[1.0, 1.0, 2.0, 1.5], mode="linear"),
    node("Upsample", 9, SQUARE, numbers(1, 1, 2, 2)),
    node("Resize", 10, SQUARE, numbers(1, 1, 0.6, 2.5)),
    node("Resize", 10, SQUARE, numbers(1, 1, 2, 0.5), mode="linear"),
    *(
        node("Resize", 11, SQUARE, NONE, numbers(1, 1, 1.6, 0.7), mode=mode, **more)
        for mode in ("linear", "cubic")
        for more in ({}, {MODE: "asymmetric"})
    ),
    *(
        node("Resize", 13, SQUARE, NONE, numbers(1, 1, 1.5, 0.75), nearest_mode=rounding)
        for rounding in ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor")
    ),
    *(
        node("Resize", 11, SQUARE, NONE, NONE, integers(1, 2, 9, 3), mode="linear", **more)
        for more in ({}, {MODE: "align_corners"})
    ),
    node("Resize", 11, SQUARE, NONE, NONE, integers(1, 2, 9, 1), **{MODE: "pytorch_half_pixel"}),
    node("Resize", 11, SQUARE, NONE, numbers(1, 1, 2, 2), **{MODE: "tf_half_pixel_for_nn"}),
    node("Resize", 19, SQUARE, NONE, NONE, integers(*SQUARE), mode="cubic"),
    node("Resize", 13, SQUARE, CROPPED, NONE, integers(1, 2, 4, 7), mode="linear", **CROP),
    node("Resize", 13, SQUARE, NONE, numbers(1, 1, 1.7, 0.7), mode="cubic", **OUTSIDE),
    *(
        node("Resize", 18, SQUARE, None, numbers(0.4, 0.6), mode=mode, antialias=1, axes=[-2, -1])
        for mode in ("linear", "cubic")
    ),
    *(
        node("Resize", 18, SQUARE, None, None, integers(4, 12), axes=[2, 3], **{RATIO: policy})
        for policy in ("not_larger", "not_smaller")
    ),
    node("Resize", 19, SQUARE, None, numbers(0.45), axes=[3], **{MODE: "half_pixel_symmetric"}),
    node("CumSum", 11, IMAGE, np.array(2)),
    node("CumSum", 14, (4, 5), np.array(-1), exclusive=1, reverse=1),
    node("Trilu", 14, (2, 3, 4)),
    node("Trilu", 14, (4, 3), np.array(-1), upper=0),
    node("NonZero", 9, IMAGE),
    node("Unique", 11, (3, 4), outputs=4),
    node("Unique", 11, (3, 4), axis=0, sorted=0, outputs=4),
    node("NonMaxSuppression", 10, (1, 9, 4), (1, 2, 9), integers(3), numbers(0.5), numbers(0.0)),
    node("NonMaxSuppression", 10, (1, 9, 4), (1, 2, 9)),
    node("NonMaxSuppression", 11, (1, 9, 4), (1, 2, 9), integers(3), center_point_box=1),
    *(
        fed(
            f"{ML}LabelEncoder",
            opset,
            integers(3, 1, 9),
            keys_int64s=[1, 3],
            values_floats=[5.0, 7.0],
        )
        for opset in (2, 4)
    ),
    node("Compress", 9, (3, 4), np.array([True, False, True])),
    node("Compress", 11, (3, 4), np.array([True, False, True]), axis=-1),
    node("OneHot", 9, integers(3, 1, 0), np.array(4), (2,), axis=0),
    node("OneHot", 11, integers(3, 1, 0, 9).reshape(2, 2), np.array(4), (2,)),
]
