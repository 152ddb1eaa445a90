// native/eigen/normalize.cpp: normalization by a mean, variance or norm of the elements, with a
// scale and a shift.
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>

#include "check.h"
#include "convert.h"
#include "kernels.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

constexpr Index kTile = 512;

using Values = Eigen::Map<const Eigen::ArrayXf>;
using Tile = Eigen::Map<Eigen::ArrayXf>;

enum class Kind { layer, rms, mean_variance, l1, l2 };
constexpr std::array kKinds{"layer", "rms", "mean_variance", "l1", "l2"};

const std::array kTypes{element<float, float, float>("f32"),
                        element<Eigen::half, float, float>("f16"),
                        element<Eigen::bfloat16, float, float>("bf16")};

const Element<float, float> &type_of(const std::string &name) {
    for (const auto &one : kTypes)
        if (name == one.name) return one;
    refuse("no normalization of " + name);
}

// An axis: number of elements, and strides in src, dst, scale and shift.
struct Axis {
    Index size, src, dst, scale, shift;
};

class Normalization final : public Step {
public:
    Normalization(Kind kind, const Element<float, float> &element,
                  const Element<float, float> &parameter, const Ints &shape, Index first,
                  Index last, const std::vector<Ints> &strides, float epsilon)
        : Step("normalize"), kind_(kind), element_(element), parameter_(parameter),
          epsilon_(epsilon), parameters_(strides.size() < 2 ? 0 : strides.size() - 2) {
        const auto rank = static_cast<Index>(shape.size());
        demand(first >= 0 && first <= last && last <= rank, "no such axes");
        demand(strides.size() >= 2, "src or dst has no strides");
        demand(parameters_ <= 2, "more than a scale and a shift");
        const Ints &src = strides[0], &dst = strides[1];
        add_slot("src", VTENSOR_READ, reach(shape, src), element.bytes);
        for (std::size_t i = 2; i < strides.size(); ++i)
            add_slot("parameter", VTENSOR_READ, reach(shape, strides[i]), parameter.bytes);
        demand(fills(shape, dst), "dst is not filled");
        add_slot("dst", VTENSOR_WRITE, product(shape), element.bytes);
        const Ints zeros(shape.size(), 0);
        const Ints &scale = parameters_ == 0 ? zeros : strides[2];
        const Ints &shift = parameters_ < 2 ? zeros : strides[3];
        const auto axes = [&](Index begin, Index end) {
            std::vector<Axis> made;
            for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
                push(made, {shape[i], src[i], dst[i], scale[i], shift[i]});
            return made;
        };
        outer_ = axes(0, first);
        inner_ = axes(last, rank);
        demand(inner_.size() <= 1, "a scale or a shift in several pieces behind what is reduced");
        reduced_ = axes(first, last);
        rows_ = count(outer_);
        width_ = count(inner_);
        demand(width_ == 1 || (dense(shape, src) && dense(shape, dst)),
               "src or dst in pieces, and elements behind the reduced");
        if (width_ == 1 && !reduced_.empty()) {
            run_ = reduced_.back();
            reduced_.pop_back();
        }
        length_ = count(reduced_) * run_.size;
        if (kind == Kind::layer) {
            add_slot("mean", VTENSOR_WRITE, times(rows_, width_));
            add_slot("inverse", VTENSOR_WRITE, times(rows_, width_));
        }
    }

private:
    static void push(std::vector<Axis> &axes, const Axis &axis) {
        if (axis.size == 1) return;
        const auto goes_on = [&](Index Axis::*step) {
            return axes.back().*step == axis.*step * axis.size;
        };
        if (!axes.empty() && goes_on(&Axis::src) && goes_on(&Axis::dst) &&
            goes_on(&Axis::scale) && goes_on(&Axis::shift)) {
            axes.back() = {axes.back().size * axis.size, axis.src, axis.dst, axis.scale,
                           axis.shift};
        } else {
            axes.push_back(axis);
        }
    }

    static bool dense(const Ints &shape, const Ints &strides) {
        Index step = 1;
        for (std::size_t i = shape.size(); i-- > 0; step *= shape[i])
            if (shape[i] > 1 && strides[i] != step) return false;
        return true;
    }

