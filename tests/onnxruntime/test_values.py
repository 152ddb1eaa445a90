"""Values outside of a session: OrtValue, bound inputs and outputs, runs in the background."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import pytest

from tests.onnxruntime.models import TINY, X
from vtensor import onnxruntime as ours

Y, Z = np.maximum(X, 0), X * 2 + np.maximum(X, 0)


@pytest.fixture
def session(ort: Any) -> Any:
    return ort.InferenceSession(TINY)


def test_value_in_the_memory_of_an_array(ort: Any) -> None:
    array = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(float)", 1)
    assert (value.device_name(), value.tensor_size_in_bytes()) == ("cpu", 24)
    assert value.data_ptr() == array.ctypes.data
    assert np.shares_memory(value.numpy(), array)
    assert value.is_tensor()
    assert value.has_value()
    assert not value.is_sparse_tensor()
    assert not value.is_tensor_sequence()
    np.testing.assert_array_equal(np.asarray(value), X)
    np.testing.assert_array_equal(np.from_dlpack(value), X)


def test_value_of_an_array_with_gaps(ort: Any) -> None:
    np.testing.assert_array_equal(ort.OrtValue.ortvalue_from_numpy(X.T).numpy(), X.T)


@pytest.mark.parametrize("element", [np.float32, 1])
def test_value_that_is_written_later(ort: Any, element: Any) -> None:
    value = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], element, "cpu", 0)
    address = value.data_ptr()
    value.update_inplace(X)
    np.testing.assert_array_equal(value.numpy(), X)
    value.update_inplace(ort.OrtValue.ortvalue_from_numpy(X * 2))
    np.testing.assert_array_equal(value.numpy(), X * 2)
    assert value.data_ptr() == address
    with pytest.raises(RuntimeError, match="does not match the size"):
        value.update_inplace(np.ones((2, 4), np.float32))
    with pytest.raises(TypeError):
        value.update_inplace([1, 2])


def test_value_of_a_type_that_numpy_lacks(ort: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ones(2, np.uint16), 16)
    assert (value.data_type(), value.element_type()) == ("tensor(bfloat16)", 16)
    np.testing.assert_array_equal(ort.OrtValue.from_dlpack(X).numpy(), X)


def test_value_on_another_device(ort: Any) -> None:
    with pytest.raises(RuntimeError, match="Can't allocate memory on the device"):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    with pytest.raises(Exception, match="Unsupported device type: toaster"):
        ort.OrtValue.ortvalue_from_numpy(X, "toaster")
    with pytest.raises(ValueError, match="rtvalue"):
        ort.OrtValue("text")
    device = ort.OrtDevice.make("cpu", 0)
    assert (device.device_type(), device.device_id()) == (0, 0)


def test_runs_on_values(ort: Any, session: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X)
    [z] = session.run_with_ort_values(["z"], {"x": value})
    assert isinstance(z, ort.OrtValue)
    np.testing.assert_array_equal(z.numpy(), Z)
    np.testing.assert_array_equal(session.run(["z"], {"x": value})[0], Z)


def test_bound_arrays(session: Any) -> None:
    binding, x = session.io_binding(), X.copy()
    binding.bind_cpu_input("x", x)
    binding.bind_output("z")
    binding.bind_output("y", "cpu")
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    for z, y in (
        [value.numpy() for value in binding.get_outputs()],
        binding.copy_outputs_to_cpu(),
    ):
        np.testing.assert_array_equal([z, y], [Z, Y])
    x[...] = -X  # each run reads the current elements
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], np.maximum(-X, 0))


def test_bound_memory(ort: Any, session: Any) -> None:
    x, z, y = X.copy(), np.zeros_like(X), ort.OrtValue.ortvalue_from_numpy(np.zeros_like(X))
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("z", "cpu", 0, np.float32, z.shape, z.ctypes.data)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding, ort.RunOptions())
    np.testing.assert_array_equal([z, y.numpy()], [Z, Y])
    assert binding.get_outputs()[0].data_ptr() == z.ctypes.data
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(-X))
    binding.bind_output("y", element_type=None, shape=None)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu(), [np.maximum(-X, 0)])


def test_wrong_bindings(ort: Any, session: Any) -> None:
    binding = session.io_binding()
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: q"):
        binding.bind_cpu_input("q", X)
    with pytest.raises(RuntimeError, match="Unable to create OrtValue"):
        binding.bind_cpu_input("x", [[1.0, 2, 3]])
    with pytest.raises(ValueError, match="are to be provided"):
        binding.bind_output("z", "cpu", 0, None, None, 5)
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        session.run_with_iobinding(binding)
    binding.bind_output("z")
    with pytest.raises(RuntimeError, match="Error in execution"):
        session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", X[0])
    with pytest.raises(RuntimeError, match=r"Error in execution: .*Invalid rank for input: x"):
        session.run_with_iobinding(binding)
    with pytest.raises(ValueError, match="session that created it"):
        ort.InferenceSession(TINY).run_with_iobinding(binding)
    binding.bind_cpu_input("x", X)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu(), [Z])


def test_no_array_at_a_wrong_address() -> None:
    binding = ours.InferenceSession(TINY).io_binding()
    for element, shape in ((np.float32, (2, -3)), (np.float32, (2, 3)), ("nothing", (2, 3))):
        with pytest.raises(RuntimeError):
            binding.bind_input("x", "cpu", 0, element, shape, 0)
    with pytest.raises(RuntimeError, match="Can't allocate"):
        binding.bind_input("x", "cuda", 0, np.float32, (2, 3), 4096)


def test_run_in_the_background(ort: Any) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2  # ONNX Runtime needs a second thread for it
    session = ort.InferenceSession(TINY, options)
    answers: queue.Queue[Any] = queue.Queue()

    def done(results: Any, data: Any, error: str) -> None:
        answers.put((results, data, error))

    session.run_async(["z"], {"x": X}, done, "first")
    results, data, error = answers.get(timeout=60)
    np.testing.assert_array_equal(results, [Z])
    assert (data, error) == ("first", "")
    session.run_async(["z"], {"x": X[0]}, done, "second")
    results, data, error = answers.get(timeout=60)
    assert ([*results], data) == ([], "second")
    assert "Invalid rank for input: x" in error
