"""DLPack: whose memory it is, how long it lives, and what the capsules say."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import vtensor
from ptensor import PTensor, lib_tagger
from ptensor.buffer import TensorStorage
from ptensor.dlpack import _COPIED, _PADDED, _READ_ONLY, CPU, _Managed, array_of, export
from ptensor.evaluation import Evaluation
from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.extend import extend
from tests.libraries.bench import Bench
from tests.libraries.scratch import scratch_registry
from tests.session.test_session import Dlpack
from vtensor import VTensor, from_array, from_dlpack
from vtensor.errors import ContractError, DimError, DLPackError, InputError, LayoutError
from vtensor.language.dtype import ITEMSIZE, bits, numpy_dtype
from vtensor.runtime.planning import choosing

Array = np.ndarray[Any, Any]

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)


def values(*shape: int) -> Array:
    """Every element another number."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def address(array: Array) -> int:
    """Where an array begins."""
    return int(array.__array_interface__["data"][0])


class Owned(np.ndarray[Any, Any]):
    """An array that can be watched while it dies."""


def owned(*shape: int) -> Array:
    """Watched memory."""
    return np.zeros(shape, np.float32).view(Owned)


class Capsule:
    """An object that gives one capsule, again and again."""

    def __init__(self, capsule: object, device: tuple[int, int] = CPU) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **options: object) -> object:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.mark.parametrize("dtype", list(ITEMSIZE))
@pytest.mark.parametrize("version", [None, (1, 0), (1, 1), (2, 0)])
def test_every_element_type_there_and_back(dtype: str, version: tuple[int, int] | None) -> None:
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


def test_elements_that_share_bytes_are_refused() -> None:
    capsule = from_array(np.zeros(3, numpy_dtype("s4")), "A").__dlpack__(max_version=(1, 1))
    managed = _Managed(capsule).versioned
    assert managed is not None
    managed.flags &= ~_PADDED
    with pytest.raises(DLPackError, match="packed"):
        from_dlpack(Capsule(capsule), "A")


def test_numpy_both_ways_without_a_copy() -> None:
    array = values(2, 3, 4, 5)
    x = from_array(array, "N C H W").slice(H=(1, 3))
    there = np.from_dlpack(x)  # type: ignore[arg-type]  # its stubs know fewer options
    np.testing.assert_array_equal(there, array[:, :, 1:3])
    assert address(there) == address(array[:, :, 1:3])
    back = from_dlpack(array[::-1].transpose(3, 0, 2, 1), "W N H C")
    assert back.shares_memory(array)
    np.testing.assert_array_equal(back.numpy("N C H W"), array[::-1])


def test_the_consumer_keeps_the_memory_alive() -> None:
    for give in (lambda x: np.from_dlpack(x), lambda x: from_dlpack(x, "A B").numpy()):
        array = owned(4, 4)
        watch = weakref.ref(array)
        x: VTensor | None = from_array(array, "A B")
        taken = give(x)
        del array, x
        gc.collect()
        assert watch() is not None
        taken[...] = 7
        assert (taken == 7).all()
        del taken
        gc.collect()
        assert watch() is None


def test_a_capsule_that_nobody_takes_lets_go() -> None:
    array = owned(4)
    watch = weakref.ref(array)
    for version in (None, (1, 0)):
        capsule = from_array(array, "A").__dlpack__(max_version=version)
        del capsule
    del array
    gc.collect()
    assert watch() is None


def test_the_producer_is_let_go_of_once() -> None:
    deleted = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    array = values(3)
    capsule = from_array(array, "A").__dlpack__(max_version=(1, 0))
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


def test_a_capsule_is_good_for_once() -> None:
    capsule = from_array(values(3), "A").__dlpack__()
    from_dlpack(Capsule(capsule), "A")
    for bad in (capsule, None, 3, "dltensor"):
        with pytest.raises(DLPackError, match="no DLPack capsule"):
            from_dlpack(Capsule(bad), "A")


