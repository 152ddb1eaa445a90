// native/eigen/fourier.cpp: discrete Fourier transforms of rows, or of frames of rows.
//
// Small factors of the length are split off one by one; a length with a large prime factor becomes
// a convolution with a chirp, by transforms of a power of two. (J. Cooley and J. Tukey, An
// algorithm for the machine calculation of complex Fourier series; L. Bluestein, A linear filtering
// approach to the computation of the discrete Fourier transform.) All is computed in f64, several
// rows at once: a row per lane.
#include <omp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "check.h"
#include "elements.h"
#include "parallel.h"
#include "signals.h"

namespace vtensor::eigen {

namespace {

constexpr Index kLanes = 8;
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));

// A complex number, or one per lane.
template <class Real>
struct Complex {
    Real re, im;
};

template <class Real>
Complex<Real> operator+(const Complex<Real> &a, const Complex<Real> &b) {
    return {a.re + b.re, a.im + b.im};
}
template <class Real>
Complex<Real> operator-(const Complex<Real> &a, const Complex<Real> &b) {
    return {a.re - b.re, a.im - b.im};
}
template <class Real>
Complex<Real> operator*(const Complex<Real> &a, const Complex<double> &b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// Returns exp(-2 pi i * place / length).
Complex<double> wave(Index place, Index length) {
    const double turn =
        2 * std::numbers::pi * static_cast<double>(place) / static_cast<double>(length);
    return {std::cos(turn), -std::sin(turn)};
}

// Transforms of a length whose prime factors are at most kLargest.
class Factored {
public:
    static constexpr Index kLargest = 13;

    explicit Factored(Index length) {
        for (Index place = 0; place < length; ++place) waves_.push_back(wave(place, length));
        for (Index factor : {4, 2, 3, 5, 7, 11, 13})
            for (; length % factor == 0 && length > 1; length /= factor)
                factors_.push_back(factor);
        demand(length == 1, "a large prime factor");
    }

    // Transforms `from` to `to`, which must not overlap.
    template <class Real>
    void operator()(const Complex<Real> *from, Complex<Real> *to) const {
        transform(from, 1, to, static_cast<Index>(waves_.size()), factors_);
    }

private:
    // Transforms every `step`th element, `length` of them; step * length is the whole length.
    template <class Real>
    void transform(const Complex<Real> *from, Index step, Complex<Real> *to, Index length,
                   std::span<const Index> factors) const {
        if (length == 1) {
            *to = *from;
            return;
        }
        const Index many = factors[0], each = length / many;
        for (Index part = 0; part < many; ++part)
            transform(from + part * step, step * many, to + part * each, each,
                      factors.subspan(1));
        for (Index k = 0; k < each; ++k) {
            Complex<Real> terms[kLargest];
            terms[0] = to[k];
            for (Index part = 1; part < many; ++part)
                terms[part] = to[part * each + k] * waves_[part * k * step];
            if (many == 4) {
                four(terms, to + k, each);
            } else {
                any(terms, many, to + k, each);
            }
        }
    }

    template <class Real>
    static void four(const Complex<Real> *terms, Complex<Real> *to, Index apart) {
        const auto even = terms[0] + terms[2], odd = terms[1] + terms[3];
        const auto less = terms[0] - terms[2], side = terms[1] - terms[3];
        to[0] = even + odd;
        to[apart] = {less.re + side.im, less.im - side.re};
        to[2 * apart] = even - odd;
        to[3 * apart] = {less.re - side.im, less.im + side.re};
    }

    template <class Real>
    void any(const Complex<Real> *terms, Index many, Complex<Real> *to, Index apart) const {
        const Index turn = static_cast<Index>(waves_.size()) / many;
        for (Index q = 0; q < many; ++q) {
            Complex<Real> sum = terms[0];
            for (Index part = 1; part < many; ++part)
                sum = sum + terms[part] * waves_[part * q % many * turn];
            to[q * apart] = sum;
        }
    }

    std::vector<Complex<double>> waves_;
    std::vector<Index> factors_;
};

// Transforms of any length.
class Plan {
public:
    explicit Plan(Index length) : length_(length), whole_(room_of(length)) {
        if (whole_size() == length) return;
        // k * j = (k^2 + j^2 - (k - j)^2) / 2: a convolution with the waves of half squares.
        std::vector<Complex<double>> around(whole_size(), {0, 0});
        for (Index k = 0; k < length; ++k) {
            chirp_.push_back(wave(squared(k), 2 * length));
            around[k] = {chirp_[k].re, -chirp_[k].im};
            if (k > 0) around[whole_size() - k] = around[k];
        }
        filter_.resize(around.size());
        whole_(around.data(), filter_.data());
    }

    // Returns the size of each of the two buffers, in numbers.
    Index whole_size() const { return room_of(length_); }

    // Transforms `numbers`, of which elements after the length are not read, and returns the buffer
    // with the result: `numbers` or `other`.
    template <class Real>
    Complex<Real> *operator()(Complex<Real> *numbers, Complex<Real> *other) const {
        if (chirp_.empty()) {
            whole_(numbers, other);
            return other;
        }
        const Index size = whole_size();
        for (Index k = 0; k < length_; ++k) numbers[k] = numbers[k] * chirp_[k];
        std::fill(numbers + length_, numbers + size, Complex<Real>{});
        whole_(numbers, other);
        // With real and imaginary parts exchanged, a transform is the inverse one.
        const double part = 1 / static_cast<double>(size);
        for (Index k = 0; k < size; ++k) {
            const Complex<Real> product = other[k] * filter_[k];
            other[k] = {product.im * part, product.re * part};
        }
        whole_(other, numbers);
        for (Index k = 0; k < length_; ++k)
            numbers[k] = Complex<Real>{numbers[k].im, numbers[k].re} * chirp_[k];
        return numbers;
    }

private:
    // Returns the length, or a power of two for a convolution of that length.
    static Index room_of(Index length) {
        Index rest = length;
        for (Index factor : {2, 3, 5, 7, 11, 13})
            while (rest % factor == 0) rest /= factor;
        if (rest == 1) return length;
        return static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(2 * length - 1)));
    }

    // Returns k^2 modulo twice the length, without overflow.
    Index squared(Index k) const {
        return static_cast<Index>(static_cast<unsigned __int128>(k) * k % (2 * length_));
    }

    Index length_;
    Factored whole_;
    std::vector<Complex<double>> chirp_, filter_;
};

