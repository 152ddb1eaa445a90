// native/eigen/boxes.cpp: boxes of elements, copied and filled.
#include "boxes.h"

#include <Eigen/Core>
#include <algorithm>

#include "check.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

using Steps = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
template <class Element>
using Elements = Eigen::Matrix<Element, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Element>
using From = Eigen::Map<const Elements<Element>, Eigen::Unaligned, Steps>;
template <class Element>
using To = Eigen::Map<Elements<Element>, Eigen::Unaligned, Steps>;

// A square of this many elements a side of two matrices stays in the first-level cache.
constexpr Index kSide = 32;

struct Axis {
    Index size, from, to;
};

// In dst's order, slowest first; axes along which both go on as before are one.
std::vector<Axis> merged(const Box &box) {
    std::vector<Axis> axes, kept;
    for (std::size_t i = 0; i < box.shape.size(); ++i)
        if (box.shape[i] != 1)
            axes.push_back({box.shape[i], box.source < 0 ? 0 : box.from_strides[i],
                            box.to_strides[i]});
    std::ranges::stable_sort(axes, std::ranges::greater{}, &Axis::to);
    for (const Axis &axis : axes) {
        const bool goes_on = !kept.empty() && kept.back().from == times(axis.from, axis.size) &&
                             kept.back().to == times(axis.to, axis.size);
        if (goes_on) {
            kept.back() = {kept.back().size * axis.size, axis.from, axis.to};
        } else {
            kept.push_back(axis);
        }
    }
    return kept;
}

Steps steps(const Ints &strides) {
    return {strides[strides.size() - 2], strides[strides.size() - 1]};
}

// A few rows of a matrix, in squares.
template <class Element>
void move_strip(const From<Element> &source, To<Element> &target, const Box &box) {
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

template <class Element>
void move_elements(const Box &box, const void *source, void *target) {
    const auto *src = static_cast<const Element *>(source);
    auto *dst = static_cast<Element *>(target);
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
            To<Element> place(dst + to, height, columns, steps(box.to_strides));
            if (src == nullptr) {
                place.setConstant(static_cast<Element>(box.bits));
            } else {
                const From<Element> given(src + from, height, columns, steps(box.from_strides));
                move_strip<Element>(given, place, box);
            }
        }
    });
}

}  // namespace

Box arranged(const Box &box, Index from_size, Index to_size) {
    demand(reach(box.shape, box.to_strides, box.to) <= to_size, "a box beyond dst");
    demand(box.from_strides.size() == box.shape.size(), "shape and strides differ in rank");
    if (box.source >= 0)
        demand(reach(box.shape, box.from_strides, box.from) <= from_size,
               "a box beyond its source");
    std::vector<Axis> axes = merged(box);
    // The last two are copied as a matrix: the one along which the source is dense comes last but
    // one.
    if (axes.size() > 2) {
        const auto dense = std::ranges::min_element(axes.begin(), axes.end() - 1, {}, &Axis::from);
        if (axes.back().from > dense->from) std::rotate(dense, dense + 1, axes.end() - 1);
    }
    Box made{box.source, {1, 1}, box.from, {0, 0}, box.to, {0, 0}, box.bits};
    for (const Axis &axis : axes) {
        made.shape.push_back(axis.size);
        made.from_strides.push_back(axis.from);
        made.to_strides.push_back(axis.to);
    }
    return made;
}

void move(const Box &box, std::size_t item_bytes, const void *src, void *dst) {
    switch (item_bytes) {
        case 1: return move_elements<std::uint8_t>(box, src, dst);
        case 2: return move_elements<std::uint16_t>(box, src, dst);
        case 4: return move_elements<std::uint32_t>(box, src, dst);
        default: return move_elements<std::uint64_t>(box, src, dst);
    }
}

}  // namespace vtensor::eigen
