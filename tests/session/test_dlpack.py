"""DLPack: who owns the memory, how long it lives, and what the capsules say."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import vtensor
from ops import Relu
from ptensor import PTensor, lib_tagger
from ptensor.buffer import TensorStorage
from ptensor.dlpack import _COPIED, _PADDED, _READ_ONLY, CPU, _Managed, array_of, export
from ptensor.evaluation import Evaluation
from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.extend import extend
from tests.libraries.bench import Bench
from tests.session.test_session import Dlpack
from vtensor import VTensor, from_array, from_dlpack
from vtensor.errors import ContractError, DimError, DLPackError, InputError, LayoutError
from vtensor.language.dtype import ITEMSIZE, bits, numpy_dtype
from vtensor.runtime.planning import choosing

Array = np.ndarray[Any, Any]

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)


def values(*shape: int) -> Array:
    """Return an array whose elements are all different."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def address(array: Array) -> int:
    """Return the address of an array's first element."""
    return int(array.__array_interface__["data"][0])


class Owned(np.ndarray[Any, Any]):
    """An array to which there can be weak references."""


class Capsule:
    """An object that gives one capsule, again and again."""

    def __init__(self, capsule: object, device: tuple[int, int] = CPU) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **options: object) -> object:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def exported(x: VTensor, **options: Any) -> Any:
    """Return a capsule of the first version that has flags."""
    return x.__dlpack__(max_version=(1, 0), **options)


def blocked(array: Array, layout: str) -> VTensor:
    """Return a tensor N C H W in a layout."""
    x = VTensor("f32", dict(zip("NCHW", array.shape, strict=True)))
    x.storage = TensorStorage.of_array(array, x, Layout(layout), False)
    return x


def check_copied(x: VTensor, array: Array) -> None:
    """Check that an export is a copy with these values, and refused when it must not be one."""
    capsule = exported(x)
    assert _Managed(capsule).flags & _COPIED
    np.testing.assert_array_equal(array_of(Capsule(capsule)), array)
    with pytest.raises(DLPackError, match="copy is needed"):
        x.__dlpack__(copy=False)


@pytest.mark.parametrize("dtype", list(ITEMSIZE))
@pytest.mark.parametrize("version", [None, (1, 0), (1, 1), (2, 0)])
def test_every_element_type_comes_back(dtype: str, version: tuple[int, int] | None) -> None:
    array = np.array([[1, 2, 4], [8, 1, 2]]).astype(numpy_dtype(dtype))
    x = from_array(array, "N C")
    if bits(dtype) < 8 and (version or (0, 0)) < (1, 1):
        with pytest.raises(DLPackError, match=r"from 1\.1 on"):
            x.__dlpack__(max_version=version)
        return
    name = b"dltensor" if version is None else b"dltensor_versioned"
    capsule = x.__dlpack__(max_version=version)
    assert _name(capsule) == name
    y = from_dlpack(Capsule(capsule), "N C")
    assert _name(capsule) == b"used_" + name
    assert y.dtype == dtype
    assert address(y.numpy()) == address(array)
    np.testing.assert_array_equal(y.numpy(), array)
    assert y.numpy().flags.writeable == (version is not None)  # an old one cannot say


def test_numpy_reads_and_gives_memory_without_a_copy() -> None:
    array = values(2, 3, 4, 5)
    x = from_array(array, "N C H W").slice(H=(1, 3))
    there = np.from_dlpack(x)  # type: ignore[arg-type]  # its stubs know fewer options
    np.testing.assert_array_equal(there, array[:, :, 1:3])
    assert address(there) == address(array[:, :, 1:3])
    back = from_dlpack(array[::-1].transpose(3, 0, 2, 1), "W N H C")
    assert back.shares_memory(array)
    np.testing.assert_array_equal(back.numpy("N C H W"), array[::-1])


@pytest.mark.parametrize("consumer", ["numpy", "vtensor", "torch"])
def test_consumer_keeps_the_memory_alive(consumer: str) -> None:
    module = pytest.importorskip(consumer)
    array = np.zeros((4, 4), np.float32).view(Owned)
    watch = weakref.ref(array)
    x: VTensor | None = from_array(array, "A B")
    taken = from_dlpack(x, "A B").numpy() if module is vtensor else module.from_dlpack(x)
    del array, x
    gc.collect()
    assert watch() is not None
    taken[...] = 7
    assert (taken == 7).all()
    del taken
    gc.collect()
    assert watch() is None


def test_unused_capsule_releases_the_memory() -> None:
    array = np.zeros(4, np.float32).view(Owned)
    watch = weakref.ref(array)
    for version in (None, (1, 0)):
        capsule = from_array(array, "A").__dlpack__(max_version=version)
        del capsule
    del array
    gc.collect()
    assert watch() is None