def test_read_only_stays_read_only() -> None:
    array = values(3)
    array.flags.writeable = False
    x = from_array(array, "A")
    capsule = x.__dlpack__(max_version=(1, 0))
    assert _Managed(capsule).flags & _READ_ONLY
    assert not from_dlpack(Capsule(capsule), "A").numpy().flags.writeable
    with pytest.raises(DLPackError):  # one that cannot be told would write
        x.__dlpack__()


def test_copies_are_said_to_be() -> None:
    array = values(2, 5, 3, 2)
    x = from_array(array, "N C H W")
    assert not _Managed(x.__dlpack__(max_version=(1, 0), copy=False)).flags & _COPIED
    capsule = x.__dlpack__(max_version=(1, 0), copy=True)
    assert _Managed(capsule).flags & _COPIED
    assert not from_dlpack(Capsule(capsule), "N C H W").shares_memory(array)
    with pytest.raises(DLPackError, match="copies"):
        from_dlpack(Capsule(x.__dlpack__(max_version=(1, 0), copy=True)), "N C H W", copy=False)
    assert not from_dlpack(x, "N C H W", copy=True).shares_memory(array)
    assert not from_dlpack(Capsule(x.__dlpack__()), "N C H W", copy=True).shares_memory(array)
    assert from_dlpack(x, "N C H W", copy=False).shares_memory(array)


def test_blocks_never_leak() -> None:
    array = values(2, 5, 3, 2)
    x = VTensor("f32", {"N": 2, "C": 5, "H": 3, "W": 2})
    x.storage = TensorStorage.of_array(array, x, Layout("NCHW4c"), False)
    capsule = x.__dlpack__(max_version=(1, 0))
    assert _Managed(capsule).flags & _COPIED
    np.testing.assert_array_equal(array_of(Capsule(capsule)), array)
    with pytest.raises(DLPackError, match="copy is needed"):
        x.__dlpack__(copy=False)
    plain = VTensor("f32", x.dims)
    plain.storage = TensorStorage.of_array(array, plain, Layout("NHWC"), False)
    np.testing.assert_array_equal(np.from_dlpack(plain), array)  # type: ignore[arg-type]
    assert from_dlpack(plain, "N C H W", copy=False).produced_layout == Layout("NHWC")


@pytest.mark.parametrize(
    "encoding", ["bf16+bf16", "u8(scale=0.5,zero=3)", "s8(scale=[0.5,1,0.25,1,0.25]@C)"]
)
def test_encodings_never_leak(encoding: str) -> None:
    """A VTensor hands over values in its own element type, however they are stored."""
    array = values(2, 5, 3, 1)
    x = VTensor("f32", {"N": 2, "C": 5, "H": 3, "W": 1})
    x.storage = TensorStorage.of_array(array, x, Layout(f"NCHW4c:{encoding}"), False)
    capsule = x.__dlpack__(max_version=(1, 0))
    assert _Managed(capsule).flags & _COPIED
    np.testing.assert_array_equal(array_of(Capsule(capsule)), array)
    np.testing.assert_array_equal(x.numpy(), array)
    np.testing.assert_array_equal(x.slice(C=(1, 3)).numpy(), array[:, 1:3])
    with pytest.raises(DLPackError, match="copy is needed"):
        x.__dlpack__(copy=False)
    with pytest.raises(LayoutError):
        x.numpy(copy=False)


