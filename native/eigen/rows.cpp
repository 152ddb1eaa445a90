// native/eigen/rows.cpp: kernels whose result depends on whole rows: softmax, LRN.
#include <Eigen/Core>
#include <algorithm>

#include "check.h"
#include "kernels.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

using Row = Eigen::Map<const Eigen::ArrayXf>;
using Target = Eigen::Map<Eigen::ArrayXf>;

// Elements that are added up in f32 before their sum is added in f64.
constexpr Index kDeep = 4096;

class Softmax final : public Step {
public:
    Softmax(Index rows, Index length) : Step("softmax"), rows_(rows), length_(length) {
        add_slot("src", VTENSOR_READ, product({rows, length}));
        add_slot("dst", VTENSOR_WRITE, product({rows, length}));
    }

private:
    void run(void *const *slots) const override {
        if (length_ == 0) return;
        parallel(rows_, rows_ * length_, [&](Index begin, Index end) {
            for (Index row = begin; row < end; ++row) {
                const Row src(input(slots, 0) + row * length_, length_);
                Target dst(output(slots, 1) + row * length_, length_);
                dst = (src - src.maxCoeff<Eigen::PropagateNaN>()).exp();
                double sum = 0;
                for (Index at = 0; at < length_; at += kDeep)
                    sum += dst.segment(at, std::min(kDeep, length_ - at)).sum();
                dst /= static_cast<float>(sum);
            }
        });
    }

    Index rows_, length_;
};

class Lrn final : public Step {
public:
    Lrn(Index rows, Index length, Index size, float alpha, float beta, float bias)
        : Step("lrn"), rows_(rows), length_(length), scale_(alpha / static_cast<float>(size)),
          beta_(beta), bias_(bias) {
        demand(size > 0, "a sum of no channels");
        before_ = std::min((size - 1) / 2, length);
        after_ = std::min(size / 2, length);
        add_slot("src", VTENSOR_READ, product({rows, length}));
        add_slot("dst", VTENSOR_WRITE, product({rows, length}));
    }

private:
    void run(void *const *slots) const override {
        const Index width = before_ + after_;
        parallel(rows_, rows_ * length_ * (width + 1), [&](Index begin, Index end) {
            Eigen::ArrayXf squares = Eigen::ArrayXf::Zero(length_ + width), sum(length_);
            for (Index row = begin; row < end; ++row) {
                const Row src(input(slots, 0) + row * length_, length_);
                Target dst(output(slots, 1) + row * length_, length_);
                squares.segment(before_, length_) = src.square();
                sum = squares.head(length_);
                for (Index k = 1; k <= width; ++k) sum += squares.segment(k, length_);
                dst = src * (bias_ + scale_ * sum).pow(-beta_);
            }
        });
    }

    Index rows_, length_, before_ = 0, after_ = 0;
    float scale_, beta_, bias_;
};

}  // namespace

Step *softmax(Index rows, Index length) { return new Softmax(rows, length); }

Step *lrn(Index rows, Index length, Index size, float alpha, float beta, float bias) {
    return new Lrn(rows, length, size, alpha, beta, bias);
}

}  // namespace vtensor::eigen
