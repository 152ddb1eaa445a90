"""What is wrong is refused when a kernel on Eigen is made, before it sees any memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from libdesc.eigen import native
from tests.native.refusing import HUGE, LARGEST, call, cases
from vtensor.runtime import _replay

kernels = native.load()

BOX: dict[str, Any] = {
    "source": 0, "shape": (2, 3), "start": 0, "from_strides": (3, 1), "to": 0,
    "to_strides": (3, 1), "bits": 0,
}  # fmt: skip
WINDOW: dict[str, Any] = {
    "images": 1, "channels": 4, "src": (1, 5, 5), "dst": (1, 3, 3), "kernel": (1, 3, 3),
    "strides": (1, 1, 1), "dilations": (1, 1, 1), "begin": (0, 0, 0),
}  # fmt: skip
POINT: dict[str, Any] = {
    "shape": (2, 3), "strides": [(3, 1)], "types": ["f32"] * 2, "constants": [],
    "program": [("exp f32", [0])], "pads": [],
}  # fmt: skip
PLACES: dict[str, Any] = {
    "shape": (2, 3), "strides": (3, 1), "bases": (20, 0), "axes": [(5, 4, "A")], "inner": 4,
    "indices": 6, "elements": 40,
}  # fmt: skip
#: Three rows of four elements.
KEPT, REDUCED = (0, (3,), 0, (4,), 0, (1,), 0), (0, (4,), 0, (1,), 0, (0,), 0)
TAP: Any = (1, 3, 1, [1], [0], [1.0])
#: An axis of three elements, at two places between them.
LINE = (3, [0, 1], [1, 2], [0.5, 1.0], [0.5, 0.0])


def rows(step: int) -> list[list[int]]:
    """Return where the rows of q, k, v and y lie."""
    return [[64, *(step * place for place in range(count))] for count in (3, 4, 4, 3)]


#: By kernel, arguments that are taken.
RIGHT: dict[str, dict[str, Any]] = {
    "copy": {"sizes": (6, 6), "boxes": [BOX], "item_bytes": 4},
    "pointwise": POINT,
    "joined": POINT | {"pieces": (1, 2)},
    "dynamic_quantize": {"size": 1, "pads": []},
    "product": {
        "element": "f32", "batch": (2,), "left_strides": (12,), "right_strides": (0,), "rows": 3,
        "columns": 5, "depth": 4,
    },
    "convolution": {"element": "f32", "window": WINDOW, "groups": 1, "outputs": 2},
    "pooling": {"kind": "max", "window": WINDOW, "end": (0, 0, 0), "power": 0},
    "depthwise": {"element": "f32", "window": WINDOW, "multiplier": 1},
    "largest_place": {"window": WINDOW, "column_major": False},
    "col2im": {"dtype": "f32", "window": WINDOW | {"channels": 1}},
    "deformed": {
        "window": WINDOW,
        "bends": {"groups": 2, "parts": 2, "outputs": 6, "rank": 2, "masked": True},
    },
    "reduction": {
        "kind": "sum", "element": "f32", "src": 12, "dst": 3, "kept": [KEPT],
        "reduced": [REDUCED], "pads": [],
    },
    "normalization": {
        "kind": "rms", "element": "f32", "parameter_type": "f32", "shape": (3, 4), "first": 1,
        "last": 2, "parameters": [(4, 1), (4, 1), (0, 1)], "epsilon": 0.1,
    },
    "attention": {
        "batch": (2,), "sizes": {"queries": 3, "keys": 4, "features": 5, "columns": 6},
        "strides": rows(8), "masks": [((0, 0, 1), False)], "scale": 1.0, "masked": 0.0,
        "zero": False,
    },
    "softmax": {"rows": 2, "length": 3},
    "lrn": {"rows": 2, "length": 3, "size": 5, "alpha": 1, "beta": 1, "bias": 1},
    "pick": {"axes": [[(6, 0, 1)]], "src_elements": 6, "bits": 0, "item_bytes": 4},
    "gather": {"places": PLACES, "index_bytes": 8, "item_bytes": 4},
    "scatter": {"places": PLACES, "index_bytes": 8, "dtype": "f32", "reduction": "add"},
    "one_hot": {"outer": 2, "depth": 3, "inner": 1, "index_bytes": 8, "item_bytes": 4},
    "reverse_sequence": {"batch": 2, "time": 8, "inner": 1, "index_bytes": 8, "item_bytes": 4},
    "triangle": {"matrices": 2, "rows": 8, "columns": 1, "k": 0, "upper": True, "item_bytes": 4},
    "running": {
        "dtype": "f32", "outer": 2, "length": 8, "inner": 1, "product": False, "exclusive": False,
        "reverse": False,
    },
    "extreme_place": {
        "dtype": "f32", "outer": 2, "length": 1, "inner": 3, "largest": True, "last": False,
    },
    "hardmax": {"dtype": "f32", "rows": 1, "length": 3},
    "top": {"dtype": "f32", "outer": 2, "length": 3, "inner": 1, "count": 3, "largest": True},
    "nonzero": {"dtype": "f32", "shape": (2, 3)},
    "select": {"outer": 2, "length": 3, "inner": 2, "conditions": 3, "item_bytes": 4},
    "unique": {
        "dtype": "f32", "outer": 2, "length": 3, "inner": 1, "alone": False, "ascending": True,
    },
    "suppression": {
        "images": 1, "classes": 2, "count": 5, "most": 3, "overlap": 0.5, "score": 0.0,
        "centered": False,
    },
    "blend": {"dtype": "f32", "axes": [TAP]},
    "bilinear": {"dtype": "f32", "outer": 2, "rows": LINE, "columns": LINE, "inner": 3},
    "grid_sample": {
        "dtype": "f32", "grid_dtype": "f32", "mode": "linear", "padding": "zeros",
        "image": {"images": 1, "channels": 2, "src": (1, 3, 3), "dst": (1, 2, 2), "rank": 2},
        "corners": False,
    },
    "roi_align": {
        "dtype": "f32", "box_dtype": "f32", "index_bytes": 8, "align": {
            "boxes": 2, "images": 1, "channels": 3, "height": 5, "width": 5, "rows": 2,
            "columns": 2, "largest": False, "samples": 0, "most": 9, "scale": 1.0, "half": True,
        },
    },
    "fourier": {
        "dtype": "f32", "frames": {
            "series": 2, "size": 9, "src_parts": 2, "count": 2, "step": 3, "taken": 6,
            "length": 6, "bins": 4, "dst_parts": 2, "inverse": False, "mirrored": False,
            "windowed": False,
        },
    },
    "recurrent": {
        "network": {
            "cell": "gru", "direction": "reverse", "times": 3, "batch": 2, "features": 5,
            "units": 4, "functions": [("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)], "clip": 1.0,
            "limited": True, "coupled": False,
        },
        "given": ["bias", "lengths"], "length_bytes": 8,
    },
    "determinant": {"dtype": "f32", "matrices": 2, "rows": 3},
    "overwrite": {
        "item_bytes": 4, "cache": {
            "outer": 4, "axis": (5, 3, "T"), "count": 2, "inner": 3, "starts": 2,
            "circular": False,
        },
    },
    "unpool": {"layers": 2, "each": 4, "counted": (1, 4, 4), "dst": (1, 4, 5), "item_bytes": 4},
}  # fmt: skip

NEGATIVE, OTHER_RANK, BACKWARDS = "size is negative", "differ in rank", "stride is negative"
INTEGERS, BYTES, FILL = "f32, f16 or bf16", "1, 2, 4 or 8 bytes", BOX | {"source": -1, "to": 1}
REFUSED = [
    ("copy", "beyond dst", {"to": 1}, {"to_strides": (4, 1)}),
    ("copy", "beyond its source", {"start": 1}, {"from_strides": (1, 4)}),
    ("copy", "offset is negative", {"to": -1}, {"start": -1}),
    ("copy", BACKWARDS, {"to": 5, "to_strides": (-3, -1)}),
    ("copy", NEGATIVE, {"shape": (-2, -3)}, {"sizes": (6, -6)}),
    ("copy", "overflow", {"shape": (HUGE, HUGE)}, {"to_strides": (LARGEST, 1)}, {"to": LARGEST}),
    ("copy", "overflow", {"sizes": (HUGE, 6)}),
    ("copy", OTHER_RANK, {"to_strides": (1,)}, {"from_strides": (1,)}),
    ("copy", "no source", {"source": 1}, {"source": -2}),
    ("copy", "no dst", {"sizes": ()}),
    ("copy", BYTES, {"item_bytes": 3}, {"item_bytes": 0}, {"item_bytes": (1 << 32) + 4}),
    ("pointwise", "without instructions", {"program": []}),
    ("pointwise", "no function tan", {"program": [("tan", [0])]}),
    (
        "pointwise",
        "not yet",
        {"program": [("add f32", [0, 1])]},
        {"program": [("add f32", [-1, 0])]},
    ),
    ("pointwise", "another number of values", {"program": [("add f32", [0])]}),
    ("pointwise", "another number of values", {"program": [("exp f32", [0, 0])]}),
    ("pointwise", "no element type f64", {"types": ["f32", "f64"]}),
    ("pointwise", "an element type an operand", {"types": ["f32"]}),
    ("pointwise", "another kind", {"types": ["s32", "f32"]}),
    ("pointwise", "another kind than dst", {"types": ["f32", "s32"]}),
    ("pointwise", "too many values", {"strides": [(3, 1)] * 33, "types": ["f32"] * 34}),
    ("pointwise", "too many values", {"constants": [("f32", 0.0)] * 32}),
    ("pointwise", OTHER_RANK, {"strides": [(1,)]}),
    ("pointwise", BACKWARDS, {"strides": [(-3, 1)]}),
    ("pointwise", "overflow", {"strides": [(LARGEST, 1)]}, {"strides": [(HUGE, 1)]}),
    ("pointwise", "overflow", {"shape": (0, 5), "strides": [(0, HUGE)]}, {"shape": (HUGE, HUGE)}),
    ("pointwise", NEGATIVE, {"shape": (-1, 3)}),
    ("pointwise", "filled, not copied", {"pads": [BOX]}),
    ("pointwise", "beyond dst", {"pads": [FILL]}),
    ("joined", "a piece has no elements", {"pieces": (3, 0)}, {"pieces": (4, -1)}),
    ("joined", "overflow", {"pieces": (LARGEST,) * 2}),
    ("joined", "no whole rows", {"pieces": (3, 1)}),
    ("joined", "otherwise than dst", {"strides": [(1, 2)]}),
    ("joined", "nothing is joined", {"pieces": ()}),
    (
        *("joined", "nothing is joined"),
        {"strides": [], "types": ["f32"], "constants": [("f32", 0.0)], "pieces": (3,)},
    ),
    ("dynamic_quantize", NEGATIVE, {"size": -1}),
    ("dynamic_quantize", "filled, not copied", {"pads": [BOX]}),
    ("dynamic_quantize", "beyond dst", {"pads": [FILL]}),
    ("product", "f32 or s32", {"element": "s8"}),
    ("product", OTHER_RANK, {"left_strides": (12, 1)}),
    ("product", BACKWARDS, {"left_strides": (-12,)}),
    ("product", NEGATIVE, {"rows": -3}),
    ("product", "overflow", {"rows": HUGE, "columns": HUGE}, {"rows": HUGE, "depth": 8}),
    ("product", "overflow", {"rows": 0, "right_strides": (HUGE,), "batch": (3,)}),
    ("convolution", "three spatial dims", {"src": (5, 5)}),
    ("convolution", NEGATIVE, {"src": (1, -5, 5)}, {"channels": -4}),
    ("convolution", "no extent", {"kernel": (1, 0, 3)}, {"strides": (1, 0, 1)}),
    ("convolution", "no extent", {"dilations": (1, 0, 1)}),
    ("convolution", "negative pad", {"begin": (0, -1, 0)}),
    ("convolution", "overflow", {"images": HUGE}, {"dilations": (1, 1, HUGE)}, {"outputs": HUGE}),
    ("convolution", "overflow", {"strides": (1, 1, HUGE)}, {"kernel": (HUGE, HUGE, 1)}),
    (
        *("convolution", "overflow"),
        {"dst": (1, 1, 1), "kernel": (1, 1, 1)}
        | dict.fromkeys(["strides", "dilations"], (1, 1, HUGE)),
    ),
    ("convolution", "fall into the groups", {"groups": 3}, {"groups": 0}, {"outputs": -1}),
    ("convolution", "f32 or s32", {"element": "u8"}),
    ("pooling", "three spatial dims", {"end": (0, 0)}),
    ("pooling", "negative pad", {"end": (0, -1, 0)}),
    ("pooling", "overflow", {"end": (0, 0, LARGEST)}),
    ("pooling", "no such pooling", {"kind": "median"}),
    ("pooling", "less than 1", {"kind": "lp", "power": 0.5}),
    ("depthwise", NEGATIVE, {"multiplier": -1}),
    ("depthwise", "overflow", {"multiplier": HUGE}),
    ("depthwise", "f32 or s32", {"element": "u8"}),
    ("largest_place", "no extent", {"kernel": (0, 1, 1)}),
    ("hardmax", NEGATIVE, {"rows": -1}),
    ("reduction", "no such reduction", {"kind": "xor"}),
    ("reduction", "no l2 of s32", {"kind": "l2", "element": "s32"}),
    ("reduction", "no sum of text", {"element": "text"}),
    ("reduction", "outside of src", {"src": 11}),
    ("reduction", "dst is written outside", {"dst": 2}),
    ("reduction", BACKWARDS, {"reduced": [(0, (4,), 0, (-1,), 0, (0,), 0)]}),
    ("reduction", "overflow", {"kept": [(0, (HUGE,), 0, (HUGE,), 0, (0,), 0)]}),
    ("normalization", "no such normalization", {"kind": "luck"}),
    ("normalization", "no normalization of s32", {"element": "s32"}),
    ("normalization", "no such axes", {"first": 2, "last": 1}, {"last": 3}),
    ("normalization", "more than a scale", {"parameters": [(4, 1)] * 2 + [(0, 1)] * 3}),
    ("normalization", OTHER_RANK, {"parameters": [(4, 1), (4, 1), (1,)]}),
    ("normalization", OTHER_RANK, {"parameters": [(1,), (4, 1), (0, 1)]}),
    ("normalization", "epsilon", {"epsilon": -1.0}),
    ("normalization", "dst has no strides", {"parameters": [(4, 1)]}),
    ("normalization", "dst is not filled", {"parameters": [(4, 1), (8, 1), (0, 1)]}),
    ("normalization", "dst is not filled", {"parameters": [(4, 1), (1, 1), (0, 1)]}),
    (
        *("normalization", "src or dst in pieces"),
        {"kind": "l1", "first": 0, "last": 1, "parameters": [(8, 1), (4, 1), (0, 1)]},
    ),
    ("normalization", BACKWARDS, {"parameters": [(4, -1), (4, 1), (0, 1)]}),
    ("attention", "no keys", {"keys": 0}),
    ("attention", NEGATIVE, {"queries": -1}),
    ("attention", "overflow", {"keys": HUGE, "features": HUGE}),
    ("attention", "strides of an operand", {"batch": (2, 2)}, {"queries": 10}),
    ("attention", "strides are of", {"strides": rows(8)[:3]}),
    ("attention", "begins before", {"strides": rows(-1)}),
    ("attention", "strides of a mask", {"masks": [([1], False)]}),
    ("softmax", NEGATIVE, {"length": -3}),
    ("softmax", "overflow", {"rows": HUGE, "length": 4}),
    ("lrn", "no channels", {"size": 0}),
    ("lrn", NEGATIVE, {"rows": -2}),
    ("pick", "beyond src", {"axes": [[(7, 0, 1)]]}),
    ("pick", "before src", {"axes": [[(3, 1, -1)]]}),
    ("pick", NEGATIVE, {"axes": [[(-1, 0, 1)]]}, {"axes": [[(1, -1, 0)]], "src_elements": -1}),
    ("pick", "overflow", {"axes": [[(3, 0, HUGE)]]}, {"axes": [[(HUGE, 0, 0)] * 2]}),
    ("pick", BYTES, {"axes": [[(1, 0, 0)]], "item_bytes": 3}),
    ("gather", "beyond the tensor", {"elements": 39}, {"bases": (21, 0)}, {"axes": [(6, 4, "A")]}),
    ("gather", "beyond the indices", {"indices": 5}, {"axes": [(1, 1, "A")] * 2}),
    ("gather", "no axis is addressed", {"axes": []}),
    ("gather", BACKWARDS, {"bases": (-20, 0)}),
    ("gather", NEGATIVE, {"axes": [(5, -4, "A")]}),
    ("gather", "overflow", {"axes": [(HUGE, 4, "A")]}),
    ("gather", "indices of 4 or 8 bytes", {"index_bytes": 2}),
    ("gather", BYTES, {"item_bytes": 3}),
    ("scatter", "no elements of type f8", {"dtype": "f8"}),
    ("scatter", "no reduction xor", {"reduction": "xor"}),
    ("one_hot", NEGATIVE, {"depth": -1}),
    ("reverse_sequence", "overflow", {"batch": HUGE}),
    ("triangle", "overflow", {"matrices": HUGE}, {"matrices": 0, "rows": LARGEST}),
    ("running", "overflow", {"outer": HUGE}),
    ("extreme_place", "extreme of nothing", {"length": 0}),
    ("top", "more elements", {"count": 4}, {"count": -1}),
    ("nonzero", NEGATIVE, {"shape": (-1, 3)}),
    ("nonzero", "overflow", {"shape": (HUGE, 2)}),
    ("nonzero", "no elements of type f8", {"dtype": "f8"}),
    ("select", NEGATIVE, {"length": -1}, {"conditions": -1}),
    ("select", "overflow", {"outer": HUGE}),
    ("select", BYTES, {"item_bytes": 3}),
    ("unique", NEGATIVE, {"outer": -1}),
    ("unique", "overflow", {"outer": 0, "length": HUGE}, {"inner": HUGE}),
    ("suppression", NEGATIVE, {"most": -1}, {"images": -1}),
    ("suppression", "overflow", {"classes": HUGE}),
    ("bilinear", "an element beyond src", {"rows": (3, [3], [0], [0.5], [0.5])}),
    ("bilinear", "an element beyond src", {"columns": (3, [0], [-1], [0.5], [0.5])}),
    ("bilinear", "two elements and weights", {"rows": (3, [0], [0, 1], [0.5], [0.5])}),
    ("bilinear", "two elements and weights", {"columns": (3, [0], [0], [], [0.5])}),
    ("bilinear", NEGATIVE, {"inner": -1}),
    ("bilinear", INTEGERS, {"dtype": "s32"}),
    ("blend", "no axis", {"axes": []}),
    ("blend", "a tap beyond src", {"axes": [(1, 3, 1, [1], [3], [1.0])]}),
    ("blend", "a tap beyond src", {"axes": [(1, 3, 1, [1], [-1], [1.0])]}),
    ("blend", "not there", {"axes": [(1, 3, 1, [2], [0], [1.0])]}),
    ("blend", "before they begin", {"axes": [(1, 3, 1, [1, 0], [0], [1.0])]}),
    ("blend", "without weights", {"axes": [(1, 3, 1, [1], [0], [])]}),
    ("blend", "do not fit", {"axes": [TAP] * 2}),
    ("blend", INTEGERS, {"dtype": "s32"}),
    ("grid_sample", "no such way", {"mode": "quadratic"}, {"padding": "ones"}),
    ("grid_sample", "no elements", {"src": (1, 0, 3)}),
    ("grid_sample", "one to three", {"rank": 4}),
    ("grid_sample", "a dim that is none", {"src": (2, 3, 3)}),
    ("grid_sample", "overflow", {"images": HUGE}),
    ("grid_sample", INTEGERS, {"dtype": "s32"}),
    ("col2im", "one channel", {"channels": 2}),
    ("col2im", "overflow", {"images": HUGE}),
    ("deformed", "fall into the groups", {"groups": 3}, {"parts": 3}, {"outputs": 5}),
    ("deformed", "one to three", {"rank": 4}),
    ("deformed", "a dim that is none", {"src": (2, 5, 5)}),
    ("deformed", "no elements", {"src": (1, 0, 5)}),
    ("deformed", "overflow", {"images": HUGE}),
    ("fourier", "nothing to transform", {"length": 0}),
    ("fourier", "one or two parts", {"src_parts": 3}),
    ("fourier", "more elements than the length", {"taken": 7}, {"taken": 5, "mirrored": True}),
    ("fourier", "more elements than the length", {"bins": 7}),
    ("fourier", "a frame beyond src", {"count": 3}),
    ("fourier", "overflow", {"step": HUGE, "count": 9}, {"series": HUGE}),
    ("fourier", INTEGERS, {"dtype": "s32"}),
    ("recurrent", "no such cell", {"cell": "lru"}),
    ("recurrent", "no such direction", {"direction": "up"}),
    ("recurrent", "another number of functions", {"functions": [("tanh", 0.0, 0.0)]}),
    ("recurrent", "number of functions", {"direction": "bidirectional"}),
    ("recurrent", "no function cot", {"functions": [("tanh", 0.0, 0.0), ("cot", 0.0, 0.0)]}),
    ("recurrent", "of the name cell", {"given": ["cell"]}),
    ("recurrent", "given twice", {"given": ["bias"] * 2}),
    ("recurrent", "4 or 8 bytes", {"length_bytes": 2}),
    ("recurrent", NEGATIVE, {"times": -1}),
    ("recurrent", "overflow", {"units": HUGE}),
    ("determinant", INTEGERS, {"dtype": "s32"}),
    ("determinant", "overflow", {"matrices": 8, "rows": HUGE}),
    ("determinant", NEGATIVE, {"matrices": -1}),
    ("overwrite", "more elements than the axis", {"count": 6}),
    ("overwrite", "fall into the batches", {"starts": 3}),
    ("overwrite", "overflow", {"outer": HUGE}),
    ("unpool", "larger than dst", {"dst": (1, 4, 3)}),
    ("unpool", "three spatial dims", {"counted": (4, 4)}),
    ("unpool", "overflow", {"layers": HUGE}),
    ("roi_align", "no elements", {"height": 0}),
    ("roi_align", "no bins", {"rows": 0}),
    ("roi_align", "overflow", {"boxes": HUGE}),
]


@cases(REFUSED)
def test_what_is_wrong_is_refused(name: str, reason: str, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=reason):
        call(getattr(kernels, name), RIGHT[name], change)


@pytest.mark.parametrize("name", RIGHT)
def test_the_same_without_a_fault_is_taken(name: str) -> None:
    assert call(getattr(kernels, name), RIGHT[name], {})


def made(name: str, **change: Any) -> tuple[Any, list[Any]]:
    """Return a kernel, and zeros for its slots."""
    kernel = call(getattr(kernels, name), RIGHT[name], change)
    return kernel, [np.zeros(size, np.uint8) for _, size, _ in _replay.describe(kernel)["slots"]]


def test_buffers_are_refused_that_do_not_fit_a_kernel() -> None:
    kernel, room = made("convolution")
    slots = [name for name, _, _ in _replay.describe(kernel)["slots"]]
    assert slots == ["src", "weights", "dst", "scratch"]
    scratch = np.zeros(room[3].size + 128, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 64 :]
    _replay.execute(kernel, [*room[:3], scratch])
    with pytest.raises(ValueError, match="4 slots, 3 buffers"):
        _replay.execute(kernel, room[:3])
    with pytest.raises(ValueError, match=r"slot 3 \(scratch\) needs"):
        _replay.execute(kernel, [*room[:3], scratch[:64]])
    with pytest.raises(ValueError, match="multiple of 64"):
        _replay.execute(kernel, [*room[:3], scratch[4:]])
    with pytest.raises(TypeError):
        _replay.execute(kernel, [*room[:3], None])


def test_a_window_far_larger_than_the_image_sees_the_image_at_once() -> None:
    """Work grows with what lies in the image, not with what is asked for."""
    far = 1 << 40
    image = {"src": (1, 1, 2), "dst": (1, 1, 1), "kernel": (1, 1, far), "begin": (0, 0, far - 2)}
    src, dst = np.arange(1, 9, dtype=np.float32), np.full(4, np.nan, np.float32)
    _replay.execute(made("pooling", **image)[0], [src, dst])
    assert dst.tolist() == [5, 6, 7, 8]
    _replay.execute(kernels.lrn(2, 4, far, 0.0, 1.0, 2.0), [src, (wide := np.zeros_like(src))])
    assert wide.tolist() == (src / 2).tolist()


@pytest.mark.parametrize("index", [-6, 5, -LARGEST - 1, LARGEST])
@pytest.mark.parametrize("name", ["gather", "scatter"])
def test_an_index_outside_is_refused_in_a_run_and_named(name: str, index: int) -> None:
    step, memory = made(name)
    memory[1].view(np.int64)[4] = index
    with pytest.raises(_replay.StepFailed, match=f"index {index} along A, which has 5") as caught:
        _replay.execute(step, memory)
    assert caught.value.bad_input
    memory[1].view(np.int64)[4] = -5
    _replay.execute(step, memory)


@pytest.mark.parametrize(("start", "named"), [(4, 5), (-6, -6), (5, 5), (LARGEST, LARGEST)])
def test_a_row_beyond_a_cache_is_refused_in_a_run_and_named(start: int, named: int) -> None:
    """Two elements of five are overwritten from a start on; after the last comes the first."""
    step, memory = made("overwrite")
    memory[2].view(np.int64)[1] = start
    with pytest.raises(_replay.StepFailed, match=f"index {named} along T, which has 5") as caught:
        _replay.execute(step, memory)
    assert caught.value.bad_input
    _replay.execute(made("overwrite", circular=True)[0], memory)


def test_a_place_outside_of_the_image_is_left_out() -> None:
    ones, dst = np.ones(8, np.float32), np.full(40, np.nan, np.float32)
    places = np.array([0, 31, -1, 32, 1 << 62, -(1 << 63), 16, 15])
    _replay.execute(made("unpool")[0], [ones, places, dst])
    assert np.flatnonzero(dst).tolist() == [0, 18, 20, 38]
    assert np.isfinite(dst).all()
