// native/eigen/module_moves.cpp: the kernels of moves.h as Python sees them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

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
        R"(Elements of src at places that are known before a run; arguments src, dst, which is dense.

Each axis of dst is a row of runs (count, begin, step): so many elements, each a step further on
in src; begin -1 fills with bits. What is taken lies at the sum of what all axes say.)");
    m.def(
        "gather",
        [](const PlacesRow &places, Index index_bytes, Index item_bytes) {
            return Kernel(gather(places_of(places), index_bytes, item_bytes));
        },
        "places"_a, "index_bytes"_a, "item_bytes"_a,
        R"(Elements of src at places that indices say; arguments src, indices, dst, which is dense.

Places are (shape, strides, bases, axes, inner, indices, elements): one for each index below shape,
which begins in src at the sum of index * bases and of what each axis (size, stride, name) adds, and
has inner elements. The numbers that address, one an axis, begin at the sum of index * strides.)");
    m.def(
        "scatter",
        [](const PlacesRow &places, Index index_bytes, const std::string &dtype,
           const std::string &reduction) {
            return Kernel(scatter(places_of(places), index_bytes, dtype, reduction));
        },
        "places"_a, "index_bytes"_a, "dtype"_a, "reduction"_a,
        R"(src with some elements replaced; arguments src, indices, updates, dst.

Places are as for gather; reduction is none, add, mul, max or min. The element type has a name, or,
without a reduction, the number of its bytes.)");
    m.def(
        "one_hot",
        [](Index outer, Index depth, Index inner, Index index_bytes, Index item_bytes) {
            return Kernel(one_hot(outer, depth, inner, index_bytes, item_bytes));
        },
        "outer"_a, "depth"_a, "inner"_a, "index_bytes"_a, "item_bytes"_a,
        "One value at each index along the axis in the middle, another elsewhere; arguments\n"
        "indices, the pair of values, dst.");
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
        R"(src with some elements of each row overwritten; arguments src, update, start (s64), dst.

A cache is (outer, axis, count, inner, starts, circular): outer rows of elements along an axis
(size, stride, name) of inner each, of which count are overwritten, from the start of the row's
batch on; without starts (-1) from 0 on, and there is no such argument.)");
    m.def(
        "unpool",
        [](Index layers, Index each, const Ints &counted, const Ints &dst, Index item_bytes) {
            return Kernel(unpool(layers, each, counted, dst, item_bytes));
        },
        "layers"_a, "each"_a, "counted"_a, "dst"_a, "item_bytes"_a,
        R"(Elements at places that indices count in an image, zeros elsewhere.

Arguments src, indices (s64), dst; counted are the spatial sizes of the image, dst those of dst.)");
}

void bind_rows(nb::module_ &m) {
    m.def(
        "reverse_sequence",
        [](Index batch, Index time, Index inner, Index index_bytes, Index item_bytes) {
            return Kernel(reverse_sequence(batch, time, inner, index_bytes, item_bytes));
        },
        "batch"_a, "time"_a, "inner"_a, "index_bytes"_a, "item_bytes"_a,
        "The first elements of each sequence in reverse; arguments src, lengths, dst.");
    m.def(
        "triangle",
        [](Index matrices, Index rows, Index columns, Index k, bool upper, Index item_bytes) {
            return Kernel(triangle(matrices, rows, columns, k, upper, item_bytes));
        },
        "matrices"_a, "rows"_a, "columns"_a, "k"_a, "upper"_a, "item_bytes"_a,
        "Elements on one side of a diagonal, and zeros elsewhere; arguments src, dst.");
    m.def(
        "running",
        [](const std::string &dtype, Index outer, Index length, Index inner, bool product,
           bool exclusive, bool reverse) {
            return Kernel(running(dtype, outer, length, inner, product, exclusive, reverse));
        },
        "dtype"_a, "outer"_a, "length"_a, "inner"_a, "product"_a, "exclusive"_a, "reverse"_a,
        "Running sums or products along the axis in the middle; arguments src, dst.");
    m.def(
        "extreme_place",
        [](const std::string &dtype, Index outer, Index length, Index inner, bool largest,
           bool last) {
            return Kernel(extreme_place(dtype, outer, length, inner, largest, last));
        },
        "dtype"_a, "outer"_a, "length"_a, "inner"_a, "largest"_a, "last"_a,
        "Index of the extreme element along the axis in the middle; arguments src, dst (s64).");
    m.def(
        "hardmax",
        [](const std::string &dtype, Index count, Index length) {
            return Kernel(hardmax(dtype, count, length));
        },
        "dtype"_a, "rows"_a, "length"_a,
        "1 at the first of the largest elements of each row, else 0; arguments src, dst.");
    m.def(
        "top",
        [](const std::string &dtype, Index outer, Index length, Index inner, Index count,
           bool largest) {
            return Kernel(top(dtype, outer, length, inner, count, largest));
        },
        "dtype"_a, "outer"_a, "length"_a, "inner"_a, "count"_a, "largest"_a,
        "So many extreme elements along the axis in the middle, in order, and where they are;\n"
        "arguments src, values, indices (s64), scratch.");
}

void bind_samples(nb::module_ &m) {
    m.def(
        "blend",
        [](const std::string &dtype, const std::vector<BlendRow> &axes) {
            return Kernel(blend(dtype, rows<Blend>(axes)));
        },
        "dtype"_a, "axes"_a,
        R"(An image at another size, one axis after another; arguments src, dst, scratch.

An axis is (outer, from, inner, ends, near, weights): the sizes around it and its own in src; of
each element of dst where its taps end, and of each tap the element of src and what it counts.)");
    m.def(
        "grid_sample",
        [](const std::string &dtype, const std::string &grid_dtype, const SampledRow &image,
           const std::string &mode, const std::string &padding, bool corners) {
            return Kernel(grid_sample(dtype, grid_dtype, std::make_from_tuple<Sampled>(image), mode,
                                      padding, corners));
        },
        "dtype"_a, "grid_dtype"_a, "image"_a, "mode"_a, "padding"_a, "corners"_a,
        R"(Image sampled at the places of a grid; arguments src (N C D H W), grid (N D H W axis), dst.

An image is (images, channels, src, dst, rank); three spatial dims, those beyond rank are 1.)");
    m.def(
        "roi_align",
        [](const std::string &dtype, const std::string &box_dtype, const AlignRow &align,
           Index index_bytes) {
            return Kernel(
                roi_align(dtype, box_dtype, std::make_from_tuple<Align>(align), index_bytes));
        },
        "dtype"_a, "box_dtype"_a, "align"_a, "index_bytes"_a,
        R"(Boxes of images at one size; arguments src (N C H W), boxes (R 4), image (R), dst, scratch.

What is aligned is (boxes, images, channels, height, width, rows, columns, largest, samples, most,
scale, half_pixel).)");
}

}  // namespace

void bind_moves(nb::module_ &m) {
    bind_places(m);
    bind_written(m);
    bind_rows(m);
    bind_samples(m);
}

}  // namespace vtensor::eigen