    // Returns whether the strides place the elements densely, each exactly once.
    static bool fills(const Ints &shape, const Ints &strides) {
        std::vector<std::array<Index, 2>> steps;
        for (std::size_t i = 0; i < shape.size(); ++i) {
            if (shape[i] == 0) return true;
            if (shape[i] > 1) steps.push_back({strides[i], shape[i]});
        }
        std::ranges::sort(steps);
        Index next = 1;
        for (const auto &[step, size] : steps) {
            if (step != next) return false;
            next *= size;
        }
        return true;
    }

    static Index count(const std::vector<Axis> &axes) {
        Index all = 1;
        for (const Axis &axis : axes) all *= axis.size;
        return all;
    }

    // Returns the offsets of the index-th element of some axes, added to those of `from`.
    static Axis at(const std::vector<Axis> &axes, Index index, Axis from) {
        for (std::size_t i = axes.size(); i-- > 0; index /= axes[i].size) {
            const Index place = index % axes[i].size;
            from.src += place * axes[i].src;
            from.dst += place * axes[i].dst;
            from.scale += place * axes[i].scale;
            from.shift += place * axes[i].shift;
        }
        return from;
    }

    void run(void *const *slots) const override {
        const Index strips = (width_ + kTile - 1) / kTile, work = rows_ * length_ * width_;
        if (rows_ * width_ == 0) return;
        parallel(rows_ * strips, 4 * work, [&](Index begin, Index end) {
            for (Index piece = begin; piece < end; ++piece) {
                if (width_ == 1)
                    row(slots, piece);
                else
                    strip(slots, piece / strips, piece % strips * kTile);
            }
        });
    }

    bool centred() const { return kind_ == Kind::layer || kind_ == Kind::mean_variance; }

    // Returns the factor of the elements, from the sum of their squares or magnitudes.
    float factor(double sum) const {
        const double mean = sum / static_cast<double>(std::max<Index>(length_, 1));
        switch (kind_) {
        case Kind::layer:
        case Kind::rms: return static_cast<float>(1 / std::sqrt(mean + epsilon_));
        case Kind::mean_variance: return static_cast<float>(1 / (std::sqrt(mean) + epsilon_));
        case Kind::l1: return static_cast<float>(sum == 0 ? 1 : 1 / sum);
        case Kind::l2: return static_cast<float>(sum == 0 ? 1 : 1 / std::sqrt(sum));
        }
        return 0;
    }

    template <class X>
    auto term(const X &x) const { return kind_ == Kind::l1 ? x.abs().sum() : x.square().sum(); }

    // Calls the body for a run of a row, in tiles.
    template <class Body>
    void tiles(const void *src, Index offset, const Body &body) const {
        alignas(64) std::array<float, kTile> read;
        for (Index done = 0; done < run_.size; done += kTile) {
            const Index n = std::min(kTile, run_.size - done), from = offset + done * run_.src;
            body(done, Values(element_.load(src, from, run_.src, n, read.data()), n));
        }
    }

    void row(void *const *slots, Index index) const {
        const Axis begin = at(outer_, index, {});
        const Index runs = run_.size == 0 ? 0 : length_ / run_.size;
        const auto each = [&](const auto &body) {
            for (Index i = 0; i < runs; ++i) {
                const Axis from = at(reduced_, i, begin);
                tiles(slots[0], from.src, [&](Index done, const Values &x) {
                    body(done, from, x);
                });
            }
        };
        const auto count = static_cast<double>(std::max<Index>(length_, 1));
        double sum = 0, terms = 0;
        float mean = 0, rest = 0;  // rest: the mean minus its rounded value
        if (centred()) {
            each([&](Index, const Axis &, const Values &x) { sum += x.sum(); });
            mean = static_cast<float>(sum / count);
        }
        sum = 0;
        each([&](Index, const Axis &, const Values &x) {
            if (centred()) sum += (x - mean).sum();
            terms += term(x - mean);
        });
        if (centred()) {
            rest = std::isfinite(sum) ? static_cast<float>(sum / count) : 0;
            terms = std::max(terms - sum * sum / count, 0.);
        }
        const float by = factor(terms);
        each([&](Index done, const Axis &from, const Values &x) {
            write(slots, (x - mean - rest) * by, x.size(),
                  {0, 0, from.dst + done * run_.dst, from.scale + done * run_.scale,
                   from.shift + done * run_.shift},
                  run_);
        });
        mean += rest;
        if (kind_ == Kind::layer) state(slots, index, &mean, &by, 1);
    }

