// native/eigen/determinant.cpp: determinants of square matrices, by elimination in f64.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "check.h"
#include "elements.h"
#include "parallel.h"
#include "signals.h"

namespace vtensor::eigen {

namespace {

template <class Element>
class Determinant final : public Step {
public:
    Determinant(Index matrices, Index rows)
        : Step("determinant"), matrices_(matrices), rows_(rows), each_(times(rows, rows)) {
        const Index all = product({matrices, rows, rows});
        add_slot("src", VTENSOR_READ, all, sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, matrices, sizeof(Element));
        parts_ = std::min<Index>(matrices, omp_get_max_threads());
        // A copy of a matrix for each thread.
        add_scratch(times(product({parts_, rows, rows}), sizeof(double) / sizeof(float)));
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Element *>(slots[1]);
        if (each_ == 0) {
            std::fill_n(dst, matrices_, narrowed<Element>(1));
            return;
        }
        parallel(parts_, matrices_ * each_ * rows_, [&](Index begin, Index end) {
            double *room = static_cast<double *>(slots[2]) + begin * each_;
            const Index stop = matrices_ * end / parts_;
            for (Index at = matrices_ * begin / parts_; at < stop; ++at) {
                std::transform(src + at * each_, src + (at + 1) * each_, room,
                               &widened<Element>);
                dst[at] = narrowed<Element>(eliminated(room));
            }
        });
    }

    // Returns the determinant by elimination with the largest pivot of each column; overwrites the
    // matrix.
    double eliminated(double *matrix) const {
        double all = 1;
        for (Index k = 0; k < rows_; ++k) {
            double *row = matrix + k * rows_;
            double *pivot = matrix + largest(matrix, k) * rows_;
            if (pivot[k] == 0) return 0;
            if (pivot != row) {
                std::swap_ranges(pivot + k, pivot + rows_, row + k);
                all = -all;
            }
            all *= row[k];
            for (Index i = k + 1; i < rows_; ++i) {
                double *other = matrix + i * rows_;
                const double factor = other[k] / row[k];
                for (Index j = k + 1; j < rows_; ++j) other[j] -= factor * row[j];
            }
        }
        return all;
    }

    // Returns the row from k on with the largest element in column k; NaN counts as the largest.
    Index largest(const double *matrix, Index k) const {
        Index found = k;
        double most = std::fabs(matrix[k * rows_ + k]);
        for (Index i = k + 1; i < rows_; ++i) {
            const double size = std::fabs(matrix[i * rows_ + k]);
            if (size > most || (is_nan(size) && !is_nan(most))) {
                found = i;
                most = size;
            }
        }
        return found;
    }

    Index matrices_, rows_, each_, parts_ = 0;
};

}  // namespace

Step *determinant(const std::string &dtype, Index matrices, Index rows) {
    return with_float(dtype, [&]<class T>(Type<T>) -> Step * {
        return new Determinant<T>(matrices, rows);
    });
}

}  // namespace vtensor::eigen
