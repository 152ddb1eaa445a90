"""The library of narrow integers: what its kernels refuse, and its caps."""

from __future__ import annotations

import math
from typing import Any

import pytest

from libdesc.narrow import native
from libdesc.narrow.products import panels
from ptensor.layout import Layout
from tests.libraries.processes import printed
from tests.native.refusing import HUGE, call, cases
from vtensor.errors import LibraryError

INF = math.inf
ENDING = {"stages": [], "to": "s32", "low": -INF, "high": INF}
SCALED: dict[str, Any] = {"stages": [("scale", "f32", 1)], "to": "f32"}
PRODUCT: dict[str, Any] = {
    "instructions": native.instructions(), "batch": [2], "left_steps": [1], "right_steps": [0],
    "rows": 5, "columns": 17, "depth": 9, "left_type": "u8", "right_type": "s8",
    "right": "panels", "left_zeros": 10, "right_zeros": 17, **ENDING,
}  # fmt: skip
CONVOLUTION: dict[str, Any] = {
    "instructions": native.instructions(), "images": 1, "channels": 6, "outputs": 4, "groups": 2,
    "src": [1, 5, 5], "dst": [1, 5, 5], "taps": [1, 3, 3], "strides": [1, 1, 1],
    "dilations": [1, 1, 1], "begin": [0, 1, 1], "src_type": "u8", "weights_type": "u8",
    "weights": "panels", "src_zeros": 1, "weights_zeros": 4, **ENDING,
}  # fmt: skip
RIGHT = {
    "product": PRODUCT,
    "scaled product": PRODUCT | SCALED,
    "convolution": CONVOLUTION,
    "depthwise": CONVOLUTION | {"channels": 4, "groups": 4},
    "point convolution": CONVOLUTION | {"taps": [1] * 3, "begin": [0] * 3, "groups": 1},
}
OVER, TYPES, SIZE = "overflow", "element type", "another size"
REFUSED: list[tuple[Any, ...]] = [
    ("product", "no kernels", {"instructions": "mmx"}, {"instructions": ""}),
    ("product", "negative", {"rows": -1}, {"columns": -1}, {"batch": [-1]}, {"left_steps": [-1]}),
    ("product", "rank", {"left_steps": []}, {"right_steps": [1, 1]}),
    ("product", "nothing to sum", {"depth": 0}, {"depth": -3}),
    ("product", "u8 or s8", {"left_type": "f32"}, {"right_type": "u4"}),
    ("product", "stored as", {"right": "rows of panels"}),
    ("product", "left factor", {"left_zeros": 5}, {"left_zeros": -1}),
    ("product", "right factor", {"right_zeros": 5}, {"right_zeros": -1}),
    ("product", OVER, {"rows": HUGE}, {"columns": HUGE}, {"depth": HUGE}, {"batch": [HUGE]}),
    ("product", TYPES, {"to": "f64"}, {"stages": [("sum", "f32", 1)]}),
    ("product", SIZE, {"stages": [("sum", "s32", 5)]}, {"stages": [("sum", "s32", -1)]}),
    ("product", "scaled", {"to": "u8"}, {"to": "f32"}, {"stages": [("bias", "f32", 1)]}),
    ("product", "bounds", {"low": 1.0}, {"high": 0.0}, {"low": math.nan}),
    ("scaled product", "scaled", {"to": "s32"}),
    ("scaled product", "nothing", {"low": 1.0, "high": 0.0}),
    ("scaled product", "order", {"stages": [*SCALED["stages"], ("sum", "s32", 1)]}),
    ("scaled product", "order", {"stages": [*SCALED["stages"], ("softmax", "f32", 1)]}),
    ("scaled product", "divided", {"stages": [*SCALED["stages"], ("step", "f32", 1)]}),
    ("scaled product", SIZE, {"stages": [*SCALED["stages"], ("other", "f32", 17)]}),
    ("scaled product", TYPES, {"stages": [*SCALED["stages"], ("other", "s32", 170)]}),
    ("scaled product", TYPES, {"stages": [*SCALED["stages"], ("zero", "u8", 1)]}),
    ("scaled product", "only bytes", {"stages": [*SCALED["stages"], ("other_scale", "f32", 1)]}),
    ("scaled product", "codes are decoded", {"stages": [*SCALED["stages"], ("code", "u8", 1)]}),
    ("scaled product", "only codes", {"stages": [*SCALED["stages"], ("decode_scale", "f32", 1)]}),
    ("scaled product", TYPES, {"stages": [*SCALED["stages"], ("decode_zero", "u8", 1)]}),
    ("convolution", "three spatial", {"src": [5, 5]}, {"taps": []}),
    ("convolution", "out of range", {"strides": [1, 0, 1]}, {"taps": [1, 3, 0]}, {"images": -1}),
    ("convolution", "out of range", {"dst": [1, -1, 5]}, {"begin": [0, 0, -1]}),
    ("convolution", "out of range", {"src": [HUGE] * 3}),
    ("convolution", "equal parts", {"groups": 0}, {"groups": 4}, {"outputs": 5}),
    ("convolution", "nothing to sum", {"channels": 0}),
    ("convolution", "one zero point", {"src_zeros": 2}),
    ("convolution", "for each output", {"weights_zeros": 2}),
    ("convolution", "panels or plain", {"weights": "rows"}),
    ("convolution", "u8 or s8", {"src_type": "f32"}, {"weights_type": "s4"}),
    ("convolution", OVER, {"dst": [1 << 30] * 3}, {"dilations": [1, 1 << 30, 1 << 30]}),
    ("depthwise", "one output", {"channels": 8}, {"groups": 2}),
    ("depthwise", "for each output", {"weights_zeros": 2}),
    ("depthwise", "u8 or s8", {"src_type": "f32"}, {"weights_type": "s4"}),
    ("point convolution", "one zero point", {"src_zeros": 25}),
    ("point convolution", "stored as", {"weights": "columns of rows"}),
]  # fmt: skip


