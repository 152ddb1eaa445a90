// native/eigen/product.cpp: batches of matrix products.
#include "check.h"
#include "kernels.h"
#include "matrix.h"

namespace vtensor::eigen {

namespace {

class Product final : public Step {
public:
    Product(const Ints &batch, const Ints &left, const Ints &right, Index rows, Index columns,
            Index depth)
        : Step("gemm"), batch_(batch), left_(left), right_(right), rows_(rows), columns_(columns),
          depth_(depth) {
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
            multiply({input(slots, 0) + left, rows_, depth_, Eigen::OuterStride<>(depth_)},
                     {input(slots, 1) + right, depth_, columns_, Eigen::OuterStride<>(columns_)},
                     {output(slots, 2) + b * rows_ * columns_, rows_, columns_,
                      Eigen::OuterStride<>(columns_)});
        }
    }

    Ints batch_, left_, right_;
    Index rows_, columns_, depth_, number_ = 0;
};

}  // namespace

Step *product(const Ints &batch, const Ints &left_strides, const Ints &right_strides, Index rows,
              Index columns, Index depth) {
    return new Product(batch, left_strides, right_strides, rows, columns, depth);
}

}  // namespace vtensor::eigen
