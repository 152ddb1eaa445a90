// native/eigen/rows.cpp: kernels whose result depends on whole rows: mean, softmax, LRN.
#include <Eigen/Core>
#include <algorithm>

#include "check.h"
#include "kernels.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

using Row = Eigen::Map<const Eigen::ArrayXf>;
using Target = Eigen::Map<Eigen::ArrayXf>;

class Mean final : public Step {
public:
    Mean(Index outer, Index reduced, Index inner)
        : Step("mean"), outer_(outer), reduced_(reduced), inner_(inner) {
        demand(reduced > 0, "the mean of nothing");
        add_slot("src", VTENSOR_READ, product({outer, reduced, inner}));
        add_slot("dst", VTENSOR_WRITE, product({outer, inner}));
    }

private:
    // A strip of the inner elements is summed over all of `reduced` before the next.
    static constexpr Index kStrip = 256;

    void run(void *const *slots) const override {
        const Index strips = (inner_ + kStrip - 1) / kStrip;
        parallel(outer_ * strips, outer_ * reduced_ * inner_, [&](Index begin, Index end) {
            for (Index piece = begin; piece < end; ++piece) {
                const Index o = piece / strips, first = piece % strips * kStrip;
                const Index count = std::min(kStrip, inner_ - first);
                const float *src = input(slots, 0) + o * reduced_ * inner_ + first;
                Target dst(output(slots, 1) + o * inner_ + first, count);
                if (inner_ == 1) {
                    dst.setConstant(Row(src, reduced_).mean());
                    continue;
                }
                dst.setZero();
                for (Index r = 0; r < reduced_; ++r) dst += Row(src + r * inner_, count);
                dst /= static_cast<float>(reduced_);
            }
        });
    }

    Index outer_, reduced_, inner_;
};

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
                dst /= dst.sum();
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

Step *mean(Index outer, Index reduced, Index inner) { return new Mean(outer, reduced, inner); }

Step *softmax(Index rows, Index length) { return new Softmax(rows, length); }

Step *lrn(Index rows, Index length, Index size, float alpha, float beta, float bias) {
    return new Lrn(rows, length, size, alpha, beta, bias);
}

}  // namespace vtensor::eigen