def attempt(name: str, change: dict[str, Any]) -> Any:
    """Call the function whose name is the last word, with one thing changed."""
    return call(getattr(native.load(), name.split()[-1]), RIGHT[name], change)


@cases(REFUSED)
def test_what_is_wrong_is_refused(name: str, reason: str, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=reason):
        attempt(name, change)


@pytest.mark.parametrize("name", RIGHT)
def test_the_same_without_a_fault_is_taken(name: str) -> None:
    kernel = attempt(name, {})
    assert kernel.kernel.startswith(f"narrow:{native.load().level}:")
    assert kernel.scratch_bytes % 64 == 0


def test_panels_of_unsigned_bytes_are_signed_bytes() -> None:
    layout = panels(["K", "N"], "N", "K", "u8")
    assert layout == Layout("KN16n4k:s8(zero=-128)")
    assert not layout.rounds("u8")
    assert panels(["N", "K"], "N", "K", "s8") == Layout("NK16n4k")


def test_each_kind_of_instructions_has_a_speed() -> None:
    assert {*native.load_baseline().instructions()} <= {*native.PRODUCTS}
    assert {*native.load().instructions()} <= {*native.PRODUCTS}


LATE = """
import vtensor
from libdesc.narrow import native
vtensor.limit_isa("avx512")
print(native.instructions())
native.limit("avx512")
try:
    native.limit("sse41")
except vtensor.errors.LibraryError as error:
    print(error)
print(native.instructions())
"""


@pytest.mark.skipif(native.load_baseline().machine_level() == "baseline", reason="one level only")
def test_a_cap_that_comes_too_late_changes_nothing() -> None:
    before, late, after = printed("-c", LATE).splitlines()
    assert before == after != "amx"
    assert "too late" in late
    with pytest.raises(LibraryError, match="no cap 'mmx'"):
        native.limit("mmx")


def test_importing_the_routines_loads_nothing() -> None:
    code = "import sys, libdesc.narrow as n; n.MatMul; print(*sys.modules)"
    assert "_narrow_" not in printed("-c", code)
