"""Physical forms: a device and a layout with its encoding, as one value."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptensor.form import Form
from ptensor.layout import Layout
from tests.property.strategies import LAWS, encodings, layouts
from vtensor.errors import DimError, LayoutError
from vtensor.language.tensor import CPU

ROOT = Path(__file__).parents[2]


@LAWS
@given(layouts(encoding=st.none() | encodings), st.sampled_from([CPU, "gpu", "npu_0"]))
def test_text_reads_back(layout: Layout, device: str) -> None:
    form = Form(layout, device)
    assert Form.parse(str(form)) == form
    assert hash(Form.parse(str(form))) == hash(form)
    assert pickle.loads(pickle.dumps(form)) == form
    assert form.encoding == layout.encoding


def test_the_cpu_is_not_named() -> None:
    assert str(Form(Layout("NHWC"))) == "NHWC"
    assert str(Form(Layout("NHWC"), "gpu")) == "gpu:NHWC"
    assert Form.parse("cpu:NHWC") == Form.parse("NHWC")


def test_a_change_of_any_of_the_three_is_another_form() -> None:
    dims = {"N": 1, "C": 16, "H": 1, "W": 1}
    form = Form.parse("NCHW")
    assert form.same(Form.parse("NHWC:f32"), dims, "f32")
    for other in ("gpu:NCHW", "NCHW32c", "NCHW:bf16"):
        assert not form.same(Form.parse(other), dims, "f32"), other
    assert Form.parse("gpu:NCHW:bf16").nbytes(dims, "f32") == 32


@pytest.mark.parametrize(
    ("text", "error"),
    [("g-pu:NHWC", LayoutError), ("gpu:NHWW", DimError), ("gpu:", LayoutError), ("", LayoutError)],
)
def test_what_is_no_form(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Form.parse(text)


def test_the_cpu_is_named_in_one_place() -> None:
    """Everything else takes the device from the node, the tensor or an argument."""
    found = []
    for package in ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops"):
        for file in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(file.read_text("utf-8"))
            texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
            found += [file.relative_to(ROOT).as_posix()] * (CPU in texts)
    # the second one: the name of a control group
    assert found == ["vtensor/language/tensor.py", "vtensor/runtime/execution/processors.py"]
