// native/eigen/module_moves.cpp: the kernels of moves.h and counted.h as Python sees them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bilinear.h"
#include "counted.h"
#include "module.h"
#include "moves.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace vtensor::eigen {

namespace {

using RunRow = std::tuple<Index, Index, Index>;
using AxisRow = std::tuple<Index, Index, std::string>;
using PlacesRow = std::tuple<Ints, Ints, Ints, std::vector<AxisRow>, Index, Index, Index>;
using BlendRow = std::tuple<Index, Index, Index, Ints, Ints, std::vector<float>>;
using BetweenRow = std::tuple<Index, Ints, Ints, std::vector<float>, std::vector<float>>;
using SampledRow = std::tuple<Index, Index, Ints, Ints, Index>;
using AlignRow = std::tuple<Index, Index, Index, Index, Index, Index, Index, bool, Index, Index,
                            float, bool>;
using CacheRow = std::tuple<Index, AxisRow, Index, Index, Index, bool>;

Places places_of(const PlacesRow &row) {
    const auto &[shape, strides, bases, axes, inner, indices, elements] = row;
    return {shape, strides, bases, rows<Addressed>(axes), inner, indices, elements};
}

void bind_places(nb::module_ &m) {
    m.def(
        "pick",
        [](const std::vector<std::vector<RunRow>> &axes, Index src_elements, std::uint64_t bits,
           Index item_bytes) {
            std::vector<std::vector<Run>> runs;
            for (const auto &axis : axes) runs.push_back(rows<Run>(axis));
            return Kernel(pick(runs, src_elements, bits, item_bytes));
        },
        "axes"_a, "src_elements"_a, "bits"_a, "item_bytes"_a,
        R"(Make a kernel that copies elements at fixed positions of src. Slots: src, dst (dense).

Args:
    axes: for each axis of dst, runs (count, begin, stride): the next ``count`` indices
        have the offsets begin, begin + stride, ... in src; begin -1: they are filled. An
        element's offset in src is the sum of its axes' offsets.
    bits: the bits of an element that fills.)");
    m.def(
        "gather",
        [](const PlacesRow &places, Index index_bytes, Index item_bytes) {
            return Kernel(gather(places_of(places), index_bytes, item_bytes));
        },
        "places"_a, "index_bytes"_a, "item_bytes"_a,
        R"(Make a kernel that copies elements at indexed positions of src.

Args:
    places: (shape, strides, bases, axes, inner, indices, elements). For each point below
        shape, ``inner`` contiguous elements are copied. They begin in src at the sum of
        point * bases, plus, for each of axes (size, stride, name), index * stride. The
        indices of a point, one for each of axes, are contiguous in the slot indices from
        the sum of point * strides on. ``indices``, ``elements``: the numbers of elements
        of the slots indices and src.
    index_bytes, item_bytes: bytes of an index and of an element.

Slots: src, indices, dst (dense).)");
    m.def(
        "scatter",
        [](const PlacesRow &places, Index index_bytes, const std::string &dtype,
           const std::string &reduction) {
            return Kernel(scatter(places_of(places), index_bytes, dtype, reduction));
        },
        "places"_a, "index_bytes"_a, "dtype"_a, "reduction"_a,
        R"(Make a kernel that copies src and writes updates at indexed positions.

``places``: as for gather. ``reduction``: "none" replaces; "add", "mul", "max" or "min"
combines the former element and the update. ``dtype``: the element type, or, for "none",
the bytes of an element ("1", "2", "4" or "8"). Slots: src, indices, updates, dst.)");
    m.def(
        "one_hot",
        [](Index outer, Index depth, Index inner, Index index_bytes, Index item_bytes) {
            return Kernel(one_hot(outer, depth, inner, index_bytes, item_bytes));
        },
        "outer"_a, "depth"_a, "inner"_a, "index_bytes"_a, "item_bytes"_a,
        R"(Make a kernel that writes one of two values: values[1] at each index, else values[0].

Indices count along the middle axis of dst. Slots: indices (outer inner), values (2),
dst (outer depth inner).)");
}

void bind_written(nb::module_ &m) {
    m.def(
        "overwrite",
        [](const CacheRow &row, Index item_bytes) {
            const auto &[outer, axis, count, inner, starts, circular] = row;
            const auto along = std::make_from_tuple<Addressed>(axis);
            return Kernel(overwrite({outer, along, count, inner, starts, circular}, item_bytes));
        },
        "cache"_a, "item_bytes"_a,
        R"(Make a kernel that copies src and overwrites some elements of each row.

Args:
    cache: (outer, axis, count, inner, starts, circular). There are ``outer`` rows along an
        axis (size, stride, name), with ``inner`` elements for each index. In each row
        ``count`` indices are overwritten, from the start of its batch on. ``starts``: the
        number of batches, or -1: all start at 0. circular: index 0 follows the last.

Slots: src, update, start (s64; none if starts is -1), dst.)");
    m.def(
        "unpool",
        [](Index layers, Index each, const Ints &counted, const Ints &dst, Index item_bytes) {
            return Kernel(unpool(layers, each, counted, dst, item_bytes));
        },
        "layers"_a, "each"_a, "counted"_a, "dst"_a, "item_bytes"_a,
        R"(Make a kernel for MaxUnpool: zeros, with the elements of src at indexed positions.

Args:
    layers: the number of images times channels.
    each: elements of src in a layer.
    counted: the spatial sizes of the image, of all layers, whose elements an index
        counts; an index outside of it is skipped.
    dst: the spatial sizes of dst, at least as large.

Slots: src, indices (s64), dst.)");
}

void bind_rows(nb::module_ &m) {
    m.def(
        "reverse_sequence",
        [](Index batch, Index time, Index inner, Index index_bytes, Index item_bytes) {
            return Kernel(reverse_sequence(batch, time, inner, index_bytes, item_bytes));
        },
        "batch"_a, "time"_a, "inner"_a, "index_bytes"_a, "item_bytes"_a,
        R"(Make a kernel that reverses the first elements of each sequence.

Slots: src (batch time inner), lengths (batch: how many are reversed), dst.)");
    m.def(
        "triangle",
        [](Index matrices, Index rows, Index columns, Index k, bool upper, Index item_bytes) {
            return Kernel(triangle(matrices, rows, columns, k, upper, item_bytes));
        },
        "matrices"_a, "rows"_a, "columns"_a, "k"_a, "upper"_a, "item_bytes"_a,
        R"(Make a kernel that copies one side of diagonal ``k`` (column = row + k) of matrices.

``upper``: elements on and above the diagonal are copied, else those on and below it;
the others become 0. Slots: src, dst.)");
    m.def(
        "running",
        [](const std::string &dtype, Index outer, Index length, Index inner, bool product,
           bool exclusive, bool reverse) {
            return Kernel(running(dtype, outer, length, inner, product, exclusive, reverse));
        },
        "dtype"_a, "outer"_a, "length"_a, "inner"_a, "product"_a, "exclusive"_a, "reverse"_a,
        R"(Make a kernel for running sums along the middle axis of (outer length inner).

``product``: products instead; ``exclusive``: without an element itself; ``reverse``:
from the end. Slots: src, dst.)");
    m.def(
        "extreme_place",
        [](const std::string &dtype, Index outer, Index length, Index inner, bool largest,
           bool last) {
            return Kernel(extreme_place(dtype, outer, length, inner, largest, last));
        },
        "dtype"_a, "outer"_a, "length"_a, "inner"_a, "largest"_a, "last"_a,
        R"(Make a kernel for the index of the extreme element along the middle axis.

src is (outer length inner). ``largest``: the largest element, else the smallest;
``last``: of equal elements the last counts, else the first. Slots: src, dst (s64).)");
    m.def(
        "hardmax",
        [](const std::string &dtype, Index count, Index length) {
            return Kernel(hardmax(dtype, count, length));
        },
        "dtype"_a, "rows"_a, "length"_a,
        "Make a kernel for 1 at the first largest element of each row, else 0. Slots: src, dst.");
    m.def(
        "top",
        [](const std::string &dtype, Index outer, Index length, Index inner, Index count,
           bool largest) {
            return Kernel(top(dtype, outer, length, inner, count, largest));
        },
        "dtype"_a, "outer"_a, "length"_a, "inner"_a, "count"_a, "largest"_a,
        R"(Make a kernel for ``count`` extreme elements along the middle axis, in order.

src is (outer length inner). ``largest``: the largest elements, else the smallest.
Slots: src, values, indices (s64; along that axis), scratch.)");
}

void bind_counted(nb::module_ &m) {
    m.def(
        "nonzero",
        [](const std::string &dtype, const Ints &shape) { return Kernel(nonzero(dtype, shape)); },
        "dtype"_a, "shape"_a,
        R"(Make a kernel for the indices of the elements that are not 0, in row-major order.

Zeros follow what is found. Slots: src, indices (s64; rank, elements), count (s64).)");
    m.def(
        "select",
        [](Index outer, Index length, Index inner, Index conditions, Index item_bytes) {
            return Kernel(select(outer, length, inner, conditions, item_bytes));
        },
        "outer"_a, "length"_a, "inner"_a, "conditions"_a, "item_bytes"_a,
        R"(Make a kernel that takes the slices for which a condition is true.

Slices are along the middle axis of (outer length inner); zeros follow them. A slice
without a condition is not taken. Slots: src, condition (bool), dst, count (s64).)");
    m.def(
        "unique",
        [](const std::string &dtype, Index outer, Index length, Index inner, bool alone,
           bool ascending) {
            return Kernel(unique(dtype, outer, length, inner, alone, ascending));
        },
        "dtype"_a, "outer"_a, "length"_a, "inner"_a, "alone"_a, "ascending"_a,
        R"(Make a kernel for the distinct slices along the middle axis of (outer length inner).

Zeros follow what is found.

Args:
    alone: whether slices are single elements, so that NaN equals NaN.
    ascending: whether slices ascend; else they are in the order of first occurrence.

Slots: src, dst, then s64: first occurrences, the index in dst of each slice, numbers of
occurrences, count; scratch.)");
    m.def(
        "suppression",
        [](Index images, Index classes, Index count, Index most, float overlap, float score,
           bool centered) {
            return Kernel(suppression({images, classes, count, most, overlap, score, centered}));
        },
        "images"_a, "classes"_a, "count"_a, "most"_a, "overlap"_a, "score"_a, "centered"_a,
        R"(Make a kernel for the boxes of the highest scores that overlap little, in f32.

Args:
    count: the number of boxes of an image.
    most: the most chosen boxes of an image and class.
    overlap: the most that a chosen box has with another: intersection by union.
    score: a box is left out unless its score is larger.
    centered: whether a box is x and y of its centre, width and height; else it is y and x
        of two corners.

Slots: boxes (images, count, 4), scores (images, classes, count), indices (s64: image,
class and box; zeros follow), count (s64).)");
}

void bind_samples(nb::module_ &m) {
    m.def(
        "blend",
        [](const std::string &dtype, const std::vector<BlendRow> &axes) {
            return Kernel(blend(dtype, rows<Blend>(axes)));
        },
        "dtype"_a, "axes"_a,
        R"(Make a kernel for weighted sums along one axis of an image after another.

``axes``: (outer, from, inner, ends, near, weights) each: the number of elements before,
along and after the axis in src; for each element of dst, the end of its summands in near
and weights; the index in src of each summand, and its weight. Slots: src, dst, and
scratch if there are several axes.)");
    m.def(
        "bilinear",
        [](const std::string &dtype, Index outer, const BetweenRow &rows,
           const BetweenRow &columns, Index inner) {
            return Kernel(bilinear(dtype, outer, std::make_from_tuple<Between>(rows),
                                   std::make_from_tuple<Between>(columns), inner));
        },
        "dtype"_a, "outer"_a, "rows"_a, "columns"_a, "inner"_a,
        R"(Make a kernel that resamples an image linearly along two neighbouring axes at once.

Args:
    outer, inner: the number of elements before and after the axes.
    rows, columns: (from, below, above, low, high) each: src's size; for each element of dst
        two elements of src, and their weights.

Slots: src, dst.)");
    m.def(
        "grid_sample",
        [](const std::string &dtype, const std::string &grid_dtype, const SampledRow &image,
           const std::string &mode, const std::string &padding, bool corners) {
            return Kernel(grid_sample(dtype, grid_dtype, std::make_from_tuple<Sampled>(image), mode,
                                      padding, corners));
        },
        "dtype"_a, "grid_dtype"_a, "image"_a, "mode"_a, "padding"_a, "corners"_a,
        R"(Make a kernel that samples images at the positions in a grid, from -1 to 1 in each dim.

Args:
    image: (images, channels, src, dst, rank): the sizes of three spatial dims of src and
        dst, 1 but for the last ``rank``.
    mode: "nearest", "linear" or "cubic".
    padding: "zeros", "border" or "reflection".
    corners: whether -1 and 1 are the centres of the outer elements, else their outer
        edges.

Slots: src (N C D H W), grid (N D H W axis), dst.)");
    m.def(
        "roi_align",
        [](const std::string &dtype, const std::string &box_dtype, const AlignRow &align,
           Index index_bytes) {
            return Kernel(
                roi_align(dtype, box_dtype, std::make_from_tuple<Align>(align), index_bytes));
        },
        "dtype"_a, "box_dtype"_a, "align"_a, "index_bytes"_a,
        R"(Make a kernel that resamples boxes of images to one size.

Args:
    align: (boxes, images, channels, height, width, rows, columns, largest, samples, most,
        scale, half_pixel). A box has rows x columns bins; each is the largest, else the
        mean, of its samples. ``samples``: per bin and dim (0: as many as it spans);
        ``most``: the most samples along a box; ``scale``: factor of the boxes' corners;
        half_pixel: whether pixel centres are at a half.
    index_bytes: bytes of an element of image, the index of a box's image.

Slots: src (N C H W), boxes (R 4), image (R), dst, scratch.)");
}

}  // namespace

void bind_moves(nb::module_ &m) {
    bind_places(m);
    bind_written(m);
    bind_rows(m);
    bind_counted(m);
    bind_samples(m);
}

}  // namespace vtensor::eigen
