// native/eigen/product.cpp: batches of matrix products.
#include <algorithm>
#include <cstdint>

#include "check.h"
#include "kernels.h"
#include "matrix.h"

namespace vtensor::eigen {

namespace {

constexpr Index kRows = 4, kColumns = 32;

// Computes a tile of a product. Inlined, so that a whole tile's sizes are constants.
[[gnu::always_inline]] inline void sum(const Rows<const Bits> &left, const Rows<const Bits> &right,
                                       const Rows<Bits> &dst, Index height, Index width,
                                       Index depth) {
    Bits sums[kRows][kColumns] = {};
    for (Index k = 0; k < depth; ++k)
        for (Index i = 0; i < height; ++i)
            for (Index j = 0; j < width; ++j)
                sums[i][j] += left.first[i * left.pitch + k] * right.first[k * right.pitch + j];
    for (Index i = 0; i < height; ++i) std::copy_n(sums[i], width, dst.first + i * dst.pitch);
}

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
    // Returns the number of elements that all matrices of one operand span.
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
                multiply_bits({static_cast<const Bits *>(slots[0]) + left, depth_},
                              {static_cast<const Bits *>(slots[1]) + right, columns_},
                              {static_cast<Bits *>(slots[2]) + dst, columns_}, rows_, columns_,
                              depth_);
            }
        }
    }

    bool floats_;
    Ints batch_, left_, right_;
    Index rows_, columns_, depth_, number_ = 0;
};

}  // namespace

// Computes the result in tiles whose sums stay in registers.
void multiply_bits(const Rows<const Bits> &left, const Rows<const Bits> &right,
                   const Rows<Bits> &dst, Index rows, Index columns, Index depth) {
    const Index down = (rows + kRows - 1) / kRows, across = (columns + kColumns - 1) / kColumns;
    parallel(down * across, times(2 * rows, times(columns, depth)), [&](Index begin, Index end) {
        for (Index tile = begin; tile < end; ++tile) {
            const Index row = tile / across * kRows, column = tile % across * kColumns;
            const Index height = std::min(kRows, rows - row);
            const Index width = std::min(kColumns, columns - column);
            const Rows<const Bits> a{left.first + row * left.pitch, left.pitch};
            const Rows<const Bits> b{right.first + column, right.pitch};
            const Rows<Bits> to{dst.first + row * dst.pitch + column, dst.pitch};
            if (height == kRows && width == kColumns) {
                sum(a, b, to, kRows, kColumns, depth);
            } else {
                sum(a, b, to, height, width, depth);
            }
        }
    });
}

Step *product(const std::string &type, const Ints &batch, const Ints &left_strides,
              const Ints &right_strides, Index rows, Index columns, Index depth) {
    return new Product(type, batch, left_strides, right_strides, rows, columns, depth);
}

}  // namespace vtensor::eigen
