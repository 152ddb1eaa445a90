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

// Side, in elements, of square blocks of src and of dst that fit into the L1 cache together.
constexpr Index kSide = 32;
// Rows that are dense in src and in dst are copied in pieces of this many elements.
constexpr Index kLine = 4096;

struct Axis {
    Index size, from, to;
};

// Returns the axes in dst's order, slowest first; neighbouring axes that are contiguous in both the
// source and dst are merged.
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

// Moves the last two axes as a matrix, a block at a time.
template <class Element>
class Move {
public:
    Move(const Box &box, const void *src, void *dst)
        : box_(box), outer_(box.shape.size() - 2), rows_(box.shape[outer_]),
          columns_(box.shape[outer_ + 1]), src_(static_cast<const Element *>(src)),
          dst_(static_cast<Element *>(dst)),
          lines_(box.to_strides.back() == 1 && (!src || box.from_strides.back() == 1)),
          width_(lines_ ? kLine : kSide) {}

    void operator()() const {
        const Index outer = product({box_.shape.begin(), box_.shape.end() - 2});
        parallel(outer * down() * across(), product(box_.shape), [&](Index begin, Index end) {
            for (Index piece = begin; piece < end; ++piece) move_block(piece);
        });
    }

private:
    Index down() const { return (rows_ + kSide - 1) / kSide; }
    Index across() const { return (columns_ + width_ - 1) / width_; }

    void move_block(Index piece) const {
        const Index column = piece % across() * width_, row = piece / across() % down() * kSide;
        Index rest = piece / across() / down();
        Index from = box_.from + row * from_row() + column * box_.from_strides.back();
        Index to = box_.to + row * to_row() + column * box_.to_strides.back();
        for (std::size_t axis = outer_; axis-- > 0; rest /= box_.shape[axis]) {
            from += rest % box_.shape[axis] * box_.from_strides[axis];
            to += rest % box_.shape[axis] * box_.to_strides[axis];
        }
        const Index height = std::min(kSide, rows_ - row);
        const Index width = std::min(width_, columns_ - column);
        To<Element> target(dst_ + to, height, width, Steps(to_row(), box_.to_strides.back()));
        if (src_ == nullptr) {
            target.setConstant(static_cast<Element>(box_.bits));
        } else if (lines_) {
            for (Index i = 0; i < height; ++i)
                std::copy_n(src_ + from + i * from_row(), width, dst_ + to + i * to_row());
        } else {
            target = From<Element>(src_ + from, height, width,
                                   Steps(from_row(), box_.from_strides.back()));
        }
    }

    Index from_row() const { return box_.from_strides[outer_]; }
    Index to_row() const { return box_.to_strides[outer_]; }

    const Box &box_;
    std::size_t outer_;
    Index rows_, columns_;
    const Element *src_;
    Element *dst_;
    bool lines_;
    Index width_;
};

}  // namespace

Box arranged(const Box &box, Index from_size, Index to_size) {
    demand(reach(box.shape, box.to_strides, box.to) <= to_size, "a box beyond dst");
    demand(box.from_strides.size() == box.shape.size(), "shape and strides differ in rank");
    if (box.source >= 0)
        demand(reach(box.shape, box.from_strides, box.from) <= from_size,
               "a box beyond its source");
    std::vector<Axis> axes = merged(box);
    // The last two axes are copied as a matrix: the axis along which the source is dense becomes
    // the last but one.
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
        case 1: return Move<std::uint8_t>(box, src, dst)();
        case 2: return Move<std::uint16_t>(box, src, dst)();
        case 4: return Move<std::uint32_t>(box, src, dst)();
        default: return Move<std::uint64_t>(box, src, dst)();
    }
}

}  // namespace vtensor::eigen
