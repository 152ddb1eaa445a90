"""One operator at once: the same dispatcher and resolver, nothing but arrays around them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

from libdesc.registry import registry
from ops import Add, AvgPool, Concat, Conv2D, MaxPool, MaxPoolIndices, Relu, Times
from tests.libraries.scratch import scratch_registry
from tests.operators.cases import INEXACT
from tests.session.test_session import Arrayish, Dlpack
from vtensor import VTensor, call, from_array
from vtensor.errors import DimError, DTypeError, GraphError, InputError, LayoutError, NoInvokerError
from vtensor.runtime.call import calls

Array = np.ndarray[Any, Any]


def values(*shape: int) -> Array:
    """Seeded random numbers."""
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_libraries_agree_on_arrays_with_declared_dims() -> None:
    x, w = values(2, 16, 9, 9), values(8, 16, 3, 3)
    answers = [
        call(Conv2D(pads=(1, 1, 1, 1)), x, w, pin=info.library)
        for _, info in registry().candidates("Conv2D", "cpu")
        if not registry().libraries[info.library].absent and info.library not in INEXACT
    ]
    assert len(answers) >= 2
    for answer in answers:
        assert answer.shape == (2, 8, 9, 9)
        np.testing.assert_allclose(answer, answers[0], atol=1e-4)


def test_every_kind_of_operand() -> None:
    x = values(1, 4, 6, 6)
    expected = x[:, :, ::2, ::2]
    op = MaxPool((1, 1), strides=(2, 2))
    for given in (x, Dlpack(x), Arrayish(x), values(1, 6, 6, 4).transpose(0, 3, 1, 2)):
        got = call(op, given)
        assert isinstance(got, np.ndarray)
        if given is not x and isinstance(given, np.ndarray):
            np.testing.assert_array_equal(got, given[:, :, ::2, ::2])
        else:
            np.testing.assert_array_equal(got, expected)
    y = call(op, from_array(x, "N C H W"))
    assert isinstance(y, VTensor)
    assert y.dims == {"N": 1, "C": 4, "H": 3, "W": 3}
    np.testing.assert_array_equal(y.numpy(), expected)
    again = call(Relu(), y.slice(C=(1, 3)))
    np.testing.assert_array_equal(again.numpy(), np.maximum(expected[:, 1:3], 0))


def test_channels_last_is_given_by_names() -> None:
    x = values(1, 6, 6, 4)
    got = call(AvgPool((2, 2)), from_array(x, "N H W C"))
    other = call(AvgPool((2, 2)), x.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(got.numpy("N C H W"), other, atol=1e-6)
    given = call(AvgPool((2, 2)), x, dims="N H W C")
    np.testing.assert_allclose(given, got.numpy(), atol=1e-6)


def test_axes_without_names_go_as_numpy_broadcasts() -> None:
    a, b = values(2, 3, 4), values(3, 1)
    np.testing.assert_allclose(call(Add(), a, b), a + b, atol=1e-6)
    np.testing.assert_allclose(call(Add(), b, a), a + b, atol=1e-6)
    named = call(Add(), from_array(a, "N C W"), b)
    assert named.dims == {"N": 2, "C": 3, "W": 4}
    by_role = call(Add(), a, values(2), dims={"a": "N C W", "b": "N"})
    np.testing.assert_allclose(by_role, a + values(2)[:, None, None], atol=1e-6)


def test_operands_by_name() -> None:
    x, w = values(2, 16, 9, 9), values(8, 16, 3, 3)
    expected = call(Conv2D(), x, w)
    np.testing.assert_array_equal(call(Conv2D(), x, w=w), expected)
    np.testing.assert_array_equal(call(Conv2D(), w=w, x=x), expected)
    np.testing.assert_array_equal(call(Concat("D1"), x0=x, x1=x), np.hstack([x, x]))
    wrong: list[Any] = [{"x": x}, {"z": w}, {"w": w, "z": x}]
    for named in wrong:
        with pytest.raises(InputError, match=r"Conv2D takes x, w.*given by position, and by name"):
            call(Conv2D(), x, **named)
    with pytest.raises(InputError, match="and by name w"):
        call(Conv2D(), w=w)


def test_a_result_is_the_next_operand_as_it_lies() -> None:
    x, w = values(1, 3, 40, 40), values(32, 3, 7, 7)
    by_arrays = call(MaxPool((2, 2)), call(Relu(), call(Conv2D(), x, w)))
    y = call(Conv2D(), from_array(x, "N C H W"), w)
    assert y.produced_layout is not None
    z = call(Relu(), y)
    assert z.produced_layout == y.produced_layout
    np.testing.assert_allclose(call(MaxPool((2, 2)), z).numpy(), by_arrays, atol=1e-5)
    blocked = [one for one in (y, z) if not one.produced_layout.is_plain]
    for one in blocked:  # what the library of an AVX machine or better chooses
        assert one.slice(H=(2, 5), copy=False).shares_memory(one)
        with pytest.raises(LayoutError):
            one.numpy(copy=False)


def test_several_outputs() -> None:
    x = values(1, 4, 6, 6)
    y, places = call(MaxPoolIndices((2, 2), strides=(2, 2)), x)
    np.testing.assert_array_equal(np.take(x, places), y)
    tensors = call(MaxPoolIndices((2, 2), strides=(2, 2)), from_array(x, "N C H W"))
    assert [one.dtype for one in tensors] == ["f32", "s64"]


def test_a_call_is_resolved_once_a_shape(resolutions: list[str]) -> None:
    x = values(1, 3, 5, 7)
    call(Relu(), x)
    before = len(resolutions)
    for _ in range(3):
        call(Relu(), x + 1)
    assert len(resolutions) == before
    call(Relu(), values(1, 3, 5, 8))
    assert len(resolutions) == before + 1


def test_the_sessions_of_the_last_calls_are_kept(resolutions: list[str]) -> None:
    kept = calls()
    for size in range(1, kept.most + 10):
        call(Relu(), values(size), libraries=["numpy"])
    assert len(kept) == kept.most
    kept.clear()
    before = len(resolutions)
    call(Relu(), values(kept.most + 9), libraries=["numpy"])
    assert (len(kept), len(resolutions)) == (1, before + 1)


def test_the_sessions_of_calls_go_with_their_registry() -> None:
    outer = calls()
    call(Relu(), values(2))
    count = len(outer)
    with scratch_registry():
        call(Relu(), values(2))
        kept = ref(calls())
        assert len(calls()) == 1
    gc.collect()
    assert kept() is None
    assert (calls(), len(calls())) == (outer, count)


def test_what_no_listed_library_takes_runs_on_numpy() -> None:
    x = np.arange(16).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(call(MaxPool((1, 1)), x, libraries=["onednn"]), x)


def test_faults_are_typed() -> None:
    x = values(1, 4, 6, 6)
    with pytest.raises(DimError, match="say which axis is which"):
        call(AvgPool((2, 2)), x[0, 0])
    with pytest.raises(DimError, match="its inputs are x"):
        call(AvgPool((2, 2)), x, dims={"z": "N C H W"})
    with pytest.raises(DimError):
        call(AvgPool((2, 2)), x, dims="N C")
    with pytest.raises(DimError, match="list of names"):
        call(AvgPool((2, 2)), x, dims=3)  # type: ignore[arg-type]
    with pytest.raises(DimError):
        call(Conv2D(), x, values(8, 5, 3, 3))
    with pytest.raises(InputError, match="input 'x': list is no array"):
        call(Relu(), [1, 2])
    with pytest.raises(DTypeError):
        call(Relu(), np.array(["a"]))
    with pytest.raises(GraphError, match="takes 1 input, 2 given"):
        call(Relu(), x, x)
    with pytest.raises(GraphError, match="takes 2 inputs"):
        call(Add())
    with pytest.raises(GraphError, match="is no operator"):
        call(np.abs, x)
    with pytest.raises(GraphError, match="is no operator"):
        call(Relu, x)
    with pytest.raises(NoInvokerError, match="is not among"):
        call(MaxPool((1, 1)), x.astype(np.int64), pin="onednn")
    with pytest.raises(InputError, match="not registered"):
        call(Relu(), x, libraries=["nonsense"])
    for pin in ("nonsense", ["numpy"]):
        with pytest.raises(InputError, match=r"pin 'Relu': .* is not registered"):
            call(Relu(), x, pin=pin)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="threads"):
        call(Relu(), x, threads=-3)
    with pytest.raises(InputError, match="is no list of names"):
        call(Relu(), x, libraries=3)  # type: ignore[arg-type]


def test_parameters_that_compare_equal_are_still_others() -> None:
    x = values(2, 3)
    for factor in (0.0, -0.0, 0.0):
        got = call(Times(factor), x, pin="numpy")
        np.testing.assert_array_equal(np.signbit(got), np.signbit(x * np.float32(factor)))
    x = np.array([2**53 + 1])
    for one in (1.0, 1):
        assert call(Times(one), x, pin="numpy")[0] == 2**53 + 1


def test_a_parameter_that_is_no_number_is_resolved_once(resolutions: list[str]) -> None:
    x = values(2, 3)
    call(Times(float("nan")), x)
    before = len(resolutions)
    assert np.isnan(call(Times(float("nan")), x)).all()
    assert len(resolutions) == before


def test_a_call_leaves_nothing_on_disk_and_begins_nothing_in_the_background(
    tmp_path: Path,
) -> None:
    """Though it runs for longer than it took to plan."""
    code = """
import threading, time
import numpy as np
from ops import Conv2D, Relu
from vtensor import call
begun = set()
threading.setprofile(lambda *_: begun.add(threading.current_thread().name))
x, w = np.ones((1, 16, 256, 256), np.float32), np.ones((16, 16, 3, 3), np.float32)
for op, *given in ((Relu(), x), (Conv2D(), x, w)):
    before = time.perf_counter()
    call(op, *given, threads=1)
    until = time.perf_counter() + 3 * (time.perf_counter() - before)
    while time.perf_counter() < until:
        call(op, *given, threads=1)
print(len(begun))
"""
    folder = {"VTENSOR_CACHE": "on", "VTENSOR_CACHE_DIR": str(tmp_path / "cache")}
    environment = os.environ | folder | {"VTENSOR_COSTS": "calibrated"}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert not (tmp_path / "cache").exists()
