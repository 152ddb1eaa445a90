"""oneDNN's descriptors against VTensor's layouts, and its reorders against the definition."""

from __future__ import annotations

import string
import subprocess
import sys
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
from ptensor.physical import pads_are_zero
from ptensor.transform import pack, transform
from tests.property.strategies import LAWS, bits, values
from vtensor.errors import LayoutNotSupported
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime import _replay

Array = np.ndarray[Any, Any]

DNNL = native.load()
TAGS: list[tuple[str, int]] = list(DNNL.tags())
LETTERS = string.ascii_lowercase

IMAGE = {"N": 2, "C": 17, "H": 5, "W": 3}


def names(rank: int) -> tuple[str, ...]:
    """Names of dims that are nobody's: d_a, d_b, ..."""
    return tuple(f"d_{letter}" for letter in LETTERS[:rank])


def blocks_of(tag: str, rank: int) -> list[int]:
    """By how much a tag splits each dim."""
    return list(DNNL.Desc.tag([1] * rank, "u8", tag).padded_dims)


def memory(array: Array) -> Array:
    """Bytes on a boundary that oneDNN accepts, filled like the array."""
    buffer = Buffer.allocate(array.nbytes)
    buffer.memory[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return buffer.memory


def run(primitive: Any, slots: dict[str, Array]) -> Array:
    """Run a primitive on memory by argument, dst full of NaN; returns dst's bytes."""
    result = Buffer.allocate(primitive.descs["dst"].nbytes).memory
    result[...] = 0xFF
    scratch = Buffer.allocate(primitive.scratch_bytes).memory
    own = {"dst": result, "scratch": scratch, **slots}
    _replay.execute(primitive, [own[name] for name in primitive.slots])
    return result


def reordered(
    physical: Array, source: Layout, target: Layout, sizes: dict[str, int], dtype: str
) -> Array:
    """What oneDNN makes of a tensor in another layout."""
    order = canonical_order(sizes)
    src, dst = (to_desc(layout, order, sizes, dtype) for layout in (source, target))
    raw = run(DNNL.reorder(src, dst), {"src": memory(physical)})
    return raw.view(target.stored(dtype).numpy).reshape(target.physical_shape(sizes))


def quiet(array: Array) -> Array:
    """The values without signalling NaNs, which oneDNN's simple reorder makes quiet ones."""
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
            desc = DNNL.Desc.tag(dims, "f32", tag)
            layout = from_desc(desc, names(rank), "f32")
            extents = dict(zip(names(rank), dims, strict=True))
            back = to_desc(layout, names(rank), extents, "f32")
            if back != desc or layout.nbytes(extents, "f32") != desc.nbytes:
                faults.append(f"{tag} of {dims}: {layout}, back {back}")
    assert not faults, "\n".join(faults)


def test_a_layout_says_where_the_elements_of_a_tag_are() -> None:
    """Offsets by the layout are those that the tag's strides and blocks give."""
    for tag, rank in TAGS:
        if rank > 4:
            continue
        dims = [block + 1 for block in blocks_of(tag, rank)]
        desc = DNNL.Desc.tag(dims, "f32", tag)
        layout = from_desc(desc, names(rank), "f32")
        extents = dict(zip(names(rank), dims, strict=True))
        for corner in product((0, 1), repeat=rank):
            index = [c * (size - 1) for c, size in zip(corner, dims, strict=True)]
            offset = layout.offset(dict(zip(extents, index, strict=True)), extents)
            assert offset == _offset(desc, index), (tag, layout, index)


def _offset(desc: Any, index: list[int]) -> int:
    """oneDNN's own formula: inner blocks from the innermost, then strides of what is left."""
    left, unit = list(index), 1
    offset = 0
    for block, dim in reversed(desc.inner_blocks):
        offset += left[dim] % block * unit
        left[dim] //= block
        unit *= block
    for place, stride in zip(left, desc.strides, strict=True):
        offset += place * int(stride)
    return offset


@pytest.mark.parametrize(
    ("layout", "tag"),
    [
        ("NCHW", "abcd"),
        ("NHWC", "acdb"),
        ("NCHW8c", "aBcd8b"),
        ("NCHW16c", "aBcd16b"),
        ("NCHW:bf16", "abcd"),
    ],
)
def test_names_of_images(layout: str, tag: str) -> None:
    dtype = "bf16" if "bf16" in layout else "f32"
    desc = DNNL.Desc.tag(list(IMAGE.values()), dtype, tag)
    assert to_desc(Layout(layout), tuple("NCHW"), IMAGE, "f32") == desc
    assert from_desc(desc, tuple("NCHW"), "f32") == Layout(layout)


def test_a_layout_without_a_tag_goes_by_strides() -> None:
    plain = Layout("WNCH")
    desc = to_desc(plain, tuple("NCHW"), IMAGE, "f32")
    assert desc.strides == (85, 5, 1, 170)
    assert from_desc(desc, tuple("NCHW"), "f32") == plain


def test_a_dim_that_the_tensor_lacks() -> None:
    """A bias in the blocks of an image of 17 channels: one descriptor of rank 4."""
    desc = to_desc(Layout("C16c"), ("", "C", "", ""), {"C": 17}, "f32")
    assert desc == DNNL.Desc.tag([1, 17, 1, 1], "f32", "aBcd16b")
    assert from_desc(desc, ("", "C", "", ""), "f32") == Layout("C16c")


def test_a_scalar_has_one_dim() -> None:
    desc = to_desc(Layout.plain([]), (), {}, "f32")
    assert desc.dims == (1,)
    assert from_desc(desc, (), "f32") == Layout.plain([])


@pytest.mark.parametrize(
    ("layout", "dtype", "what"),
    [
        ("NC16cHW", "f32", "innermost; layout NC16cHW"),
        ("NCHW5c", "f32", "layout NCHW5c"),
        ("NCHW", "f64", "element type f64"),
        ("NCHW", "bool", "element type bool"),
        ("NCHW:s8(scale=0.5)", "f32", "scale=0.5"),
        ("NCHW:s8(zero=3)", "f32", "zero=3"),
        ("NCHW:bf16+bf16", "f32", "bf16+bf16"),
    ],
)
def test_refuses_what_has_no_word(layout: str, dtype: str, what: str) -> None:
    with pytest.raises(LayoutNotSupported) as caught:
        to_desc(Layout(layout), tuple("NCHW"), IMAGE, dtype)
    assert what in str(caught.value)


def test_refuses_more_dims_than_there_are() -> None:
    extents = dict.fromkeys(names(13), 1)
    with pytest.raises(LayoutNotSupported, match="at most 12"):
        to_desc(Layout.plain(extents), names(13), extents, "f32")


@pytest.mark.parametrize(
    ("desc", "what"),
    [
        (lambda: DNNL.Desc.any([2, 3], "f32"), "any"),
        (lambda: DNNL.Desc.strided([2, 3], "f32", [5, 1]), "gaps"),
        (lambda: DNNL.Desc.tag([2, 16], "f32", "ab").submemory([2, 8], [0, 8]), "gaps"),
    ],
)
def test_refuses_a_format_without_layout(desc: Callable[[], Any], what: str) -> None:
    with pytest.raises(LayoutNotSupported, match=what):
        from_desc(desc(), ("M", "K"), "f32")


def test_refuses_blocks_of_a_dim_that_the_tensor_lacks() -> None:
    with pytest.raises(LayoutNotSupported, match="lacks"):
        from_desc(DNNL.Desc.tag([2, 1, 5, 5], "f32", "aBcd8b"), ("N", "", "H", "W"), "f32")


#: What kernels of a transposed convolution want of its filter: a layout and a descriptor each.
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

#: The same of the layouts alone.
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

    def printed(*given: str) -> str:
        command = [sys.executable, "-c", *given]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    answered = printed(ANSWERED)
    assert answered
    layouts = [line.partition(";")[0] for line in answered.splitlines()]
    assert printed(TOLD, *layouts) == answered


@pytest.mark.parametrize("tag", ["ABcd8a8b", "ABcd16b16a", "Acdb16a", "ABcd4b16a4b", "aBcd16b"])
def test_a_tag_with_two_dims_exchanged_comes_back(tag: str) -> None:
    desc = DNNL.Desc.tag([40, 24, 3, 5], "f32", tag).permute([1, 0, 2, 3])
    layout, extents = from_desc(desc, tuple("OIhw"), "f32"), {"O": 24, "I": 40, "h": 3, "w": 5}
    assert to_desc(layout, tuple("OIhw"), extents, "f32") == desc


def test_what_a_process_has_met_decides_no_layout() -> None:
    """Blocks without a tag, as no descriptor can be made of them in a later process."""
    sizes = {"N": 3, "C": 32, "H": 5, "W": 7}
    tagged = DNNL.Desc.tag([7, 32, 5, 3], "f32", "aBcd16b")
    desc = tagged.permute([3, 1, 2, 0])  # W is outermost, then blocks of C, H and N
    with pytest.raises(LayoutNotSupported, match="no tag"):
        from_desc(desc, tuple("NCHW"), "f32")
    with pytest.raises(LayoutNotSupported, match="no word"):
        to_desc(Layout("WCHN16c"), tuple("NCHW"), sizes, "f32")


@st.composite
def sizes_and_layouts(draw: st.DrawFn) -> tuple[dict[str, int], list[Layout]]:
    """Extents, and two layouts that oneDNN has a word for: permutations and tags."""
    rank = draw(st.integers(1, 5))
    sizes = dict.fromkeys(names(rank), st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 20]))
    drawn = draw(st.fixed_dictionaries(sizes))
    extents = {name: drawn[name] for name in names(rank)}
    tags = [tag for tag, of in TAGS if of == rank]
    layouts = []
    for _ in range(2):
        if draw(st.booleans()):
            layouts.append(Layout.plain(draw(st.permutations(names(rank)))))
        else:
            tag = draw(st.sampled_from(tags))
            desc = DNNL.Desc.tag(list(extents.values()), "f32", tag)
            layouts.append(from_desc(desc, names(rank), "f32"))
    return extents, layouts