def test_producer_is_released_once() -> None:
    deleted = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    array = values(3)
    capsule = exported(from_array(array, "A"))
    managed = _Managed(capsule).versioned
    assert managed is not None
    theirs = kind(managed.deleter)

    def count(pointer: int) -> None:
        deleted.append(pointer)
        theirs(pointer)

    ours = kind(count)
    managed.deleter = ctypes.cast(ours, ctypes.c_void_p).value
    x: VTensor | None = from_dlpack(Capsule(capsule), "A")
    del capsule
    assert deleted == []
    del x
    gc.collect()
    assert len(deleted) == 1


def test_capsule_is_taken_once() -> None:
    capsule = from_array(values(3), "A").__dlpack__()
    from_dlpack(Capsule(capsule), "A")
    for bad in (capsule, None, 3, "dltensor"):
        with pytest.raises(DLPackError, match="no DLPack capsule"):
            from_dlpack(Capsule(bad), "A")


def test_read_only_memory_stays_read_only() -> None:
    array = values(3)
    array.flags.writeable = False
    x = from_array(array, "A")
    capsule = exported(x)
    assert _Managed(capsule).flags & _READ_ONLY
    assert not from_dlpack(Capsule(capsule), "A").numpy().flags.writeable
    with pytest.raises(DLPackError):  # a capsule without the flag would be written
        x.__dlpack__()


def test_copies_are_marked() -> None:
    array = values(2, 5, 3, 2)
    x = from_array(array, "N C H W")
    assert not _Managed(exported(x, copy=False)).flags & _COPIED
    capsule = exported(x, copy=True)
    assert _Managed(capsule).flags & _COPIED
    assert not from_dlpack(Capsule(capsule), "N C H W").shares_memory(array)
    with pytest.raises(DLPackError, match="copies"):
        from_dlpack(Capsule(exported(x, copy=True)), "N C H W", copy=False)
    assert not from_dlpack(x, "N C H W", copy=True).shares_memory(array)
    assert not from_dlpack(Capsule(x.__dlpack__()), "N C H W", copy=True).shares_memory(array)
    assert from_dlpack(x, "N C H W", copy=False).shares_memory(array)


@pytest.mark.parametrize(
    "encoding", ["", ":bf16+bf16", ":u8(scale=0.5,zero=3)", ":s8(scale=[0.5,1,0.25,1,0.25]@C)"]
)
def test_blocks_and_encodings_are_not_exported(encoding: str) -> None:
    """A VTensor exports values in its own element type, whatever their encoding."""
    array = values(2, 5, 3, 1)
    x = blocked(array, f"NCHW4c{encoding}")
    check_copied(x, array)
    np.testing.assert_array_equal(x.numpy(), array)
    np.testing.assert_array_equal(x.slice(C=(1, 3)).numpy(), array[:, 1:3])
    with pytest.raises(LayoutError):
        x.numpy(copy=False)


def test_plain_layouts_are_exported_in_place() -> None:
    array = values(2, 5, 3, 2)
    plain = blocked(array, "NHWC")
    np.testing.assert_array_equal(np.from_dlpack(plain), array)  # type: ignore[arg-type]
    assert from_dlpack(plain, "N C H W", copy=False).produced_layout == Layout("NHWC")


