"""oneDNN's descriptors against VTensor's layouts, and its reorders against the definition."""

from __future__ import annotations

import string
from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libdesc.onednn import layouts, native
from libdesc.onednn.handlers import both
from libdesc.onednn.layouts import canonical_order, from_desc, to_desc
from ptensor.buffer import Buffer
from ptensor.layout import Layout
from ptensor.transform import pack, transform
from tests.libraries.processes import printed
from tests.property.strategies import LAWS, bits, values
from vtensor.errors import LayoutNotSupported
from vtensor.runtime import _replay

Array = np.ndarray[Any, Any]

DNNL = native.load()
TAGS: list[tuple[str, int]] = list(DNNL.tags())
BF16 = DNNL.isa().startswith(("avx512", "amx"))
IMAGE = {"N": 2, "C": 17, "H": 5, "W": 3}


def names(rank: int) -> tuple[str, ...]:
    """Return names that oneDNN does not know: d_a, d_b, ..."""
    return tuple(f"d_{letter}" for letter in string.ascii_lowercase[:rank])


def blocks_of(tag: str, rank: int) -> list[int]:
    """Return by how much a tag splits each dim."""
    return list(DNNL.Desc.tag([1] * rank, "u8", tag).padded_dims)


def described(dims: list[int], tag: str) -> tuple[Any, Layout, dict[str, int]]:
    """Return the descriptor of a tag, its layout and sizes."""
    desc, order = DNNL.Desc.tag(dims, "f32", tag), names(len(dims))
    return desc, from_desc(desc, order, "f32"), dict(zip(order, dims, strict=True))


