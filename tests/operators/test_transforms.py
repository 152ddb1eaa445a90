"""What moves and what does not: Transforms on oneDNN, and operators that only share memory."""

from __future__ import annotations

import numpy as np
import pytest

from libdesc.transforms import LayoutChange, choose_library, run_transform
from ops import BitCast, Clip, Identity, MatMul, Relu, Rename, Reshape, Softmax
from ptensor.buffer import TensorStorage
from ptensor.error import storing_error
from ptensor.evaluation import installed
from ptensor.layout import Layout
from ptensor.transform import transform
from tests.operators.harness import (
    Array,
    Deciding,
    Given,
    Running,
    check_pads,
    context,
    poisoned,
    run,
    storage_of,
)
from tests.operators.tables.cases import dims_of
from tests.property.strategies import values
from vtensor.errors import NoInvokerError
from vtensor.language.operators import Follower, run_compute
from vtensor.language.tensor import VTensor

SIZES = {"N": 2, "C": 17, "H": 5, "W": 3}

#: Encodings of which the definition alone knows each change; f32 to the first is oneDNN's as well.
FORMS = [
    "bf16+bf16",
    "u8(scale=0.5,zero=128)",
    f"s8(scale=[{','.join(str(0.25 + i / 64) for i in range(17))}]@C)",
    f"u8(scale=0.5,zero=[{','.join(str(120 + i) for i in range(17))}]@C)+bf16",
]


def chosen(dtype: str, source: str, target: str) -> str:
    """Return the library of a Transform whose consumer is on oneDNN."""
    change = LayoutChange(Layout(source), Layout(target))
    with installed(Deciding()):
        return choose_library(VTensor(dtype, SIZES), change, ["onednn"], Deciding())


def drawn(scale: float = 1.0) -> Array:
    """Return the values of an image."""
    return np.random.default_rng(0).normal(0, scale, tuple(SIZES.values())).astype(np.float32)


def stored(values: Array, layout: Layout) -> VTensor:
    """Return an image in a layout."""
    x = VTensor("f32", SIZES)
    x.storage = TensorStorage.of_array(values, x, layout, False)
    return x


def changed(library: str, x: VTensor, target: Layout) -> tuple[VTensor, list[str]]:
    """Run a Transform into poisoned memory, check its result, and return it with its kernels."""
    y = VTensor("f32", SIZES)
    y.storage = TensorStorage("f32", SIZES, target, poisoned(target.nbytes(SIZES, "f32")))
    change, running = LayoutChange(storage_of(x).layout, target), Running()
    with installed(running):
        run_transform("t", library, x, y, change, running)
    assert np.array_equal(y.data(), transform(x.data(), change.source, target, SIZES))
    check_pads(storage_of(y))
    return y, running.kernels


@pytest.mark.parametrize(
    ("source", "target"),
    [("NCHW", "NHWC"), ("NHWC", "NCHW16c"), ("NCHW16c", "NCHW8c"), ("NCHW8c", "NCHW:bf16")],
)
def test_a_transform_on_onednn_is_one_step(source: str, target: str) -> None:
    assert chosen("f32", source, target) == "onednn"
    _, kernels = changed("onednn", stored(drawn(), Layout(source)), Layout(target))
    assert len(kernels) == 1


@pytest.mark.parametrize(
    ("dtype", "source", "target"),
    [
        ("c128", "NCHW", "NHWC"),  # no such element type
        ("f32", "NCHW", "NCHW:s8"),  # a quantization
        ("f32", "NCHW", "NCHW:s8(scale=0.5)"),
        *(("f32", "NCHW", f"NCHW16c:{encoding}") for encoding in FORMS[1:]),
        *(("f32", f"NCHW16c:{f}", f"NHWC:{f}") for f in FORMS if "zero" in f or "+" in f),
    ],
)
def test_the_definition_takes_what_no_library_has_a_word_for(
    dtype: str, source: str, target: str
) -> None:
    assert chosen(dtype, source, target) == "numpy"


@pytest.mark.parametrize("encoding", FORMS)
def test_the_definition_goes_to_every_encoding_and_back(encoding: str) -> None:
    """As a step of a plan would: from storage to storage, pads included."""
    logical = drawn(9)
    x = stored(logical, Layout("NCHW"))
    for target in (f"NCHW16c:{encoding}", f"HWNC:{encoding}", "NHWC"):
        x, _ = changed("numpy", x, Layout(target))
    worst = storing_error("f32", Layout(f"N:{encoding}".replace("@C", "@N")).stored("f32"))
    back = x.data().transpose(0, 3, 1, 2)
    inside = (logical >= worst.low) & (logical <= worst.high)
    bound = np.maximum(worst.relative * np.abs(logical), worst.absolute)
    assert inside.mean() > 0.8
    assert (np.abs(back - logical)[inside] <= (bound + 2.0**-23 * np.abs(logical))[inside]).all()


def image(layout: str) -> Given:
    """Return an image of random bits in a layout."""
    return Given(values(tuple(SIZES.values()), "s32", 1), tuple(SIZES), Layout(layout))


SWAP = {"C": "H", "H": "C"}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW16c", "WHCN"])
@pytest.mark.parametrize("op", [Identity(), Rename(tuple(SWAP.items())), BitCast("f32")], ids=repr)
def test_some_operators_leave_everything_where_it_is(op: object, layout: str) -> None:
    outcome = run("numpy", op, [image(layout)])
    target = Layout(layout).rename(SWAP) if isinstance(op, Rename) else Layout(layout)
    assert outcome.variant.layouts == (Layout(layout), target)
    assert not outcome.kernels
    assert np.array_equal(outcome.values[0].view(np.int32), image(layout).array)
    assert outcome.physical[0].root is not outcome.physical[0]


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
    outcome = run("numpy", Reshape((*dims_of(shape).items(),)), [image(layout)])
    assert outcome.variant.layouts == (Layout(source), Layout(target))
    sizes = dims_of(shape).values()
    assert np.array_equal(outcome.values[0], image(layout).array.reshape(*sizes))
    assert not outcome.kernels


@pytest.mark.parametrize(
    ("library", "op", "dtype", "follower", "reason"),
    [
        ("onednn", Softmax(("C",)), "f32", Relu(), "onednn : its invoker does not fuse Relu"),
        ("onednn", MatMul("C"), "f32", Softmax(("K",)), "MatMul cannot fuse Softmax here"),
        ("onednn", MatMul("C"), "f32", Clip(1.0, 2.0), "MatMul cannot fuse Clip here"),
        ("numpy", Relu(), "f32", Relu(), "numpy +: its invoker does not fuse Relu"),
        ("onednn", Relu(), "f64", None, "dtype f64 of x is not among"),
    ],
    ids=str,
)
def test_what_is_not_taken_is_declined_by_name(
    library: str, op: object, dtype: str, follower: object, reason: str
) -> None:
    """Followers are never dropped in silence, by invokers that do not say whether they take any."""
    inputs = [VTensor(dtype, {"N": 4, "C": 16}), VTensor(dtype, {"C": 16, "K": 8})]
    ctx = context(library, (Follower(follower),) if follower else ())
    with installed(Deciding()), pytest.raises(NoInvokerError, match=reason):
        run_compute(ctx, op, inputs[: 1 + isinstance(op, MatMul)])
