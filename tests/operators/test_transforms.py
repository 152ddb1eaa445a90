"""What moves and what does not: Transforms on oneDNN, and operators that only share memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from libdesc.dispatcher import DispatchContext
from libdesc.preferences import Preferences
from libdesc.transforms import LayoutChange, choose_library, run_transform
from ops import BitCast, Clip, Identity, MatMul, Relu, Rename, Reshape, Softmax
from ptensor.buffer import TensorStorage
from ptensor.error import storing_error
from ptensor.evaluation import installed
from ptensor.layout import Layout
from ptensor.physical import pads_are_zero
from ptensor.transform import transform
from tests.operators.harness import Deciding, Given, Running, check_pads, poisoned, run, storage_of
from tests.property.strategies import values
from vtensor.errors import NoInvokerError
from vtensor.language.operators import Follower, run_compute
from vtensor.language.tensor import VTensor

SIZES = {"N": 2, "C": 17, "H": 5, "W": 3}

#: Encodings that only the definition knows.
FORMS = [
    "bf16+bf16",
    "u8(scale=0.5,zero=128)",
    f"s8(scale=[{','.join(str(0.25 + i / 64) for i in range(17))}]@C)",
    f"u8(scale=0.5,zero=[{','.join(str(120 + i) for i in range(17))}]@C)+bf16",
]


def chosen(dtype: str, source: str, target: str) -> str:
    """The library that a Transform goes to when the consumer is on oneDNN."""
    change = LayoutChange(Layout(source), Layout(target))
    with installed(Deciding()):
        return choose_library(VTensor(dtype, SIZES), change, ["onednn"], Deciding())


@pytest.mark.parametrize(
    ("source", "target"),
    [("NCHW", "NHWC"), ("NHWC", "NCHW16c"), ("NCHW16c", "NCHW8c"), ("NCHW8c", "NCHW:bf16")],
)
def test_a_transform_on_onednn_is_one_step(source: str, target: str) -> None:
    assert chosen("f32", source, target) == "onednn"
    logical = np.random.default_rng(0).normal(size=tuple(SIZES.values())).astype(np.float32)
    x, y = VTensor("f32", SIZES), VTensor("f32", SIZES)
    x.storage = TensorStorage.of_array(logical, x, Layout(source), False)
    y.storage = TensorStorage(
        "f32", SIZES, Layout(target), poisoned(Layout(target).nbytes(SIZES, "f32"))
    )
    running = Running()
    with installed(running):
        run_transform("t", "onednn", x, y, LayoutChange(Layout(source), Layout(target)), running)
    assert len(running.kernels) == 1
    expected = transform(x.data(), Layout(source), Layout(target), SIZES)
    assert np.array_equal(y.data(), expected)
    check_pads(storage_of(y))


@pytest.mark.parametrize(
    ("dtype", "source", "target"),
    [
        ("c128", "NCHW", "NHWC"),  # no such element type
        ("f32", "NCHW", "NCHW:s8"),  # a quantization
        ("f32", "NCHW", "NCHW:s8(scale=0.5)"),
        *(("f32", "NCHW", f"NCHW16c:{encoding}") for encoding in FORMS),
        *(("f32", f"NCHW16c:{one}", f"NHWC:{one}") for one in FORMS if "zero" in one or "+" in one),
    ],
)
def test_the_definition_takes_what_no_library_has_a_word_for(
    dtype: str, source: str, target: str
) -> None:
    assert chosen(dtype, source, target) == "numpy"


@pytest.mark.parametrize("encoding", FORMS)
def test_the_definition_goes_to_every_encoding_and_back(encoding: str) -> None:
    """As a step of a plan would: from storage to storage, pads included."""
    logical = np.random.default_rng(0).normal(0, 9, tuple(SIZES.values())).astype(np.float32)
    way = [
        Layout("NCHW"),
        Layout(f"NCHW16c:{encoding}"),
        Layout(f"HWNC:{encoding}"),
        Layout("NHWC"),
    ]
    x = VTensor("f32", SIZES)
    x.storage = TensorStorage.of_array(logical, x, way[0], False)
    for source, target in pairwise(way):
        y = VTensor("f32", SIZES)
        buffer = poisoned(target.nbytes(SIZES, "f32"))
        y.storage = TensorStorage("f32", SIZES, target, buffer)
        running = Running()
        with installed(running):
            run_transform("t", "numpy", x, y, LayoutChange(source, target), running)
        assert pads_are_zero(storage_of(y).data(), target, SIZES)
        assert np.array_equal(y.data(), transform(x.data(), source, target, SIZES))
        x = y
    worst = storing_error("f32", Layout(f"N:{encoding}".replace("@C", "@N")).stored("f32"))
    back = x.data().transpose(0, 3, 1, 2)
    inside = (logical >= worst.low) & (logical <= worst.high)
    bound = np.maximum(worst.relative * np.abs(logical), worst.absolute)
    assert inside.mean() > 0.8
    assert (np.abs(back - logical)[inside] <= (bound + 2.0**-23 * np.abs(logical))[inside]).all()


def image(layout: str) -> Given:
    """An image in a layout."""
    return Given(values(tuple(SIZES.values()), "s32", 1), tuple(SIZES), Layout(layout))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW16c", "WHCN"])
def test_identity_and_rename_leave_everything_where_it_is(layout: str) -> None:
    same = run("numpy", Identity(), [image(layout)])
    assert same.variant.layouts == (Layout(layout),) * 2
    renamed = run("numpy", Rename((("C", "H"), ("H", "C"))), [image(layout)])
    assert renamed.variant.layouts[0] == Layout(layout)
    assert renamed.variant.layouts[1] == Layout(layout).rename({"C": "H", "H": "C"})
    assert not [*same.kernels, *renamed.kernels]
    for outcome in (same, renamed):
        assert np.array_equal(outcome.values[0], image(layout).array)
        assert outcome.physical[0].root is not outcome.physical[0]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW16c"])
def test_other_bits_are_the_same_memory(layout: str) -> None:
    bits = run("numpy", BitCast("f32"), [image(layout)])
    assert bits.variant.layouts == (Layout(layout),) * 2
    assert not bits.kernels
    assert np.array_equal(bits.values[0].view(np.int32), image(layout).array)
    assert bits.physical[0].root is not bits.physical[0]


@pytest.mark.parametrize(
    ("shape", "layout", "source", "target"),
    [
        ("N=2 C=17 P=15", "NHWC", "NHWC", "NPC"),
        ("N=2 F=255", "NHWC", "NHWC", "N15fF"),
        ("N=2 F=255", "NWHC", "NCHW", "NF"),
        ("N=2 C=17 P=15", "NCHW16c", "NCHW", "NCP"),
    ],
)
def test_reshape_asks_for_the_order_of_presentation_where_no_other_will_do(
    shape: str, layout: str, source: str, target: str
) -> None:
    sizes = {dim: int(size) for dim, size in (word.split("=") for word in shape.split())}
    found = run("numpy", Reshape((*sizes.items(),)), [image(layout)])
    assert found.variant.layouts == (Layout(source), Layout(target))
    assert np.array_equal(found.values[0], image(layout).array.reshape(*sizes.values()))
    assert not found.kernels


@pytest.mark.parametrize(
    ("op", "follower", "reason"),
    [
        (Softmax(("C",)), Relu(), "onednn : its invoker does not fuse Relu"),
        (MatMul("C"), Softmax(("K",)), "MatMul cannot fuse Softmax here"),
        (MatMul("C"), Clip(1.0, 2.0), "MatMul cannot fuse Clip here"),
    ],
)
def test_a_follower_is_declined_by_name(op: object, follower: object, reason: str) -> None:
    ctx = DispatchContext(
        node="case",
        preferences=Preferences(nodes={"case": "onednn"}),
        followers=(Follower(follower),),
    )
    inputs = [VTensor("f32", {"N": 4, "C": 16}), VTensor("f32", {"C": 16, "K": 8})]
    with installed(Deciding()), pytest.raises(NoInvokerError, match=reason):
        run_compute(ctx, op, inputs[: 1 + isinstance(op, MatMul)])


def test_followers_are_never_dropped_in_silence() -> None:
    """NumPy's invoker does not say that it takes them, so it has not."""
    ctx = DispatchContext(
        node="case", preferences=Preferences(nodes={"case": "numpy"}), followers=(Follower(Relu()),)
    )
    x = VTensor("f32", {"N": 1, "C": 16})
    with (
        installed(Deciding()),
        pytest.raises(NoInvokerError, match=r"numpy +: its invoker does not fuse Relu"),
    ):
        run_compute(ctx, Relu(), [x])


def test_a_type_that_the_processor_lacks_is_declined_by_name() -> None:
    ctx = DispatchContext(node="case", preferences=Preferences(nodes={"case": "onednn"}))
    sizes = {"A": 2, "B": 3}
    with installed(Deciding()), pytest.raises(NoInvokerError, match="dtype f64 of x is not among"):
        run_compute(ctx, Relu(), [VTensor("f64", sizes)])