def run(primitive: Any, array: Array) -> Array:
    """Run a primitive on aligned memory, dst full of NaN; return dst's bytes."""
    source, result = (
        Buffer.allocate(nbytes).memory for nbytes in (array.nbytes, primitive.descs["dst"].nbytes)
    )
    source[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    result[...] = 0xFF
    scratch = Buffer.allocate(primitive.scratch_bytes).memory
    slots = {"src": source, "dst": result, "scratch": scratch}
    _replay.execute(primitive, [slots[name] for name in primitive.slots])
    return result


def reordered(
    physical: Array, source: Layout, target: Layout, sizes: dict[str, int], dtype: str
) -> Array:
    """Return what oneDNN makes of a tensor in another layout."""
    order = canonical_order(sizes)
    src, dst = (to_desc(layout, order, sizes, dtype) for layout in (source, target))
    raw = run(DNNL.reorder(src, dst), physical)
    return raw.view(target.stored(dtype).numpy).reshape(target.physical_shape(sizes))


def quiet(array: Array) -> Array:
    """Return the values without signalling NaNs, which oneDNN's simple reorder makes quiet."""
    bit = {4: 1 << 22, 2: 1 << 6}[array.itemsize]
    with np.errstate(invalid="ignore"):
        bits(array)[np.isnan(array)] |= np.array(bit, f"u{array.itemsize}")
    return array


@pytest.mark.parametrize("odd", [-1, 0, 1])
def test_every_tag_comes_back(odd: int) -> None:
    """Sizes below, at and above a multiple of the blocks; and with dims of size 1."""
    faults = []
    for tag, rank in TAGS:
        sizes = [2 * block + odd for block in blocks_of(tag, rank)]
        for ones in (0, 1, 2):
            dims = [1 if i in (ones, 2 * ones) and ones else size for i, size in enumerate(sizes)]
            desc, layout, extents = described(dims, tag)
            back = to_desc(layout, names(rank), extents, "f32")
            if back != desc or layout.nbytes(extents, "f32") != desc.nbytes:
                faults.append(f"{tag} of {dims}: {layout}, back {back}")
    assert not faults, "\n".join(faults)


def test_a_layout_has_the_offsets_of_its_tag() -> None:
    for tag, rank in TAGS:
        if rank > 4:
            continue
        desc, layout, extents = described([block + 1 for block in blocks_of(tag, rank)], tag)
        for corner in product(*((0, size - 1) for size in extents.values())):
            offset = layout.offset(dict(zip(extents, corner, strict=True)), extents)
            assert offset == _offset(desc, list(corner)), (tag, layout, corner)


def _offset(desc: Any, index: list[int]) -> int:
    """Return an offset by oneDNN's own formula: inner blocks, then strides of what is left."""
    unit, offset = 1, 0
    for block, dim in reversed(desc.inner_blocks):
        offset += index[dim] % block * unit
        index[dim] //= block
        unit *= block
    return offset + sum(i * int(stride) for i, stride in zip(index, desc.strides, strict=True))


ORDER = tuple("NCHW")


@pytest.mark.parametrize(
    ("layout", "order", "extents", "desc"),
    [
        ("NCHW", ORDER, IMAGE, DNNL.Desc.tag([2, 17, 5, 3], "f32", "abcd")),
        ("NHWC", ORDER, IMAGE, DNNL.Desc.tag([2, 17, 5, 3], "f32", "acdb")),
        ("NCHW8c", ORDER, IMAGE, DNNL.Desc.tag([2, 17, 5, 3], "f32", "aBcd8b")),
        ("NCHW16c", ORDER, IMAGE, DNNL.Desc.tag([2, 17, 5, 3], "f32", "aBcd16b")),
        ("NCHW:bf16", ORDER, IMAGE, DNNL.Desc.tag([2, 17, 5, 3], "bf16", "abcd")),
        # No tag: by strides.
        ("WNCH", ORDER, IMAGE, DNNL.Desc.strided([2, 17, 5, 3], "f32", [85, 5, 1, 170])),
        # A bias in the blocks of an image has the image's rank.
        ("C16c", ("", "C", "", ""), {"C": 17}, DNNL.Desc.tag([1, 17, 1, 1], "f32", "aBcd16b")),
        ("", (), {}, DNNL.Desc.strided([1], "f32", [1])),
    ],
)
def test_a_layout_and_its_descriptor_lead_to_each_other(
    layout: str, order: tuple[str, ...], extents: dict[str, int], desc: Any
) -> None:
    known = Layout(layout) if layout else Layout.plain([])
    assert to_desc(known, order, extents, "f32") == desc
    assert from_desc(desc, order, "f32") == known


MANY = dict.fromkeys(names(13), 1)


@pytest.mark.parametrize(
    ("layout", "extents", "dtype", "reason"),
    [
        (Layout("NC16cHW"), IMAGE, "f32", "innermost; layout NC16cHW"),
        (Layout("NCHW5c"), IMAGE, "f32", "layout NCHW5c"),
        (Layout("NCHW"), IMAGE, "f64", "element type f64"),
        (Layout("NCHW"), IMAGE, "bool", "element type bool"),
        (Layout("NCHW:s8(scale=0.5)"), IMAGE, "f32", "scale=0.5"),
        (Layout("NCHW:s8(zero=3)"), IMAGE, "f32", "zero=3"),
        (Layout("NCHW:bf16+bf16"), IMAGE, "f32", "bf16+bf16"),
        (Layout.plain(MANY), MANY, "f32", "at most 12"),
    ],
)
def test_a_layout_without_a_descriptor_is_refused(
    layout: Layout, extents: dict[str, int], dtype: str, reason: str
) -> None:
    with pytest.raises(LayoutNotSupported) as caught:
        to_desc(layout, tuple(extents), extents, dtype)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("desc", "order", "reason"),
    [
        (lambda: DNNL.Desc.any([2, 3], "f32"), "MK", "any"),
        (lambda: DNNL.Desc.strided([2, 3], "f32", [5, 1]), "MK", "gaps"),
        (lambda: DNNL.Desc.tag([2, 16], "f32", "ab").submemory([2, 8], [0, 8]), "MK", "gaps"),
        (lambda: DNNL.Desc.tag([2, 1, 5, 5], "f32", "aBcd8b"), ["N", "", "H", "W"], "lacks"),
    ],
)
def test_a_descriptor_without_a_layout_is_refused(
    desc: Callable[[], Any], order: str, reason: str
) -> None:
    with pytest.raises(LayoutNotSupported, match=reason):
        from_desc(desc(), tuple(order), "f32")


