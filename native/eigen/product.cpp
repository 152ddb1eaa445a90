// native/eigen/product.cpp: batches of matrix products.
#include <algorithm>
#include <cstdint>

#include "check.h"
#include "kernels.h"
#include "matrix.h"

namespace vtensor::eigen {

namespace {

// Integers that wrap around: those of s32, seen as bits.
using Bits = std::uint32_t;
constexpr Index kRows = 4, kColumns = 32;

class Product final : public Step {
public:
    Product(const std::string &type, const Ints &batch, const Ints &left, const Ints &right,
            Index rows, Index columns, Index depth)
        : Step("gemm"), floats_(type == "f32"), batch_(batch), left_(left), right_(right),
          rows_(rows), columns_(columns), depth_(depth) {
        demand(floats_ || type == "s32", "a product of f32 or s32");
        add_slot("left", VTENSOR_READ, whole(left, rows, depth));
        add_slot("right", VTENSOR_READ, whole(right, depth, columns));
        number_ = product({batch});
        add_slot("dst", VTENSOR_WRITE, times(number_, product({rows, columns})));
    }

private:
    // The elements of all matrices of one operand.
    Index whole(const Ints &strides, Index height, Index width) const {
        Ints shape = batch_, steps = strides;
        shape.insert(shape.end(), {height, width});
        steps.insert(steps.end(), {width, 1});
        return reach(shape, steps);
    }

    void run(void *const *slots) const override {
        for (Index b = 0; b < number_; ++b) {
            Index left = 0, right = 0, rest = b;
            for (std::size_t axis = batch_.size(); axis-- > 0; rest /= batch_[axis]) {
                left += rest % batch_[axis] * left_[axis];
                right += rest % batch_[axis] * right_[axis];
            }
            const Index dst = b * rows_ * columns_;
            if (floats_) {
                eigen::multiply({input(slots, 0) + left, rows_, depth_, Eigen::OuterStride<>(depth_)},
                         {input(slots, 1) + right, depth_, columns_,
                          Eigen::OuterStride<>(columns_)},
                         {output(slots, 2) + dst, rows_, columns_,
                          Eigen::OuterStride<>(columns_)});
            } else {
                multiply(static_cast<const Bits *>(slots[0]) + left,
                         static_cast<const Bits *>(slots[1]) + right,
                         static_cast<Bits *>(slots[2]) + dst);
            }
        }
    }

    // Of integers: tiles of the result, whose sums stay in registers.
    void multiply(const Bits *left, const Bits *right, Bits *dst) const {
        const Index down = (rows_ + kRows - 1) / kRows, across = (columns_ + kColumns - 1) / kColumns;
        const Index work = times(2 * rows_, times(columns_, depth_));
        parallel(down * across, work, [&](Index begin, Index end) {
            for (Index tile = begin; tile < end; ++tile) {
                const Index row = tile / across * kRows, column = tile % across * kColumns;
                const Index height = std::min(kRows, rows_ - row);
                const Index width = std::min(kColumns, columns_ - column);
                const Bits *a = left + row * depth_, *b = right + column;
                Bits *to = dst + row * columns_ + column;
                if (height == kRows && width == kColumns) {
                    sum(a, b, to, kRows, kColumns);
                } else {
                    sum(a, b, to, height, width);
                }
            }
        });
    }

    // Inlined, such that a whole tile's extents are known.
    [[gnu::always_inline]] void sum(const Bits *left, const Bits *right, Bits *dst, Index height,
                                    Index width) const {
        Bits sums[kRows][kColumns] = {};
        for (Index k = 0; k < depth_; ++k)
            for (Index i = 0; i < height; ++i)
                for (Index j = 0; j < width; ++j)
                    sums[i][j] += left[i * depth_ + k] * right[k * columns_ + j];
        for (Index i = 0; i < height; ++i) std::copy_n(sums[i], width, dst + i * columns_);
    }

    bool floats_;
    Ints batch_, left_, right_;
    Index rows_, columns_, depth_, number_ = 0;
};

}  // namespace

Step *product(const std::string &type, const Ints &batch, const Ints &left_strides,
              const Ints &right_strides, Index rows, Index columns, Index depth) {
    return new Product(type, batch, left_strides, right_strides, rows, columns, depth);
}

}  // namespace vtensor::eigen
