// native/narrow/operands.h: the slots of every kernel of narrow/, and work for several threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <string>

#include "eigen/check.h"
#include "eigen/parallel.h"
#include "kernels.h"

namespace vtensor::narrow {

using eigen::demand;
using eigen::times;

// Addresses of the operands; null for a missing zero point of the left factor.
struct Operands {
    const std::uint8_t *left, *right, *left_zeros, *right_zeros;
    EndingOperands ending;
    std::byte *scratch;
};

// A step with the slots left, right, zero points, operands of the ending, dst and scratch.
class Multiplying : public Step {
protected:
    Multiplying(const std::string &kernel, const EndingCall &ending, Index columns, Index elements)
        : Step(kernel), ending_(ending, columns, elements), threads_(omp_get_max_threads()) {}

    void add_operands(Index left, Index right, Index left_zeros, Index right_zeros,
                      Index scratch) {
        demand(scratch >= 0, "sizes overflow");
        left_zeros_ = left_zeros;
        right_zeros_ = right_zeros;
        add_slot("left", VTENSOR_READ, left, 1);
        add_slot("right", VTENSOR_READ, right, 1);
        if (left_zeros > 0) add_slot("left_zero", VTENSOR_READ, left_zeros, 1);
        if (right_zeros > 0) add_slot("right_zero", VTENSOR_READ, right_zeros, 1);
        for (const Ending::Slot &slot : ending_.slots())
            add_slot(slot.name.c_str(), slot.name == "dst" ? VTENSOR_WRITE : VTENSOR_READ,
                     slot.elements, slot.item_bytes);
        add_scratch(up(scratch, 64) / static_cast<Index>(sizeof(float)));
    }

    // Calls body(worker, piece) for all pieces; no two calls of a worker run at the same time.
    template <class Body>
    void share(Index pieces, Index operations, const Body &body) const {
        constexpr Index kCheaper = 16;  // than operations on f32
        const Index workers = std::min(threads_, pieces);
        eigen::parallel(workers, operations / kCheaper, [&](Index begin, Index end) {
            for (Index worker = begin; worker < end; ++worker)
                for (Index i = pieces * worker / workers; i < pieces * (worker + 1) / workers; ++i)
                    body(worker, i);
        });
    }

    Ending ending_;
    Index threads_;

private:
    virtual void compute(const Operands &at) const = 0;

    void run(void *const *slots) const final {
        const auto next = [&] { return static_cast<const std::uint8_t *>(*slots++); };
        static constexpr std::uint8_t kNone = 0;  // weights without a zero point
        Operands at{};
        at.right_zeros = &kNone;
        at.left = next();
        at.right = next();
        if (left_zeros_ > 0) at.left_zeros = next();
        if (right_zeros_ > 0) at.right_zeros = next();
        at.ending = ending_.operands(slots);
        slots += ending_.slots().size();
        if (scratch_bytes() > 0) at.scratch = static_cast<std::byte *>(*slots);
        compute(at);
    }

    Index left_zeros_ = 0, right_zeros_ = 0;
};

}  // namespace vtensor::narrow