#: Prints a layout and a descriptor for each kernel of a transposed convolution's filter.
ANSWERED = """
from libdesc.onednn import _onednn as dnn
from libdesc.onednn.layouts import from_desc
dnn.limit_isa("avx2")
sizes = [1, 8, 6, 6], [16, 8, 3, 3], [1, 16, 8, 8]
source, filter, target = (dnn.Desc.any(one, "f32") for one in sizes)
kernel = dnn.deconvolution(source, filter, None, target, (1, 1), (1, 1), (0, 0), (0, 0))
while kernel is not None:
    desc = kernel.descs["weights"]
    print(from_desc(desc, tuple("OIhw"), "f32"), desc, sep="; ")
    kernel = kernel.next_kernel()
"""
#: Prints the same, given the layouts.
TOLD = """
import sys
from libdesc.onednn.layouts import to_desc
from ptensor.layout import Layout
for text in sys.argv[1:]:
    desc = to_desc(Layout(text), tuple("OIhw"), {"O": 16, "I": 8, "h": 3, "w": 3}, "f32")
    print(text, desc, sep="; ")
"""


def test_filters_of_transposed_convolutions_need_no_primitive() -> None:
    """A process that is told a layout has the descriptor before it makes any primitive."""
    answered = printed("-c", ANSWERED)
    assert answered
    told = [line.partition(";")[0] for line in answered.splitlines()]
    assert printed("-c", TOLD, *told) == answered


@pytest.mark.parametrize("tag", ["ABcd8a8b", "ABcd16b16a", "Acdb16a", "ABcd4b16a4b", "aBcd16b"])
def test_a_tag_with_two_dims_exchanged_comes_back(tag: str) -> None:
    desc = DNNL.Desc.tag([40, 24, 3, 5], "f32", tag).permute([1, 0, 2, 3])
    layout, extents = from_desc(desc, tuple("OIhw"), "f32"), {"O": 24, "I": 40, "h": 3, "w": 5}
    assert to_desc(layout, tuple("OIhw"), extents, "f32") == desc


def test_what_a_process_has_met_decides_no_layout() -> None:
    """Blocks without a tag, as no descriptor can be made of them in a later process."""
    tagged = DNNL.Desc.tag([7, 32, 5, 3], "f32", "aBcd16b")
    desc = tagged.permute([3, 1, 2, 0])  # W is outermost, then blocks of C, H and N
    with pytest.raises(LayoutNotSupported, match="no tag"):
        from_desc(desc, ORDER, "f32")
    with pytest.raises(LayoutNotSupported, match="no word"):
        to_desc(Layout("WCHN16c"), ORDER, {"N": 3, "C": 32, "H": 5, "W": 7}, "f32")


@st.composite
def sizes_and_layouts(draw: st.DrawFn) -> tuple[dict[str, int], list[Layout]]:
    """Draw extents and two layouts of oneDNN: permutations and tags."""
    rank = draw(st.integers(1, 5))
    size = st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 20])
    dims = draw(st.lists(size, min_size=rank, max_size=rank))
    plain = st.permutations(names(rank)).map(Layout.plain)
    tagged = st.sampled_from([tag for tag, of in TAGS if of == rank])
    layout = st.one_of(plain, tagged.map(lambda tag: described(dims, tag)[1]))
    return dict(zip(names(rank), dims, strict=True)), [draw(layout), draw(layout)]


@LAWS
@given(sizes_and_layouts(), st.integers(0, 2**32 - 1))
def test_a_reorder_is_the_transform_bit_for_bit(
    case: tuple[dict[str, int], list[Layout]], seed: int
) -> None:
    """Any bits, quiet NaNs among them; pads are zeros."""
    extents, (source, target) = case
    logical = quiet(values(tuple(extents.values()), "f32", seed))
    physical = pack(logical, list(extents), source)
    result = reordered(physical, source, target, extents, "f32")
    assert np.array_equal(bits(result), bits(transform(physical, source, target, extents)))


