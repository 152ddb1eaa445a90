"""VTensors and ONNX's tensors: element types, layouts, files, faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from vtensor import VTensor, from_array, from_proto
from vtensor.errors import ContractError, DimError, DTypeError, ModelError
from vtensor.language.dtype import ITEMSIZE, numpy_dtype


@pytest.mark.parametrize("dtype", list(ITEMSIZE))
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), ()])
def test_every_element_type_comes_back(dtype: str, raw: bool, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7
    array: Any = np.asarray(values + (dtype == "f8e8m0")).astype(numpy_dtype(dtype))  # it has no 0
    names = ["N", "C"][: len(shape)]
    proto = from_array(array, names, name="x").to_proto(raw=raw)
    assert proto.name == "x"
    assert tuple(proto.dims) == shape
    assert proto.HasField("raw_data") == raw
    onnx.checker.check_tensor(proto)
    np.testing.assert_array_equal(numpy_helper.to_array(proto), array)
    back = from_proto(TensorProto.FromString(proto.SerializeToString()), names)
    assert (back.dtype, back.name, back.dims) == (dtype, "x", dict(zip(names, shape, strict=True)))
    np.testing.assert_array_equal(back.numpy(), array)


def test_onnx_tensor_has_the_order_of_presentation() -> None:
    array = np.arange(60, dtype=np.float32).reshape(2, 5, 3, 2)
    x = VTensor("f32", {"N": 2, "C": 5, "H": 3, "W": 2})
    x.storage = TensorStorage.of_array(array, x, Layout("NHWC4c"), False)
    np.testing.assert_array_equal(numpy_helper.to_array(x.to_proto("x")), array)
    proto = from_array(array[:, ::-1], "N C H W").to_proto(raw=False)
    np.testing.assert_array_equal(numpy_helper.to_array(proto), array[:, ::-1])


def test_faults_are_typed() -> None:
    good = numpy_helper.from_array(np.zeros((2, 3), np.float32), "w")
    with pytest.raises(DimError):
        from_proto(good, "A")
    short = TensorProto.FromString(good.SerializeToString())
    short.raw_data = short.raw_data[:-1]
    typed = helper.make_tensor("t", TensorProto.FLOAT, [2], [1, 2])
    typed.float_data.append(3)
    outside = TensorProto.FromString(good.SerializeToString())
    onnx.external_data_helper.set_external_data(outside, "w.bin")
    outside.ClearField("raw_data")
    with pytest.raises(ModelError, match="from memory"):
        from_proto(outside, "A B")
    for bad in (short, typed, TensorProto(), np.zeros(3)):
        with pytest.raises((ModelError, DTypeError)):
            from_proto(bad, "A B")  # type: ignore[arg-type]
    with pytest.raises(DTypeError):
        from_proto(numpy_helper.from_array(np.array(["a"], object), "s"), "A")
    with pytest.raises(ContractError, match="no data"):
        VTensor("f32", {"A": 1}).to_proto()