def test_planes_are_no_array(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invoker has planes as bytes, which mean nothing to another framework."""
    monkeypatch.setattr(Evaluation, "rounding", True)
    seen: list[Array] = []

    @bench.invoker()
    def exporting(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC:bf16+bf16"), PTensor(y).require("NC")
        if lib_tagger("toy", [src], [dst]):
            return
        seen.append(src.data().copy())
        dst.data()[...] = 0
        with pytest.raises(DLPackError, match=r"x in NC:bf16\+bf16 is several planes"):
            src.__dlpack__()

    layouts = extend(resolve(bench.graph())).values
    assert [str(place.layout) for place in layouts.values()] == ["NC", "NC", "NC:bf16+bf16"]
    monkeypatch.setattr(choosing, "check", lambda *_: None)  # whose tolerance is still 0
    bench.run()
    assert [(array.dtype, array.nbytes) for array in seen] == [(np.uint8, 76)]


def test_odd_memory_is_copied_or_refused() -> None:
    unaligned = np.zeros(9, np.uint8)[1:].view(np.float32)
    records = np.zeros(3, [("a", "f4"), ("b", "u1")])["a"]
    for array in (unaligned, records):
        check_copied(from_array(array, "A"), array)


def packed() -> Any:
    """Return a capsule of elements that share bytes."""
    capsule = from_array(np.zeros(3, numpy_dtype("s4")), "A").__dlpack__(max_version=(1, 1))
    managed = _Managed(capsule).versioned
    assert managed is not None
    managed.flags &= ~_PADDED
    return Capsule(capsule)


X = from_array(values(3), "A")


@pytest.mark.parametrize(
    ("error", "match", "use"),
    [
        (DLPackError, "packed", lambda: from_dlpack(packed(), "A")),
        (DLPackError, "on the CPU", lambda: X.__dlpack__(dl_device=(2, 0))),
        (DLPackError, "streams", lambda: X.__dlpack__(stream=1)),
        (
            *(DLPackError, "not on the CPU"),
            lambda: from_dlpack(Capsule(X.__dlpack__(), (2, 0)), "A"),
        ),
        (InputError, "no __dlpack__", lambda: from_dlpack([1], "A")),
        (DimError, ".", lambda: from_dlpack(values(3), "A B")),
        (ContractError, "no data", lambda: VTensor("f32", {"A": 1}).__dlpack__()),
        (DLPackError, "complex", lambda: from_dlpack(Dlpack(np.zeros(3, "m8[s]")), "A")),
    ],
)
def test_faults_are_typed(error: type[Exception], match: str, use: Callable[[], object]) -> None:
    with pytest.raises(error, match=match):
        use()


def test_device_is_the_cpu() -> None:
    assert X.__dlpack_device__() == CPU
    X.__dlpack__(dl_device=(1, 0))
    assert issubclass(DLPackError, BufferError)  # what consumers expect


def test_call_takes_bf16_from_a_capsule() -> None:
    capsule = export(np.array([[-1, 2]]).astype(ml_dtypes.bfloat16), max_version=(1, 0))
    y = vtensor.call(Relu(), Capsule(capsule), libraries=["numpy"])
    np.testing.assert_array_equal(y, np.array([[0, 2]]).astype(ml_dtypes.bfloat16))


def test_ptensor_is_exported_in_place(bench: Bench) -> None:
    seen: list[Array] = []

    @bench.invoker()
    def peek(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("CN"), PTensor(y).require("CN")
        if lib_tagger("toy", [src], [dst]):
            return
        assert src.__dlpack_device__() == CPU
        there = np.from_dlpack(dst)  # type: ignore[arg-type]  # its stubs know fewer options
        assert address(there) == address(dst.data())
        seen.append(np.from_dlpack(src).copy())  # type: ignore[arg-type]
        there[...] = np.from_dlpack(src)  # type: ignore[arg-type]

    x = values(2, 3)
    with vtensor.Session(bench.graph("Toy")) as session:
        [y] = session.run(None, {"x0": x})
    np.testing.assert_array_equal(seen[0], x.T)
    np.testing.assert_array_equal(y, x)


def test_pytorch_reads_and_gives_memory_without_a_copy() -> None:
    torch = pytest.importorskip("torch")
    names = "float32 bfloat16 float8_e4m3fn float8_e5m2 complex64 int64 bool"
    for kind in (getattr(torch, name) for name in names.split()):
        theirs = torch.arange(6).reshape(2, 3).to(kind)
        x = from_dlpack(theirs, "A B")
        assert address(x.numpy()) == theirs.data_ptr()
        back = torch.from_dlpack(x)
        assert back.data_ptr() == theirs.data_ptr()
        assert back.dtype == kind
        copied = torch.from_dlpack(from_array(x.numpy(copy=True), "A B"))
        for tensor in (back, copied):
            assert tensor.to(torch.complex128).equal(theirs.to(torch.complex128))
    last = torch.zeros(1, 8, 4, 4).to(memory_format=torch.channels_last)
    assert from_dlpack(last, "N C H W").produced_layout == Layout("NHWC")
    assert torch.from_dlpack(from_dlpack(last, "N C H W")).stride() == last.stride()
    theirs = torch.full((1000,), 5.0)
    x = from_dlpack(theirs, "A")
    del theirs
    gc.collect()
    assert (x.numpy() == 5).all()


def test_pytorch_tensors_go_into_a_session_and_a_call() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    np.testing.assert_array_equal(vtensor.call(Relu(), x), x.relu().numpy())
    graph = vtensor.Graph("g")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 2, "C": 2})), "y")
    with vtensor.Session(graph) as session:
        into = torch.zeros(2, 2)
        [y] = session.run(None, {"x": x}, out={"y": into})
        assert address(y) == into.data_ptr()
        assert into.equal(x.relu())
        assert session.copied == set()


def test_tensor_that_pytorch_cannot_export_is_a_typed_error() -> None:
    torch = pytest.importorskip("torch")
    ones = torch.ones(2)
    for tensor, remedy in (
        (torch.ones(2, requires_grad=True), r"\.detach\(\)"),
        (torch._neg_view(ones), r"\.resolve_neg\(\)"),
        (torch.ones(2, dtype=torch.complex64).conj(), "conjugate"),
        (ones.to_sparse(), "layout"),
        (torch.ones(2, device="meta"), "device"),
    ):
        with pytest.raises(DLPackError, match=remedy):
            from_dlpack(tensor, "A")
        with pytest.raises(InputError, match=remedy):
            vtensor.call(Relu(), tensor)
