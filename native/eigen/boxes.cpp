// native/eigen/boxes.cpp: boxes of elements, copied and filled.
#include "boxes.h"

#include <Eigen/Core>
#include <algorithm>

#include "check.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

using Elements = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Steps = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
using From = Eigen::Map<const Elements, Eigen::Unaligned, Steps>;
using To = Eigen::Map<Elements, Eigen::Unaligned, Steps>;

// A square of this many elements a side of two matrices stays in the first-level cache.
constexpr Index kSide = 32;

Steps steps(const Ints &strides) {
    return {strides[strides.size() - 2], strides[strides.size() - 1]};
}

// A few rows of a matrix, in squares.
void move_strip(const From &source, To &target, const Box &box) {
    if (box.from_strides.back() == 1 && box.to_strides.back() == 1) {
        for (Index row = 0; row < source.rows(); ++row)
            std::copy_n(&source.coeffRef(row, 0), source.cols(), &target.coeffRef(row, 0));
        return;
    }
    for (Index column = 0; column < source.cols(); column += kSide) {
        const Index width = std::min(kSide, source.cols() - column);
        target.middleCols(column, width) = source.middleCols(column, width);
    }
}

}  // namespace

Box arranged(const Box &box, Index from_size, Index to_size) {
    demand(reach(box.shape, box.to_strides, box.to) <= to_size, "a box beyond dst");
    demand(box.from_strides.size() == box.shape.size(), "shape and strides differ in rank");
    if (box.source >= 0)
        demand(reach(box.shape, box.from_strides, box.from) <= from_size,
               "a box beyond its source");
    // In dst's order, slowest first; the last two axes are copied as a matrix, so the one along
    // which the source is dense comes last but one.
    std::vector<std::size_t> order;
    for (std::size_t axis = 0; axis < box.shape.size(); ++axis)
        if (box.shape[axis] != 1) order.push_back(axis);
    std::ranges::stable_sort(
        order, [&](std::size_t a, std::size_t b) { return box.to_strides[a] > box.to_strides[b]; });
    if (order.size() > 2) {
        const auto dense = std::ranges::min_element(
            order.begin(), order.end() - 1, {}, [&](std::size_t a) { return box.from_strides[a]; });
        if (box.from_strides[order.back()] > box.from_strides[*dense])
            std::rotate(dense, dense + 1, order.end() - 1);
    }
    Box made{box.source, {1, 1}, box.from, {0, 0}, box.to, {0, 0}, box.value};
    for (const std::size_t axis : order) {
        made.shape.push_back(box.shape[axis]);
        made.from_strides.push_back(box.from_strides[axis]);
        made.to_strides.push_back(box.to_strides[axis]);
    }
    return made;
}

void move(const Box &box, const float *src, float *dst) {
    const std::size_t outer = box.shape.size() - 2;
    const Index rows = box.shape[outer], columns = box.shape[outer + 1];
    const Index strips = (rows + kSide - 1) / kSide;
    const Index pieces = product({box.shape.begin(), box.shape.end() - 2}) * strips;
    parallel(pieces, product(box.shape), [&](Index begin, Index end) {
        for (Index piece = begin; piece < end; ++piece) {
            const Index row = piece % strips * kSide;
            Index rest = piece / strips;
            Index from = box.from + row * box.from_strides[outer];
            Index to = box.to + row * box.to_strides[outer];
            for (std::size_t axis = outer; axis-- > 0; rest /= box.shape[axis]) {
                from += rest % box.shape[axis] * box.from_strides[axis];
                to += rest % box.shape[axis] * box.to_strides[axis];
            }
            const Index height = std::min(kSide, rows - row);
            To target(dst + to, height, columns, steps(box.to_strides));
            if (src == nullptr) {
                target.setConstant(box.value);
            } else {
                move_strip(From(src + from, height, columns, steps(box.from_strides)), target, box);
            }
        }
    });
}

}  // namespace vtensor::eigen
