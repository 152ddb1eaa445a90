// native/eigen/indexed.h: positions in a tensor that indices give, checked one by one.
#pragma once

#include <cstdint>

#include "check.h"
#include "moves.h"

namespace vtensor::eigen {

[[noreturn]] inline void outside(Index index, const Addressed &axis) {
    throw BadInput("index " + std::to_string(index) + " along " + axis.name + ", which has " +
                   std::to_string(axis.size) + " elements");
}

// Returns a checked index; negative ones count from the end. Throws BadInput if it is out of range.
inline Index placed(Index index, const Addressed &axis) {
    const Index place = index < 0 ? index + axis.size : index;
    if (place < 0 || place >= axis.size) [[unlikely]]
        outside(index, axis);
    return place;
}

// Checks that all positions are inside the tensor for all valid indices, and that there are enough
// indices.
inline void check(const Places &places) {
    const Index count = product(places.shape);
    demand(!places.axes.empty(), "no axis is addressed");
    demand(places.inner >= 0 && places.indices >= 0 && places.elements >= 0, "a size is negative");
    Index end = std::max<Index>(places.inner, 1);
    bool none = false;
    for (const Addressed &axis : places.axes) {
        demand(axis.size >= 0 && axis.stride >= 0, "a size is negative");
        none |= axis.size == 0;
        end = plus(end, times(std::max<Index>(axis.size, 1) - 1, axis.stride));
    }
    end = plus(end, std::max<Index>(reach(places.shape, places.bases), 1) - 1);
    const Index row = static_cast<Index>(places.axes.size());
    const Index last = plus(reach(places.shape, places.strides), row - 1);
    if (count == 0) return;
    demand(last <= places.indices, "a place beyond the indices");
    demand(none || places.inner == 0 || end <= places.elements, "a place beyond the tensor");
}

// Calls body(place, which) for the positions numbered `begin` to `end` - 1: place is the offset in
// the tensor, which the number.
template <class Number, class Body>
void each_place(const Places &places, const Number *indices, Index begin, Index end,
                const Body &body) {
    const auto rank = static_cast<Index>(places.shape.size());
    const Index width = rank == 0 ? 1 : places.shape[rank - 1];
    const Index step = rank == 0 ? 0 : places.strides[rank - 1];
    const Index base_step = rank == 0 ? 0 : places.bases[rank - 1];
    // Size and stride of a single axis, copied: the body may write to memory that the compiler
    // cannot tell from `places`.
    const bool alone = places.axes.size() == 1;
    const Index size = alone ? places.axes[0].size : 0, stride = alone ? places.axes[0].stride : 0;
    const auto bound = static_cast<std::uint64_t>(size);
    for (Index which = begin; which < end;) {
        Index rest = which / width, from = 0, base = 0;
        for (Index axis = rank - 1; axis-- > 0; rest /= places.shape[axis]) {
            from += rest % places.shape[axis] * places.strides[axis];
            base += rest % places.shape[axis] * places.bases[axis];
        }
        const Index first = which % width, stop = std::min(width, first + end - which);
        if (alone) {
            for (Index i = first; i < stop; ++i, ++which) {
                const Index index = indices[from + i * step], at = index < 0 ? index + size : index;
                if (static_cast<std::uint64_t>(at) >= bound) [[unlikely]]
                    outside(index, places.axes[0]);
                body(base + i * base_step + at * stride, which);
            }
            continue;
        }
        for (Index i = first; i < stop; ++i, ++which) {
            const Number *row = indices + from + i * step;
            Index place = base + i * base_step;
            for (const Addressed &axis : places.axes)
                place += placed(static_cast<Index>(*row++), axis) * axis.stride;
            body(place, which);
        }
    }
}

}  // namespace vtensor::eigen