@LAWS
@given(sizes_and_layouts(), st.integers(0, 2**32 - 1))
def test_a_reorder_is_the_transform_bit_for_bit(
    case: tuple[dict[str, int], list[Layout]], seed: int
) -> None:
    """Any bits, quiet NaNs among them; pads are zeros."""
    extents, (source, target) = case
    logical = quiet(values(tuple(extents.values()), "f32", seed))
    physical = pack(logical, list(extents), source)
    found = reordered(physical, source, target, extents, "f32")
    assert np.array_equal(bits(found), bits(transform(physical, source, target, extents)))


WEIGHTS = {"O": 20, "I": 19, "h": 3, "w": 2}
GROUPED = {"G": 18, "O": 3, "I": 2, "h": 3, "w": 2}


@pytest.mark.parametrize(
    ("layout", "extents"),
    [
        ("OIhw16i16o", WEIGHTS),
        ("OIhw8i16o2i", WEIGHTS),
        ("OIhw16i64o", WEIGHTS),
        ("OhwI16o", WEIGHTS),
        ("hwIO", WEIGHTS),
        ("GOIhw16g", GROUPED),
        ("GOIhw16i16o", GROUPED),
        ("hwIOG16g", GROUPED),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
def test_weights_formats(layout: str, extents: dict[str, int], dtype: str) -> None:
    plain = Layout.plain(extents)
    logical = values(tuple(extents.values()), dtype, 3)
    if dtype != "s8":
        logical = quiet(logical)
    if dtype == "bf16" and not DNNL.isa().startswith(("avx512", "amx")):
        logical[bits(logical) & 0x7F80 == 0] = 0  # subnormals: the handler refuses that kernel
    found = reordered(logical, plain, Layout(layout), extents, dtype)
    there = transform(logical, plain, Layout(layout), extents, dtype)
    assert np.array_equal(bits(found), bits(there))
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
    found = reordered(logical, Layout("C"), Layout("C:bf16"), extents, "f32")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = logical.astype(ml_dtypes.bfloat16)
    nan, small = np.isnan(logical), np.abs(logical) < np.finfo(np.float32).tiny
    plain = ~nan & ~small
    assert np.array_equal(bits(found)[plain], bits(expected)[plain])
    assert np.isnan(found[nan].astype(np.float32)).all()
    assert (np.abs(found[small].astype(np.float32)) <= np.finfo(np.float32).tiny).all()
    wide = reordered(found, Layout("C:bf16"), Layout("C"), extents, "f32")
    assert np.array_equal(wide[plain], expected[plain].astype(np.float32))


def test_the_comparison_of_bits_can_fail() -> None:
    """The twin: one flipped bit in a pad is seen."""
    layout = Layout("NCHW16c")
    logical = values(tuple(IMAGE.values()), "f32", 1)
    found = transform(logical, Layout("NCHW"), layout, IMAGE)
    spoiled = found.copy()
    spoiled.view(np.uint32)[0, 1, 0, 0, 15] = 1
    assert not np.array_equal(bits(found), bits(spoiled))


@pytest.mark.parametrize("layout", ["NCHW8c", "NCHW16c"])
def test_a_function_that_is_not_zero_at_zero_leaves_zero_pads(layout: str) -> None:
    """The padding contract where f(0) = 1: exp, and the logistic function."""
    logical = np.random.default_rng(0).normal(size=tuple(IMAGE.values())).astype(np.float32)
    physical = pack(logical, list(IMAGE), Layout(layout))
    desc = to_desc(Layout(layout), tuple("NCHW"), IMAGE, "f32")
    for alg in ("exp", "logistic"):
        raw = run(DNNL.eltwise(alg, desc, desc), {"src": memory(physical)})
        result = raw.view(np.float32).reshape(physical.shape)
        assert pads_are_zero(result, Layout(layout), IMAGE)


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
    """What ``any`` answers goes to layouts and back, and oneDNN takes the very same kernel."""
    if dtype == "bf16" and not DNNL.isa().startswith(("avx512", "amx")):
        pytest.skip(f"oneDNN has no bf16 on {DNNL.isa()}")
    pad, out = window // 2, (image - 1) // stride + 1
    weights = [kernels, channels, window, window]
    dims = [[1, channels, image, image], weights, [1, kernels, out, out]]
    asked = [DNNL.Desc.any(sizes, dtype) for sizes in dims]
    geometry = ([stride] * 2, [1, 1], [pad] * 2, [pad] * 2)
    answer = DNNL.convolution(asked[0], asked[1], None, asked[2], *geometry)
    own = []
    for name, sizes, order in zip(
        ("src", "weights", "dst"), dims, ("NCHW", "OIhw", "NCHW"), strict=True
    ):
        layout = from_desc(answer.descs[name], tuple(order), dtype)
        own.append(to_desc(layout, tuple(order), dict(zip(order, sizes, strict=True)), dtype))
    again = DNNL.convolution(own[0], own[1], None, own[2], *geometry)
    assert again.kernel == answer.kernel
    assert again.descs == answer.descs


def test_importing_the_handlers_loads_nothing_native() -> None:
    code = (
        "import sys; import libdesc.onednn.handlers, libdesc.onednn; "
        "print([m for m in sys.modules if m.endswith('_onednn')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_numpy_types_are_those_of_the_tests() -> None:
    assert numpy_dtype("bf16") == np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("source", "target"),
    [("N4cCHW", "NHWC"), ("NCHW8c", "N4cCHW"), ("N4cCHW", "N2cCHW"), ("CN2h4cHW", "NHWC")],
)
def test_layouts_without_a_word_are_changed_part_by_part(source: str, target: str) -> None:
    sizes, pair = {"N": 2, "C": 16, "H": 6, "W": 3}, (Layout(source), Layout(target))
    array = np.arange(576, dtype=np.float32).reshape(tuple(sizes.values()))
    begin, wanted = (pack(array, list(sizes), layout) for layout in pair)
    primitive = DNNL.reorder(*both(pair, sizes, ["f32", "f32"]))
    found = run(primitive, {"src": memory(begin)})
    assert found.tobytes() == wanted.tobytes()


def test_pads_and_parts_that_cross_are_left_to_others() -> None:
    for source, target, size in (("N4cCHW", "NHWC", 17), ("N4cCHW", "N6cCHW", 24)):
        sizes = {"N": 2, "C": size, "H": 6, "W": 3}
        with pytest.raises(LayoutNotSupported):
            both((Layout(source), Layout(target)), sizes, ["f32", "f32"])


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


def test_a_plain_descriptor_looks_at_no_other_tags() -> None:
    code = (
        "from libdesc.onednn import layouts\nfrom ptensor.layout import Layout\n"
        "sizes = dict(N=1, C=16, H=2, W=2)\n"
        "for layout in ('NCHW', 'NHWC'):\n"
        "    layouts.to_desc(Layout(layout), tuple('NCHW'), sizes, 'f32')\n"
        "print(layouts._tags.cache_info().misses)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "0\n"