def test_planes_are_no_array(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invoker has them as bytes, which mean nothing to another framework."""
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

    graph = bench.graph()
    layouts = extend(resolve(graph)).values
    assert [str(one.layout) for one in layouts.values()] == ["NC", "NC", "NC:bf16+bf16"]
    monkeypatch.setattr(choosing, "check", lambda *_: None)  # which has tolerance 0 still
    bench.run()
    assert [(one.dtype, one.nbytes) for one in seen] == [(np.uint8, 76)]


def test_odd_memory_is_copied_or_refused() -> None:
    raw = np.zeros(9, np.uint8)
    unaligned = raw[1:].view(np.float32)
    records = np.zeros(3, [("a", "f4"), ("b", "u1")])["a"]
    for array in (unaligned, records):
        x = from_array(array, "A")
        assert _Managed(x.__dlpack__(max_version=(1, 0))).flags & _COPIED
        with pytest.raises(DLPackError, match="copy is needed"):
            x.__dlpack__(copy=False)


def test_devices_and_streams() -> None:
    x = from_array(values(3), "A")
    assert x.__dlpack_device__() == CPU
    x.__dlpack__(dl_device=(1, 0))
    with pytest.raises(DLPackError, match="on the CPU"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(DLPackError, match="streams"):
        x.__dlpack__(stream=1)
    with pytest.raises(DLPackError, match="not on the CPU"):
        from_dlpack(Capsule(x.__dlpack__(), (2, 0)), "A")
    assert issubclass(DLPackError, BufferError)  # what consumers expect


def test_faults_are_typed() -> None:
    with pytest.raises(InputError, match="no __dlpack__"):
        from_dlpack([1], "A")
    with pytest.raises(DimError):
        from_dlpack(values(3), "A B")
    with pytest.raises(ContractError, match="no data"):
        VTensor("f32", {"A": 1}).__dlpack__()
    with pytest.raises(DLPackError, match="complex"):
        from_dlpack(Dlpack(np.zeros(3, "m8[s]")), "A")


def test_bf16_goes_through_a_session() -> None:
    from ops import Relu

    array = np.array([[-1, 2]]).astype(ml_dtypes.bfloat16)
    got = vtensor.call(Relu(), from_array(array, "N C"), libraries=["numpy"])
    np.testing.assert_array_equal(got.numpy(), np.array([[0, 2]]).astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(
        vtensor.call(Relu(), Capsule(export(array, max_version=(1, 0))), libraries=["numpy"]),
        got.numpy(),
    )


def test_a_ptensor_is_exported_as_it_lies() -> None:
    seen: list[Array] = []
    with scratch_registry():
        bench = Bench()

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
            [got] = session.run(None, {"x0": x})
    np.testing.assert_array_equal(seen[0], x.T)
    np.testing.assert_array_equal(got, x)


def test_pytorch_both_ways() -> None:
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
        for one in (back, copied):
            assert one.to(torch.complex128).equal(theirs.to(torch.complex128))
    last = torch.zeros(1, 8, 4, 4).to(memory_format=torch.channels_last)
    assert from_dlpack(last, "N C H W").produced_layout == Layout("NHWC")
    assert torch.from_dlpack(from_dlpack(last, "N C H W")).stride() == last.stride()


def test_pytorch_and_who_outlives_whom() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.full((1000,), 5.0)
    x = from_dlpack(theirs, "A")
    del theirs
    gc.collect()
    assert (x.numpy() == 5).all()
    array = owned(1000)
    watch = weakref.ref(array)
    taken = torch.from_dlpack(from_array(array, "A"))
    del array
    gc.collect()
    assert watch() is not None
    assert taken.fill_(7).sum() == 7000
    del taken
    gc.collect()
    assert watch() is None


def test_pytorch_in_a_session_and_a_call() -> None:
    torch = pytest.importorskip("torch")
    from ops import Relu

    x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    np.testing.assert_array_equal(vtensor.call(Relu(), x), x.relu().numpy())
    graph = vtensor.Graph("g")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 2, "C": 2})), "y")
    with vtensor.Session(graph) as session:
        into = torch.zeros(2, 2)
        [got] = session.run(None, {"x": x}, out={"y": into})
        assert address(got) == into.data_ptr()
        assert into.equal(x.relu())
        assert session.copied == set()


def test_what_pytorch_cannot_show_is_a_typed_error() -> None:
    torch = pytest.importorskip("torch")
    from ops import Relu

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
