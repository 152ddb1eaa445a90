"""``call``: one operator on arrays, through the same dispatcher and resolver as a session."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

from libdesc.registry import registry
from ops import Add, AvgPool, Concat, Conv2D, MaxPool, MaxPoolIndices, Relu, Times
from tests.libraries.processes import run_python
from tests.libraries.scratch import scratch_registry
from tests.operators.tables.cases import INEXACT
from tests.session.test_session import Arrayish, Dlpack
from vtensor import VTensor, call, from_array
from vtensor.errors import DimError, DTypeError, GraphError, InputError, LayoutError, NoInvokerError
from vtensor.runtime.call import calls

Array = np.ndarray[Any, Any]


def values(*shape: int) -> Array:
    """Return seeded random numbers."""
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_libraries_agree() -> None:
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


def test_operand_may_be_any_array_or_a_tensor() -> None:
    x, last = values(1, 4, 6, 6), values(1, 6, 6, 4).transpose(0, 3, 1, 2)
    op = MaxPool((1, 1), strides=(2, 2))
    for operand, array in ((x, x), (Dlpack(x), x), (Arrayish(x), x), (last, last)):
        y = call(op, operand)
        assert isinstance(y, np.ndarray)
        np.testing.assert_array_equal(y, array[:, :, ::2, ::2])
    tensor = call(op, from_array(x, "N C H W"))
    assert isinstance(tensor, VTensor)
    assert tensor.dims == {"N": 1, "C": 4, "H": 3, "W": 3}
    np.testing.assert_array_equal(tensor.numpy(), x[:, :, ::2, ::2])
    part = call(Relu(), tensor.slice(C=(1, 3)))
    np.testing.assert_array_equal(part.numpy(), np.maximum(x[:, 1:3, ::2, ::2], 0))


def test_axes_are_told_by_names_or_broadcast_as_by_numpy() -> None:
    x = values(1, 6, 6, 4)
    named = call(AvgPool((2, 2)), from_array(x, "N H W C"))
    by_place = call(AvgPool((2, 2)), x.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(named.numpy("N C H W"), by_place, atol=1e-6)
    by_text = call(AvgPool((2, 2)), x, dims="N H W C")
    np.testing.assert_allclose(by_text, named.numpy(), atol=1e-6)
    a, b, c = values(2, 3, 4), values(3, 1), values(2)
    np.testing.assert_allclose(call(Add(), a, b), a + b, atol=1e-6)
    np.testing.assert_allclose(call(Add(), b, a), a + b, atol=1e-6)
    assert call(Add(), from_array(a, "N C W"), b).dims == {"N": 2, "C": 3, "W": 4}
    by_role = call(Add(), a, c, dims={"a": "N C W", "b": "N"})
    np.testing.assert_allclose(by_role, a + c[:, None, None], atol=1e-6)


def test_operands_may_be_given_by_name() -> None:
    x, w = values(2, 16, 9, 9), values(8, 16, 3, 3)
    expected = call(Conv2D(), x, w)
    np.testing.assert_array_equal(call(Conv2D(), x, w=w), expected)
    np.testing.assert_array_equal(call(Conv2D(), w=w, x=x), expected)
    np.testing.assert_array_equal(call(Concat("D1"), x0=x, x1=x), np.hstack([x, x]))
    mistakes: list[dict[str, Any]] = [{"x": x}, {"z": w}, {"w": w, "z": x}]
    for named in mistakes:
        with pytest.raises(InputError, match=r"Conv2D takes x, w.*given by position, and by name"):
            call(Conv2D(), x, **named)
    with pytest.raises(InputError, match="and by name w"):
        call(Conv2D(), w=w)


def test_result_is_the_next_operand_in_its_layout() -> None:
    x, w = values(1, 3, 40, 40), values(32, 3, 7, 7)
    by_arrays = call(MaxPool((2, 2)), call(Relu(), call(Conv2D(), x, w)))
    y = call(Conv2D(), from_array(x, "N C H W"), w)
    assert y.produced_layout is not None
    z = call(Relu(), y)
    assert z.produced_layout == y.produced_layout
    np.testing.assert_allclose(call(MaxPool((2, 2)), z).numpy(), by_arrays, atol=1e-5)
    for tensor in (y, z):
        if not tensor.produced_layout.is_plain:  # as on machines with AVX
            assert tensor.slice(H=(2, 5), copy=False).shares_memory(tensor)
            with pytest.raises(LayoutError):
                tensor.numpy(copy=False)


def test_operator_may_have_several_outputs() -> None:
    x = values(1, 4, 6, 6)
    y, places = call(MaxPoolIndices((2, 2), strides=(2, 2)), x)
    np.testing.assert_array_equal(np.take(x, places), y)
    tensors = call(MaxPoolIndices((2, 2), strides=(2, 2)), from_array(x, "N C H W"))
    assert [tensor.dtype for tensor in tensors] == ["f32", "s64"]


def test_call_is_resolved_once_a_shape_and_parameter(resolutions: list[str]) -> None:
    x = values(1, 3, 5, 7)
    nan = Times(float("nan"))
    calls().clear()
    pairs: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: call(Relu(), x), lambda: call(Relu(), x + 1)),
        (lambda: call(Relu(), values(1, 3, 5, 8)), lambda: call(Relu(), values(1, 3, 5, 8))),
        (lambda: call(nan, x), lambda: call(Times(float("nan")), x)),
    ]
    for first, again in pairs:
        before = len(resolutions)
        first()
        assert len(resolutions) == before + 1
        for _ in range(3):
            again()
        assert len(resolutions) == before + 1
    assert np.isnan(call(nan, x)).all()


def test_sessions_of_the_last_calls_are_kept(resolutions: list[str]) -> None:
    sessions = calls()
    for size in range(1, sessions.most + 10):
        call(Relu(), values(size), libraries=["numpy"])
    assert len(sessions) == sessions.most
    sessions.clear()
    before = len(resolutions)
    call(Relu(), values(sessions.most + 9), libraries=["numpy"])
    assert (len(sessions), len(resolutions)) == (1, before + 1)


def test_sessions_of_calls_are_freed_with_their_registry() -> None:
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


def test_call_that_no_listed_library_takes_runs_on_numpy() -> None:
    x = np.arange(16).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(call(MaxPool((1, 1)), x, libraries=["onednn"]), x)


X, POOL, NONE = values(1, 4, 6, 6), AvgPool((2, 2)), "nonsense"
FAULTS: list[tuple[type[Exception], str, list[Any], dict[str, Any]]] = [
    (DimError, "say which axis is which", [POOL, X[0, 0]], {}),
    (DimError, "its inputs are x", [POOL, X], {"dims": {"z": "N C H W"}}),
    (DimError, ".", [POOL, X], {"dims": "N C"}),
    (DimError, "list of names", [POOL, X], {"dims": 3}),
    (DimError, ".", [Conv2D(), X, values(8, 5, 3, 3)], {}),
    (InputError, "input 'x': list is no array", [Relu(), [1, 2]], {}),
    (DTypeError, ".", [Relu(), np.array(["a"])], {}),
    (GraphError, "takes 1 input, 2 given", [Relu(), X, X], {}),
    (GraphError, "takes 2 inputs", [Add()], {}),
    (GraphError, "is no operator", [np.abs, X], {}),
    (GraphError, "is no operator", [Relu, X], {}),
    (NoInvokerError, "is not among", [MaxPool((1, 1)), X.astype("i8")], {"pin": "onednn"}),
    (InputError, "not registered", [Relu(), X], {"libraries": [NONE]}),
    (InputError, r"pin 'Relu': .* is not registered", [Relu(), X], {"pin": NONE}),
    (InputError, r"pin 'Relu': .* is not registered", [Relu(), X], {"pin": ["numpy"]}),
    (InputError, "threads", [Relu(), X], {"threads": -3}),
    (InputError, "is no list of names", [Relu(), X], {"libraries": 3}),
]


@pytest.mark.parametrize(("error", "match", "operands", "options"), FAULTS)
def test_nonsense_is_a_typed_error(
    error: type[Exception], match: str, operands: list[Any], options: dict[str, Any]
) -> None:
    with pytest.raises(error, match=match):
        call(*operands, **options)


def test_parameters_that_compare_equal_are_told_apart() -> None:
    x = values(2, 3)
    for factor in (0.0, -0.0, 0.0):
        y = call(Times(factor), x, pin="numpy")
        np.testing.assert_array_equal(np.signbit(y), np.signbit(x * np.float32(factor)))
    x = np.array([2**53 + 1])
    for factor in (1.0, 1):
        assert call(Times(factor), x, pin="numpy")[0] == 2**53 + 1


def test_call_writes_no_file_and_starts_no_thread(tmp_path: Path) -> None:
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
    environment = {**folder, "VTENSOR_COSTS": "calibrated"}
    done = run_python("-W", "error", "-c", code, environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert not (tmp_path / "cache").exists()
