// native/eigen/pairs.cpp: probabilities of classes from those of pairs of classes.
//
// Source: Wu, Lin, Weng, Probability Estimates for Multi-class Classification by Pairwise Coupling,
// 2004, algorithm 2, with the bounds of ONNX Runtime's SVMClassifier.
#include <algorithm>
#include <cmath>
#include <vector>

#include "check.h"
#include "parallel.h"
#include "trees.h"

namespace vtensor::eigen {

namespace {

class Pairs final : public Step {
public:
    Pairs(Index rows, Index classes)
        : Step("pair_probabilities"), rows_(rows), classes_(classes) {
        demand(classes >= 2, "there is no pair of classes");
        pairs_ = times(classes, classes - 1) / 2;
        add_slot("src", VTENSOR_READ, product({rows, pairs_}));
        add_slot("dst", VTENSOR_WRITE, product({rows, classes}));
    }

private:
    static constexpr Index kTurns = 100;
    static constexpr float kLeast = 1e-7F;

    void run(void *const *slots) const override {
        const Index each = classes_ * classes_;
        parallel(rows_, rows_ * each * 16, [&](Index begin, Index end) {
            std::vector<float> square(each), product(classes_);
            for (Index row = begin; row < end; ++row)
                solve(input(slots, 0) + row * pairs_, output(slots, 1) + row * classes_, square,
                      product);
        });
    }

    // Sets `square` to the quadratic form whose minimum the probabilities are.
    void fill(const float *pairs, std::vector<float> &square) const {
        std::fill(square.begin(), square.end(), 0.0F);
        for (Index one = 0; one < classes_; ++one) {
            for (Index two = one + 1; two < classes_; ++two) {
                const float wins = std::clamp(*pairs++, kLeast, 1 - kLeast), loses = 1 - wins;
                square[one * classes_ + one] += loses * loses;
                square[two * classes_ + two] += wins * wins;
                square[one * classes_ + two] = square[two * classes_ + one] = -loses * wins;
            }
        }
    }

    void solve(const float *pairs, float *of, std::vector<float> &square,
               std::vector<float> &product) const {
        fill(pairs, square);
        const float bound = 0.005F / static_cast<float>(classes_);
        std::fill_n(of, classes_, 1 / static_cast<float>(classes_));
        for (Index turn = 0; turn < kTurns; ++turn) {
            float whole = 0, error = 0;
            for (Index at = 0; at < classes_; ++at) {
                product[at] = 0;
                for (Index k = 0; k < classes_; ++k) product[at] += square[at * classes_ + k] * of[k];
                whole += of[at] * product[at];
            }
            for (Index at = 0; at < classes_; ++at)
                error = std::max(error, std::fabs(product[at] - whole));
            if (!(error >= bound)) return;
            for (Index at = 0; at < classes_; ++at) {
                const float own = square[at * classes_ + at];
                const float step = (whole - product[at]) / own, scale = 1 + step;
                of[at] += step;
                whole = (whole + step * (step * own + 2 * product[at])) / scale / scale;
                for (Index k = 0; k < classes_; ++k) {
                    product[k] = (product[k] + step * square[at * classes_ + k]) / scale;
                    of[k] /= scale;
                }
            }
        }
    }

    Index rows_, classes_, pairs_ = 0;
};

}  // namespace

Step *pair_probabilities(Index rows, Index classes) { return new Pairs(rows, classes); }

}  // namespace vtensor::eigen
