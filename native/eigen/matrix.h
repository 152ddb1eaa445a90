// native/eigen/matrix.h: Eigen's product of matrices, divided among threads.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>

#include "parallel.h"

namespace vtensor::eigen {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMatrix = Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;
using MutableMatrix = Eigen::Map<Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;

// result = left * right; the longer side of the result is divided among threads, in multiples of
// Eigen's panels.
inline void multiply(const ConstMatrix &left, const ConstMatrix &right, MutableMatrix result) {
    constexpr Index kPanel = 48;
    const Index rows = result.rows(), columns = result.cols();
    const bool by_rows = rows >= columns;
    const Index length = by_rows ? rows : columns;
    const Index panels = (length + kPanel - 1) / kPanel;
    parallel(panels, 2 * rows * columns * left.cols(), [&](Index first, Index last) {
        const Index begin = first * kPanel, count = std::min(last * kPanel, length) - begin;
        if (by_rows) {
            result.middleRows(begin, count).noalias() = left.middleRows(begin, count) * right;
        } else {
            result.middleCols(begin, count).noalias() = left * right.middleCols(begin, count);
        }
    });
}

// The bits of s32, as integers that wrap around.
using Bits = std::uint32_t;

// A row-major matrix, and the distance of its rows.
template <class T>
struct Rows {
    T *first;
    Index pitch;
};

// dst = left (rows x depth) * right (depth x columns), of integers.
void multiply_bits(const Rows<const Bits> &left, const Rows<const Bits> &right,
                   const Rows<Bits> &dst, Index rows, Index columns, Index depth);

}  // namespace vtensor::eigen