WEIGHTS = {"O": 20, "I": 19, "h": 3, "w": 2}
GROUPED = {"G": 18, "O": 3, "I": 2, "h": 3, "w": 2}
FORMATS = dict.fromkeys(["OIhw16i16o", "OIhw8i16o2i", "OIhw16i64o", "OhwI16o", "hwIO"], WEIGHTS)
FORMATS |= dict.fromkeys(["GOIhw16g", "GOIhw16i16o", "hwIOG16g"], GROUPED)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
def test_weights_are_reordered_there_and_back(layout: str, dtype: str) -> None:
    extents = FORMATS[layout]
    plain = Layout.plain(extents)
    logical = values(tuple(extents.values()), dtype, 3)
    if dtype != "s8":
        logical = quiet(logical)
    if dtype == "bf16" and not BF16:
        logical[bits(logical) & 0x7F80 == 0] = 0  # subnormals: the handler refuses that kernel
    there = transform(logical, plain, Layout(layout), extents, dtype)
    result = reordered(logical, plain, Layout(layout), extents, dtype)
    assert np.array_equal(bits(result), bits(there))
    back = reordered(there, Layout(layout), plain, extents, dtype)
    assert np.array_equal(bits(back), bits(logical))


def test_narrowing_rounds_to_nearest_even() -> None:
    """Halves, neighbours of halves, infinities, zeros of both signs.

    The processor's own instruction takes subnormals for zeros, which the definition does not.
    """
    raw = np.arange(0, 2**32, 2**32 // 60_000, dtype=np.uint64).astype(np.uint32)
    halves = (raw & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    near = np.concatenate([raw, halves, halves + np.uint32(1), halves - np.uint32(1)])
    logical = np.concatenate([near.view(np.float32), np.array([0.0, -0.0, np.inf, -np.inf], "f4")])
    extents = {"C": logical.size}
    narrow = reordered(logical, Layout("C"), Layout("C:bf16"), extents, "f32")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = logical.astype(ml_dtypes.bfloat16)
    nan, small = np.isnan(logical), np.abs(logical) < np.finfo(np.float32).tiny
    plain = ~nan & ~small
    assert np.array_equal(bits(narrow)[plain], bits(expected)[plain])
    assert np.isnan(narrow[nan].astype(np.float32)).all()
    assert (np.abs(narrow[small].astype(np.float32)) <= np.finfo(np.float32).tiny).all()
    wide = reordered(narrow, Layout("C:bf16"), Layout("C"), extents, "f32")
    assert np.array_equal(wide[plain], expected[plain].astype(np.float32))


def test_the_comparison_of_bits_can_fail() -> None:
    """The twin: one flipped bit in a pad is seen."""
    layout = Layout("NCHW16c")
    right = transform(values(tuple(IMAGE.values()), "f32", 1), Layout("NCHW"), layout, IMAGE)
    spoiled = right.copy()
    spoiled.view(np.uint32)[0, 1, 0, 0, 15] = 1
    assert not np.array_equal(bits(right), bits(spoiled))


#: Convolutions of ResNet-50: channels, image, kernels, window, stride.
CONVOLUTIONS = [
    (3, 224, 64, 7, 2),
    (64, 56, 64, 1, 1),
    (64, 56, 64, 3, 1),
    (256, 56, 512, 1, 2),
    (128, 28, 128, 3, 1),
    (512, 7, 512, 3, 1),
    (2048, 1, 1000, 1, 1),
]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("channels", "image", "kernels", "window", "stride"), CONVOLUTIONS)
def test_the_layouts_of_an_answer_have_the_kernel_of_the_answer(
    channels: int, image: int, kernels: int, window: int, stride: int, dtype: str
) -> None:
    if dtype == "bf16" and not BF16:
        pytest.skip(f"oneDNN has no bf16 on {DNNL.isa()}")
    pad, out = window // 2, (image - 1) // stride + 1
    operands = {
        "src": ("NCHW", [1, channels, image, image]),
        "weights": ("OIhw", [kernels, channels, window, window]),
        "dst": ("NCHW", [1, kernels, out, out]),
    }

    def convolution(src: Any, weights: Any, dst: Any) -> Any:
        geometry = ([stride] * 2, [1, 1], [pad] * 2, [pad] * 2)
        return DNNL.convolution(src, weights, None, dst, *geometry)

    answer = convolution(*(DNNL.Desc.any(sizes, dtype) for _, sizes in operands.values()))
    descs = []
    for name, (order, sizes) in operands.items():
        layout = from_desc(answer.descs[name], tuple(order), dtype)
        descs.append(to_desc(layout, tuple(order), dict(zip(order, sizes, strict=True)), dtype))
    again = convolution(*descs)
    assert again.kernel == answer.kernel
    assert again.descs == answer.descs


@pytest.mark.parametrize(
    ("source", "target"),
    [("N4cCHW", "NHWC"), ("NCHW8c", "N4cCHW"), ("N4cCHW", "N2cCHW"), ("CN2h4cHW", "NHWC")],
)
def test_layouts_without_a_word_are_changed_part_by_part(source: str, target: str) -> None:
    sizes, pair = {"N": 2, "C": 16, "H": 6, "W": 3}, (Layout(source), Layout(target))
    array = np.arange(576, dtype=np.float32).reshape(tuple(sizes.values()))
    begin, end = (pack(array, list(sizes), layout) for layout in pair)
    result = run(DNNL.reorder(*both(pair, sizes, ["f32", "f32"])), begin)
    assert result.tobytes() == end.tobytes()


@pytest.mark.parametrize(("target", "size"), [("NHWC", 17), ("N6cCHW", 24)])
def test_pads_and_parts_that_cross_are_left_to_others(target: str, size: int) -> None:
    sizes = {"N": 2, "C": size, "H": 6, "W": 3}
    with pytest.raises(LayoutNotSupported):
        both((Layout("N4cCHW"), Layout(target)), sizes, ["f32", "f32"])


def test_every_tag_is_found_by_its_spelling_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag that is not spelled as its pattern is found among all."""
    monkeypatch.setattr(layouts, "_tag", layouts._tag.__wrapped__)
    every = layouts._tags()
    assert {pattern: layouts._tag(pattern) for pattern in every} == every
    assert layouts._tag(((1, 0), ((3, 0),))) is None
    for rank, inner in {(len(outer), inner) for outer, inner in every}:
        alike = [outer for outer, blocks in every if (len(outer), blocks) == (rank, inner)]
        assert [*layouts._orders_with(rank, inner)] == alike
    monkeypatch.setattr(layouts, "_names", frozenset)
    assert layouts._tag(((0, 1), ())) == every[((0, 1), ())]
    monkeypatch.setattr(layouts, "_names", lambda: {("ab", 2)})
    monkeypatch.setattr(layouts, "_pattern_of", lambda *_: ((1, 0), ()))
    assert layouts._tag(((0, 1), ())) == every[((0, 1), ())]


#: Prints how often the table of all tags was made.
PLAIN = """
import sys, libdesc.onednn.handlers, libdesc.onednn
print([name for name in sys.modules if name.endswith("_onednn")])
from libdesc.onednn import layouts
from ptensor.layout import Layout
for layout in ("NCHW", "NHWC"):
    layouts.to_desc(Layout(layout), tuple("NCHW"), dict(N=1, C=16, H=2, W=2), "f32")
print(layouts._tags.cache_info().misses)
"""


def test_handlers_load_nothing_native_and_plain_descriptors_no_table_of_tags() -> None:
    assert printed("-c", PLAIN) == "[]\n0\n"