template <class Element>
class Fourier final : public Step {
public:
    explicit Fourier(const Frames &frames)
        : Step("fourier"), frames_(checked(frames)), plan_(frames.length) {
        const Frames &f = frames_;
        rows_ = times(f.series, f.frames);
        add_slot("src", VTENSOR_READ, product({f.series, f.size, f.src_parts}), sizeof(Element));
        if (f.windowed) add_slot("window", VTENSOR_READ, f.length, sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, product({rows_, f.bins, f.dst_parts}), sizeof(Element));
        // Few rows, or long ones, are transformed one after another.
        lanes_ = rows_ >= kLanes && plan_.whole_size() <= kLongest ? kLanes : 1;
        groups_ = (rows_ + lanes_ - 1) / lanes_;
        parts_ = std::min<Index>(groups_, omp_get_max_threads());
        const Index numbers = times(plan_.whole_size(), times(2 * lanes_, 2));
        add_scratch(times(times(parts_, numbers), sizeof(double) / sizeof(float)));
    }

private:
    // For each lane, whether its frame has a number that is not finite, so that there is no
    // transform.
    using Broken = std::array<bool, kLanes>;
    static constexpr Index kLongest = Index{1} << 14, kMost = Index{1} << 40;

    static const Frames &checked(const Frames &f) {
        demand(f.series >= 0 && f.frames >= 0 && f.size >= 0 && f.step >= 0, "a size is negative");
        demand(f.length >= 1 && f.length < kMost, "there is nothing to transform");
        demand(f.src_parts >= 1 && f.src_parts <= 2 && f.dst_parts >= 1 && f.dst_parts <= 2,
               "a number has one or two parts");
        demand(f.taken >= 0 && f.taken <= (f.mirrored ? f.length / 2 + 1 : f.length) &&
                   f.bins >= 0 && f.bins <= f.length,
               "more elements than the length");
        const Index last = times(std::max<Index>(f.frames, 1) - 1, f.step);
        demand(f.frames == 0 || plus(last, f.taken) <= f.size, "a frame beyond src");
        return f;
    }

