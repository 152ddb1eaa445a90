// native/eigen/walk.h: boxes of strided elements as a few long axes, and their offsets in order.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels.h"
#include "step.h"

namespace vtensor::eigen {

struct Axis {
    Index size, from, to;
};

// A box with axes from the longest stride in the source to the shortest; consecutive axes are
// merged, and axes of one element dropped.
struct Area {
    Index from = 0, to = 0, count = 1;
    std::vector<Axis> axes;

    explicit Area(const Box &box) : from(box.from), to(box.to) {
        for (std::size_t i = 0; i < box.shape.size(); ++i) {
            count *= box.shape[i];
            if (box.shape[i] != 1)
                axes.push_back({box.shape[i], box.from_strides[i], box.to_strides[i]});
        }
        std::ranges::stable_sort(axes, std::greater(), &Axis::from);
        std::vector<Axis> merged;
        for (const Axis &axis : axes) {
            if (!merged.empty() && merged.back().from == axis.from * axis.size &&
                merged.back().to == axis.to * axis.size) {
                merged.back() = {merged.back().size * axis.size, axis.from, axis.to};
            } else {
                merged.push_back(axis);
            }
        }
        axes = std::move(merged);
    }

    // Removes and returns the axis of the shortest stride.
    Axis take_inner() {
        if (axes.empty()) return {1, 0, 0};
        const Axis inner = axes.back();
        axes.pop_back();
        count = inner.size == 0 ? 0 : count / inner.size;
        return inner;
    }
};

// Iterates over the offsets of an area's elements, from any of them on.
class Walk {
public:
    Walk(const Area &area, Index start) : axes_(&area.axes), at_(area.axes.size()) {
        from = area.from;
        to = area.to;
        for (std::size_t i = at_.size(); i-- > 0 && start > 0;) {
            const Axis &axis = (*axes_)[i];
            at_[i] = start % axis.size;
            start /= axis.size;
            from += at_[i] * axis.from;
            to += at_[i] * axis.to;
        }
    }

    void next() {
        for (std::size_t i = at_.size(); i-- > 0;) {
            const Axis &axis = (*axes_)[i];
            from += axis.from;
            to += axis.to;
            if (++at_[i] < axis.size) return;
            from -= axis.size * axis.from;
            to -= axis.size * axis.to;
            at_[i] = 0;
        }
    }

    Index from, to;

private:
    const std::vector<Axis> *axes_;
    Ints at_;
};

}  // namespace vtensor::eigen