    // Normalizes a strip: neighbouring elements along the axes that follow the reduced ones.
    void strip(void *const *slots, Index index, Index first) const {
        alignas(64) std::array<float, kTile> read, middle, left, by;
        std::array<double, kTile> sum;
        const Index n = std::min(kTile, width_ - first);
        const Index base = index * length_ * width_ + first;
        using Sums = Eigen::Map<Eigen::ArrayXd>;
        // `rest` is the difference between the mean and its rounded value.
        Tile mean(middle.data(), n), rest(left.data(), n), factors(by.data(), n);
        Sums sums(sum.data(), n);
        const auto each = [&](const auto &body) {
            for (Index i = 0; i < length_; ++i)
                body(i, Values(element_.load(slots[0], base + i * width_, 1, n, read.data()), n));
        };
        mean.setZero();
        rest.setZero();
        if (centred()) {
            sums.setZero();
            each([&](Index, const Values &x) { sums += x.cast<double>(); });
            sums /= static_cast<double>(std::max<Index>(length_, 1));
            mean = sums.cast<float>();
            rest = (sums - mean.cast<double>()).cast<float>();
        }
        sums.setZero();
        each([&](Index, const Values &x) {
            if (kind_ == Kind::l1)
                sums += x.abs().cast<double>();
            else
                sums += (x - mean - rest).square().cast<double>();
        });
        for (Index i = 0; i < n; ++i) by[static_cast<std::size_t>(i)] = factor(sums[i]);
        const Axis inner = inner_.empty() ? Axis{1, 1, 1, 0, 0} : inner_[0];
        const Axis begin =
            at(outer_, index, {0, 0, first, first * inner.scale, first * inner.shift});
        each([&](Index i, const Values &x) {
            write(slots, (x - mean - rest) * factors, n, at(reduced_, i, begin), inner);
        });
        if (kind_ == Kind::layer) state(slots, index * width_ + first, &mean[0], &by[0], n);
    }

    template <class X>
    void write(void *const *slots, const X &values, Index n, const Axis &from,
               const Axis &step) const {
        alignas(64) std::array<float, kTile> made, first, second;
        const bool direct = element_.bytes == sizeof(float) && step.dst == 1;
        void *dst = slots[parameters_ + 1];
        Tile y(direct ? static_cast<float *>(dst) + from.dst : made.data(), n);
        const auto parameter = [&](std::size_t which, Index offset, Index by, float *tile) {
            return Values(parameter_.load(slots[which], offset, by, n, tile), n);
        };
        if (parameters_ == 0) {
            y = values;
        } else if (parameters_ == 1) {
            y = values * parameter(1, from.scale, step.scale, first.data());
        } else {
            y = values * parameter(1, from.scale, step.scale, first.data()) +
                parameter(2, from.shift, step.shift, second.data());
        }
        if (!direct) element_.store(dst, from.dst, step.dst, n, made.data());
    }

    void state(void *const *slots, Index to, const float *mean, const float *by, Index n) const {
        std::copy_n(mean, n, output(slots, parameters_ + 2) + to);
        std::copy_n(by, n, output(slots, parameters_ + 3) + to);
    }

    Kind kind_;
    Element<float, float> element_, parameter_;
    float epsilon_;
    std::size_t parameters_;
    std::vector<Axis> outer_, reduced_, inner_;
    Axis run_{1, 1, 1, 0, 0};
    Index rows_ = 0, length_ = 0, width_ = 0;
};

}  // namespace

Step *normalization(const std::string &kind, const std::string &type,
                    const std::string &parameter_type, const Ints &shape, Index first, Index last,
                    const std::vector<Ints> &parameters, float epsilon) {
    const auto found = std::ranges::find(kKinds, kind);
    demand(found != kKinds.end(), "there is no such normalization");
    demand(epsilon >= 0, "epsilon must not be negative");
    return new Normalization(static_cast<Kind>(found - kKinds.begin()), type_of(type),
                             type_of(parameter_type), shape, first, last, parameters, epsilon);
}

}  // namespace vtensor::eigen