    void run(void *const *slots) const override {
        if (lanes_ == 1) {
            run_as<double>(slots);
        } else {
            run_as<Lanes>(slots);
        }
    }

    template <class Real>
    void run_as(void *const *slots) const {
        const auto *src = static_cast<const Element *>(slots[0]);
        const auto *window =
            frames_.windowed ? static_cast<const Element *>(slots[1]) : nullptr;
        auto *dst = static_cast<Element *>(slots[frames_.windowed ? 2 : 1]);
        const Index size = plan_.whole_size();
        parallel(parts_, rows_ * size * 16, [&](Index begin, Index end) {
            auto *room = static_cast<Complex<Real> *>(slots[frames_.windowed ? 3 : 2]);
            Complex<Real> *numbers = room + begin * 2 * size, *other = numbers + size;
            const Index stop = groups_ * end / parts_;
            for (Index group = groups_ * begin / parts_; group < stop; ++group) {
                Broken broken{};
                load(src, window, group * lanes_, numbers, broken);
                store(plan_(numbers, other), group * lanes_, broken, dst);
            }
        });
    }

    // Sets the number of a lane.
    static void set(double &of, Index, double value) { of = value; }
    static void set(Lanes &of, Index which, double value) { of[which] = value; }
    static double get(double of, Index) { return of; }
    static double get(const Lanes &of, Index which) { return of[which]; }

    // Loads the frames of as many rows as there are lanes; for an inverse transform real and
    // imaginary parts are exchanged.
    template <class Real>
    void load(const Element *src, const Element *window, Index first, Complex<Real> *to,
              Broken &broken) const {
        const Frames &f = frames_;
        std::fill(to, to + f.length, Complex<Real>{});
        for (Index which = 0; which < std::min(lanes_, rows_ - first); ++which) {
            const Index row = first + which;
            const Element *from =
                src + (row / f.frames * f.size + row % f.frames * f.step) * f.src_parts;
            double odd = 0;
            for (Index t = 0; t < f.taken; ++t) {
                const double by = window == nullptr ? 1 : widened(window[t]);
                const double re = widened(from[t * f.src_parts]) * by;
                const double im = f.src_parts == 1 ? 0 : widened(from[t * f.src_parts + 1]) * by;
                odd += re * 0 + im * 0;
                // The first and the middle number are their own mirror images, without an imaginary
                // part.
                const bool single = f.mirrored && (t == 0 || 2 * t == f.length);
                put(to[t], which, re, single ? 0 : im);
                if (f.mirrored && !single) put(to[f.length - t], which, re, -im);
            }
            broken[which] = is_nan(odd);
        }
    }

    template <class Real>
    void put(Complex<Real> &to, Index which, double re, double im) const {
        set(to.re, which, frames_.inverse ? im : re);
        set(to.im, which, frames_.inverse ? re : im);
    }

    template <class Real>
    void store(const Complex<Real> *from, Index first, const Broken &broken,
               Element *dst) const {
        const Frames &f = frames_;
        const double by = f.inverse ? 1 / static_cast<double>(f.length) : 1;
        for (Index which = 0; which < std::min(lanes_, rows_ - first); ++which) {
            Element *to = dst + (first + which) * f.bins * f.dst_parts;
            if (broken[which]) {
                std::fill_n(to, f.bins * f.dst_parts,
                            narrowed<Element>(std::numeric_limits<double>::quiet_NaN()));
                continue;
            }
            for (Index k = 0; k < f.bins; ++k) {
                const double one = get(from[k].re, which) * by;
                const double two = get(from[k].im, which) * by;
                *to++ = narrowed<Element>(f.inverse ? two : one);
                if (f.dst_parts == 2) *to++ = narrowed<Element>(f.inverse ? one : two);
            }
        }
    }

    Frames frames_;
    Plan plan_;
    Index rows_ = 0, lanes_ = 1, groups_ = 0, parts_ = 0;
};

}  // namespace

Step *fourier(const std::string &dtype, const Frames &frames) {
    return with_float(dtype,
                      [&]<class T>(Type<T>) -> Step * { return new Fourier<T>(frames); });
}

}  // namespace vtensor::eigen
