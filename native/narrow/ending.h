// native/narrow/ending.h: what follows exact sums in the same step: scaling, additions, bounds, and
// rounding to bytes.
//
// Each operation is rounded by itself, in the order of `Stage`, so that every level gives equal
// bits.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "eigen/step.h"
#include "sums.h"

namespace vtensor::narrow {

// A stage's name, the element type of its operand, and how many elements that has. In order:
// "sum", s32, is added to the sums; "scale", f32, multiplies them as f32; "code", of bytes, is
// added to the rounded product, which saturates, and "decode_zero" is subtracted from it again
// before "decode_scale" multiplies; "bias", f32, is added; "other", which has dst's elements as f32
// or bytes, is added, bytes minus "other_zero" times "other_scale"; then come the bounds; "step",
// f32, divides; "zero" is added to the rounded quotient. An operand but other has one element, or
// one for each column; code, zero, and the zeros and scales of decode and other have one.
using Stage = std::tuple<std::string, std::string, Index>;

struct EndingCall {
    std::vector<Stage> stages;
    std::string dst;  // the element type: s32, f32, u8 or s8
    float low, high;
};

// The operands of a run.
struct EndingOperands {
    const std::int32_t *sum;
    const float *scale, *bias, *step;
    const void *other;
    float code, decode_zero, decode_scale, other_zero, other_scale;
    std::int32_t zero;
    void *dst;
};

// The operands of a block's columns.
struct EndingColumns {
    alignas(64) std::int32_t shift[kColumns];
    alignas(64) float scale[kColumns], bias[kColumns], step[kColumns];
};

class Ending {
public:
    Ending(const EndingCall &call, Index columns, Index elements);

    struct Slot {
        std::string name;
        Index elements;
        std::uint32_t item_bytes;
    };
    // The slots before dst, and dst.
    const std::vector<Slot> &slots() const { return slots_; }

    // Returns the operands at the addresses of the slots.
    EndingOperands operands(void *const *addresses) const;
    // Returns the operands of `count` columns; shift is that of the stage "sum".
    EndingColumns columns(const EndingOperands &at, Index first, Index count) const;
    // Stores rows of `count` results: the first one is element `to` of dst, and rows are `stride`
    // elements apart.
    void store(const EndingOperands &at, const EndingColumns &columns, const std::int32_t *sums,
               Index rows, Index count, Index to, Index stride) const;

private:
    enum class Type { none, s32, f32, u8, s8 };
    // The stages that there are.
    struct Stages {
        bool scaled, biased, divided;
        Type code, other, dst;
        float low, high;
    };
    static Type type_of(const std::string &name);
    // As `store`, for sums that are scaled and rounded to bytes, and nothing else.
    void store_codes(const EndingOperands &at, const EndingColumns &columns,
                     const std::int32_t *sums, Index rows, Index count, Index to,
                     Index stride) const;
    template <bool kWhole>
    static void vector(const Stages &stages, const EndingOperands &at,
                       const EndingColumns &columns, const std::int32_t *sums, Index column,
                       Index to, Index count);

    std::vector<Slot> slots_;
    std::vector<std::size_t> places_;  // in the table of stages, of each slot but dst
    bool one_sum_ = false, one_scale_ = false, one_bias_ = false, one_step_ = false;
    bool only_codes_ = false;
    Stages stages_;
};

}  // namespace vtensor::narrow
