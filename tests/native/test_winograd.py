"""The interface of Winograd's convolutions on each instruction set, and what they refuse."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

import libdesc.winograd
from libdesc.levels import LEVELS
from libdesc.winograd import native
from tests.libraries.processes import ROOT, printed
from tests.native.test_eigen_interface import said
from tests.native.test_stubs import generated

LEVELS_HERE = LEVELS[: LEVELS.index(native.load_baseline().machine_level()) + 1]


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_interface_is_the_modules(level: str) -> None:
    module, interface = SimpleNamespace(), SimpleNamespace()
    exec(generated(f"libdesc.winograd._winograd_{level}"), vars(module))
    stub = ROOT / "libdesc" / "winograd" / "_winograd.pyi"
    exec(stub.read_text(encoding="utf-8"), vars(interface))
    loaded = importlib.import_module(f"libdesc.winograd._winograd_{level}")
    assert loaded.level == level
    assert dict(said(module)) == dict(said(interface.Kernels))


GOOD: dict[str, Any] = {
    "images": 1, "channels": 16, "outputs": 16, "groups": 1, "src": [8, 8], "dst": [8, 8],
    "begin": [1, 1], "taps": [3, 3], "results": [4, 4], "step": 1, "src_block": 0, "dst_block": 0,
    "bias": False, "other": False, "low": 0.0, "high": 1.0,
}  # fmt: skip
POINT: dict[str, Any] = {"taps": [1, 1], "results": [1, 1], "begin": [0, 0]}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"channels": 0}, "not above 0"),
        ({"src": [8]}, "two spatial dims"),
        ({"dst": [8, -1]}, "not above 0"),
        ({"begin": [-1, 0]}, "negative"),
        ({"taps": [5, 5]}, "no such form"),
        ({"results": [4, 6]}, "no such form"),
        ({"step": 3}, "steps are 1 or 2"),
        ({"step": 2, "taps": [1, 3], "results": [1, 4]}, "no such form"),
        ({"src_block": 1}, "whole vectors"),
        ({"step": 2, "dst_block": 1}, "whole vectors"),
        ({"step": 2, "dst": [1 << 62, 8]}, "overflow"),
        ({"src_block": 3}, "whole vectors"),
        ({"low": 2.0}, "hold nothing"),
        ({"low": float("nan")}, "hold nothing"),
        ({"src": [1 << 31, 1 << 31], "channels": 1 << 31}, "overflow"),
        ({"outputs": 1 << 62}, "overflow"),
        ({"groups": 0}, "as many outputs"),
        ({"groups": 3}, "as many outputs"),
        ({"groups": 2, "outputs": 32}, "as many outputs"),
        ({"groups": 2, "channels": 6, "outputs": 6}, "whole vectors"),
        ({"groups": 2, "channels": 1 << 62, "outputs": 1 << 62}, "overflow"),
        ({"groups": 2, "taps": [1, 3], "results": [1, 4]}, "no such form of groups"),
        ({"begin": [(1 << 63) - 1, 0]}, "overflow"),
        (POINT | {"begin": [0, 1]}, "changes its size"),
        (POINT | {"dst": [8, 7]}, "changes its size"),
        (POINT | {"channels": 1 << 60}, "overflow"),
    ],
)
def test_what_is_wrong_is_refused(wrong: dict[str, Any], reason: str) -> None:
    native.load().convolution(**GOOD)
    native.load().convolution(**GOOD | POINT)
    native.load().convolution(**GOOD | {"step": 2, "src_block": 1})
    with pytest.raises(ValueError, match=reason):
        native.load().convolution(**GOOD | wrong)


ALONE: dict[str, Any] = {
    "images": 1, "channels": 16, "src": [8, 8], "dst": [4, 4], "begin": [1, 1], "taps": [3, 3],
    "strides": [2, 2], "src_block": 0, "dst_block": 0, "bias": False, "other": False, "low": 0.0,
    "high": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"channels": 0}, "not above 0"),
        ({"strides": [0, 1]}, "not above 0"),
        ({"taps": [-1, 3]}, "not above 0"),
        ({"taps": [3]}, "two spatial dims"),
        ({"begin": [-1, 0]}, "negative"),
        ({"begin": [3, 0]}, "as large as the filter"),
        ({"taps": [3, 4]}, "3, 5 or 7 taps"),
        ({"strides": [2, 3], "dst": [4, 3]}, "1 or 2"),
        ({"dst": [4, 6]}, "sees nothing"),
        ({"dst_block": 3}, "whole vectors"),
        ({"low": float("nan")}, "hold nothing"),
        ({"src": [1 << 31, 1 << 31], "channels": 1 << 31}, "overflow"),
        ({"taps": [1 << 60, 3]}, "overflow"),
        ({"dst": [1 << 62, 4], "strides": [1 << 62, 2]}, "overflow"),
    ],
)
def test_what_is_wrong_with_a_depthwise_one_is_refused(wrong: dict[str, Any], reason: str) -> None:
    native.load().depthwise(**ALONE)
    with pytest.raises(ValueError, match=reason):
        native.load().depthwise(**ALONE | wrong)


FEW: dict[str, Any] = {
    "images": 1, "channels": 3, "outputs": 16, "src": [8, 8], "dst": [4, 4], "begin": [1, 1],
    "taps": [3, 3], "strides": [2, 2], "src_block": 1, "dst_block": 0, "bias": False,
    "other": False, "low": 0.0, "high": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"channels": 0}, "not above 0"),
        ({"outputs": 0}, "not above 0"),
        ({"strides": [0, 1]}, "not above 0"),
        ({"taps": [-1, 3]}, "not above 0"),
        ({"taps": [3]}, "two spatial dims"),
        ({"begin": [-1, 0]}, "negative"),
        ({"begin": [0, 3]}, "as large as the filter"),
        ({"strides": [2, 3], "dst": [4, 3]}, "1, 2 or 4"),
        ({"dst": [4, 6]}, "sees nothing"),
        ({"src_block": 0}, "channels lie apart"),
        ({"dst_block": 1}, "whole vectors"),
        ({"channels": 1000}, "window is too large"),
        ({"low": float("nan")}, "hold nothing"),
        ({"src": [1 << 31, 1 << 31]}, "overflow"),
        ({"outputs": 1 << 62}, "overflow"),
        ({"channels": 1 << 60}, "overflow"),
        ({"strides": [2, 1 << 62], "dst": [4, 1]}, "overflow"),
        ({"dst": [1 << 62, 4], "strides": [1 << 62, 2]}, "overflow"),
    ],
)
def test_what_is_wrong_with_one_of_few_channels_is_refused(
    wrong: dict[str, Any], reason: str
) -> None:
    native.load().direct(**FEW)
    with pytest.raises(ValueError, match=reason):
        native.load().direct(**FEW | wrong)


def test_importing_the_routine_loads_nothing() -> None:
    code = "import sys, libdesc.winograd as w; print(any('_winograd_' in m for m in sys.modules))"
    assert printed("-c", code).strip() == "False"
    assert libdesc.winograd.Convolution.inexact
