// native/eigen/reduce.cpp: reductions over any dims: sums, means, products, extremes and norms.
//
// Floats are added up in tiles, at most kDeep in a lane, and the sums of tiles in f64.
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "boxes.h"
#include "check.h"
#include "convert.h"
#include "kernels.h"
#include "parallel.h"
#include "walk.h"

namespace vtensor::eigen {

namespace {

constexpr Index kTile = 1024;
constexpr Index kDeep = 64;
// Elements below which a row is not reduced by itself.
constexpr Index kShortRow = 8;
constexpr auto kNaN = Eigen::PropagateNaN;

template <class A>
using Values = Eigen::Map<const Eigen::Array<A, Eigen::Dynamic, 1>>;
template <class A>
using Tile = Eigen::Map<Eigen::Array<A, Eigen::Dynamic, 1>>;
template <class A>
using Wide = std::conditional_t<std::is_same_v<A, float>, double, A>;

enum class Kind { sum, mean, prod, max, min, l1, l2, sum_square, log_sum, log_sum_exp };
constexpr std::array kKinds{"sum", "mean", "prod",       "max",     "min",
                            "l1",  "l2",   "sum_square", "log_sum", "log_sum_exp"};

// Functions of an element before it is added.
struct Same {
    template <class X>
    static auto of(const X &x, const X &) { return x; }
};
struct Magnitude {
    template <class X>
    static auto of(const X &x, const X &) {
        using A = typename X::Scalar;
        if constexpr (std::is_unsigned_v<A>)
            return (x > std::numeric_limits<A>::max() / 2).select(A(0) - x, x);
        else
            return x.abs();
    }
};
struct Square {
    template <class X>
    static auto of(const X &x, const X &) { return x * x; }
};
struct Power {
    template <class X>
    static auto of(const X &x, const X &shift) { return (x - shift).exp(); }
};

template <class Term>
struct Add {
    static constexpr bool kOrders = false;
    template <class X, class Y>
    static void each(Y &into, const X &x, const X &shift) { into += Term::of(x, shift); }
    template <class X>
    static auto whole(const X &x, const X &shift) { return Term::of(x, shift).sum(); }
    template <class W>
    static W both(W a, W b) { return a + b; }
};
struct Multiply {
    static constexpr bool kOrders = false;
    template <class X, class Y>
    static void each(Y &into, const X &x, const X &) { into *= x; }
    template <class X>
    static auto whole(const X &x, const X &) { return x.prod(); }
    template <class W>
    static W both(W a, W b) { return a * b; }
};
// Folds a row in lanes, enough of them to hide the latency of an operation.
template <class Op, class X>
auto in_lanes(const X &x, const auto &last) {
    constexpr int kLanes = 64;
    using Lanes = Eigen::Array<typename X::Scalar, kLanes, 1>;
    if (x.size() < 2 * kLanes) return last(x);
    Lanes lanes = x.template head<kLanes>();
    Index at = kLanes;
    for (; at + kLanes <= x.size(); at += kLanes)
        Op::each(lanes, x.template segment<kLanes>(at), x);
    const auto some = last(lanes);
    return at == x.size() ? some : Op::both(some, last(x.tail(x.size() - at)));
}

struct Largest {
    static constexpr bool kOrders = true;
    template <class X, class Y>
    static void each(Y &into, const X &x, const auto &) { into = into.template max<kNaN>(x); }
    template <class X>
    static auto whole(const X &x, const X &) {
        return in_lanes<Largest>(x, [](const auto &part) { return part.template maxCoeff<kNaN>(); });
    }
    template <class W>
    static W both(W a, W b) { return a != a || a > b ? a : b; }
};
struct Smallest {
    static constexpr bool kOrders = true;
    template <class X, class Y>
    static void each(Y &into, const X &x, const auto &) { into = into.template min<kNaN>(x); }
    template <class X>
    static auto whole(const X &x, const X &) {
        return in_lanes<Smallest>(x, [](const auto &part) { return part.template minCoeff<kNaN>(); });
    }
    template <class W>
    static W both(W a, W b) { return a != a || a < b ? a : b; }
};

// Integers are added and multiplied as unsigned: they wrap.
template <class Op, class A>
using Ring = std::conditional_t<std::is_integral_v<A> && !Op::kOrders, std::uint64_t, A>;

template <class A>
class Reduction final : public Step {
    using W = Wide<A>;

public:
    Reduction(Kind kind, const Element<A, W> &element, W least, W most, Index src, Index dst,
              const std::vector<Box> &kept, const std::vector<Box> &reduced,
              const std::vector<Box> &pads)
        : Step("reduce"), kind_(kind), element_(element), least_(least), most_(most) {
        add_slot("src", VTENSOR_READ, src, element.bytes);
        add_slot("dst", VTENSOR_WRITE, dst, element.bytes);
        Index last = 0;
        for (const Box &box : reduced) {
            last = std::max(last, reach(box.shape, box.from_strides, box.from));
            if (product(box.shape) > 0) reduced_.emplace_back(box);
        }
        for (const Box &box : kept) {
            const Index end = plus(reach(box.shape, box.from_strides, box.from), last);
            demand(last == 0 || end - 1 <= src, "an element outside of src is read");
            demand(reach(box.shape, box.to_strides, box.to) <= dst, "dst is written outside");
            if (product(box.shape) > 0) kept_.emplace_back(box);
        }
        for (const Box &box : pads)
            if (product(box.shape) > 0) pads_.push_back(arranged(box, 0, dst));
        for (const Area &area : reduced_) elements_ = plus(elements_, area.count);
        arrange();
    }

private:
    // Neighbouring results, and the offset of their sources.
    struct Piece {
        Index from, to, count;
        const Axis *along;
    };

    // Chooses rows if reduced elements are closer in memory than kept ones, else strips of results.
    void arrange() {
        const auto inner = [](const std::vector<Area> &areas) {
            return areas.empty() || areas[0].axes.empty() ? Axis{1, kTile * kTile, 0}
                                                          : areas[0].axes.back();
        };
        const Axis kept = inner(kept_), reduced = inner(reduced_);
        const bool short_rows = reduced.size < kShortRow && kept.size >= kShortRow;
        rows_ = kept.size == 1 || (reduced.from < kept.from && !short_rows);
        for (Area &area : kept_) {
            strips_.push_back(rows_ ? Axis{1, 0, 0} : area.take_inner());
            pieces_ = plus(pieces_, times(area.count, across(strips_.back())));
            results_ = plus(results_, times(area.count, strips_.back().size));
        }
        for (Area &area : reduced_) {
            runs_.push_back(rows_ ? area.take_inner() : Axis{1, 0, 0});
            chunks_ = plus(chunks_, times(area.count, across(runs_.back())));
        }
    }

    static Index across(const Axis &axis) { return (axis.size + kTile - 1) / kTile; }

    void run(void *const *slots) const override {
        const Index work = times(results_, std::max<Index>(elements_, 1));
        const Index threads = work < kWorthATeam ? 1 : omp_get_max_threads();
        const bool split = pieces_ < threads && chunks_ >= 2 * threads;
        parallel(split ? 1 : pieces_, split ? 0 : work, [&](Index begin, Index end) {
            each_piece(split ? 0 : begin, split ? pieces_ : end,
                       [&](const Piece &piece) { reduce(slots, piece, split ? threads : 1); });
        });
        for (const Box &box : pads_) move(box, element_.bytes, nullptr, slots[1]);
    }

    template <class Body>
    void each_piece(Index begin, Index end, const Body &body) const {
        for (std::size_t k = 0; k < kept_.size(); ++k) {
            const Axis &strip = strips_[k];
            const Index many = across(strip), all = kept_[k].count * many;
            if (begin < std::min(end, all)) {
                Walk at(kept_[k], begin / many);
                for (Index i = begin; i < std::min(end, all); ++i) {
                    const Index first = i % many * kTile;
                    body(Piece{at.from + first * strip.from, at.to + first * strip.to,
                               std::min(kTile, strip.size - first), &strip});
                    if (first / kTile == many - 1) at.next();
                }
            }
            begin = std::max<Index>(begin - all, 0);
            end -= all;
            if (end <= 0) return;
        }
    }

    void reduce(void *const *slots, const Piece &piece, Index threads) const {
        alignas(64) std::array<W, kTile> total;
        alignas(64) std::array<A, kTile> shift;
        std::array<bool, kTile> none;
        W *all = total.data();
        const Index n = piece.count;
        const auto fold = [&]<class Op>(Op, W nothing) {
            std::fill_n(all, n, nothing);
            divided<Op>(slots[0], piece, threads, nothing, shift.data(), all);
        };
        const auto finish = [&](auto function) {
            for (Index i = 0; i < n; ++i) all[i] = static_cast<W>(function(all[i]));
        };
        switch (kind_) {
        case Kind::max: fold(Largest(), least_); break;
        case Kind::min: fold(Smallest(), most_); break;
        case Kind::prod: fold(Multiply(), W(1)); break;
        case Kind::l1: fold(Add<Magnitude>(), W(0)); break;
        case Kind::sum_square: fold(Add<Square>(), W(0)); break;
        case Kind::l2:
            fold(Add<Square>(), W(0));
            finish([](W value) { return std::sqrt(value); });
            break;
        case Kind::mean:
            fold(Add<Same>(), W(0));
            // The mean of no elements is 0 / 0; for integers it is 0.
            finish([&](W value) {
                const Index least = std::is_integral_v<W> ? 1 : 0;
                return value / static_cast<W>(std::max(elements_, least));
            });
            break;
        case Kind::log_sum_exp:
            if constexpr (std::is_floating_point_v<A>) {
                fold(Largest(), least_);
                for (Index i = 0; i < n; ++i) {
                    none[i] = all[i] == -std::numeric_limits<W>::infinity();
                    shift[i] = std::isfinite(all[i]) ? static_cast<A>(all[i]) : A(0);
                }
                fold(Add<Power>(), W(0));  // Eigen's exp of minus infinity is not always 0
                for (Index i = 0; i < n; ++i)
                    all[i] = none[i] ? -std::numeric_limits<W>::infinity()
                                     : std::log(all[i]) + shift[i];
            }
            break;
        case Kind::log_sum:
            fold(Add<Same>(), W(0));
            finish([](W value) { return std::log(value); });
            break;
        case Kind::sum: fold(Add<Same>(), W(0)); break;
        }
        element_.store(slots[1], piece.to, piece.along->to, n, all);
    }

    // Folds on several threads: each takes a part of the reduced elements.
    template <class Op>
    void divided(const void *src, const Piece &piece, Index threads, W nothing, const A *shift,
                 W *total) const {
        if (threads <= 1) return fold<Op>(src, piece, 0, chunks_, nothing, shift, total);
        std::vector<W> parts(static_cast<std::size_t>(threads * piece.count), nothing);
        parallel(threads, kWorthATeam, [&](Index begin, Index end) {
            for (Index part = begin; part < end; ++part)
                fold<Op>(src, piece, chunks_ * part / threads, chunks_ * (part + 1) / threads,
                         nothing, shift, parts.data() + part * piece.count);
        });
        for (Index i = 0; i < threads * piece.count; ++i) {
            W &into = total[i % piece.count];
            into = both<Op>(into, parts[static_cast<std::size_t>(i)]);
        }
    }

    template <class Op>
    static W both(W a, W b) {
        using R = Ring<Op, W>;
        return static_cast<W>(Op::both(static_cast<R>(a), static_cast<R>(b)));
    }

    // Adds chunks begin .. end of the reduced elements to the totals of a piece.
    template <class Op>
    void fold(const void *src, const Piece &piece, Index begin, Index end, W nothing,
              const A *shift, W *total) const {
        using R = Ring<Op, A>;
        alignas(64) std::array<A, kTile> read, sum;
        const Index n = piece.count;
        const Values<R> from(reinterpret_cast<const R *>(shift), n);
        Index deep = 0;
        Tile<R> sums(reinterpret_cast<R *>(sum.data()), n);
        const auto flush = [&] {
            for (Index i = 0; deep > 0 && i < n; ++i)
                total[i] = both<Op>(total[i], static_cast<W>(sum[i]));
            deep = 0;
        };
        each_chunk(begin, end, [&](Index offset, Index count, Index step) {
            if (rows_) {
                const A *x = element_.load(src, piece.from + offset, step, count, read.data());
                *total = both<Op>(*total, row<Op>(x, count, shift));
                return;
            }
            const A *x =
                element_.load(src, piece.from + offset, piece.along->from, n, read.data());
            if (deep == 0) std::fill_n(sum.data(), n, static_cast<A>(nothing));
            Op::each(sums, Values<R>(reinterpret_cast<const R *>(x), n), from);
            if (++deep == kDeep) flush();
        });
        flush();
    }

    template <class Op>
    static W row(const A *x, Index count, const A *shift) {
        using R = Ring<Op, A>;
        const Values<R> values(reinterpret_cast<const R *>(x), count);
        if constexpr (std::is_same_v<Op, Add<Power>>) {
            return static_cast<W>((values - *shift).exp().sum());
        } else {
            return static_cast<W>(Op::whole(values, values));
        }
    }

    template <class Body>
    void each_chunk(Index begin, Index end, const Body &body) const {
        for (std::size_t k = 0; k < reduced_.size() && end > 0; ++k) {
            const Axis &run = runs_[k];
            const Index many = across(run), all = reduced_[k].count * many;
            if (begin < std::min(end, all)) {
                Walk at(reduced_[k], begin / many);
                for (Index i = begin; i < std::min(end, all); ++i) {
                    const Index first = i % many * kTile;
                    body(at.from + first * run.from, std::min(kTile, run.size - first), run.from);
                    if (first / kTile == many - 1) at.next();
                }
            }
            begin = std::max<Index>(begin - all, 0);
            end -= all;
        }
    }

    Kind kind_;
    Element<A, W> element_;
    W least_, most_;
    std::vector<Area> kept_, reduced_;
    std::vector<Axis> strips_, runs_;
    std::vector<Box> pads_;
    Index elements_ = 0, pieces_ = 0, chunks_ = 0, results_ = 0;
    bool rows_ = false;
};

const std::array kFloats{element<float, float, double>("f32"),
                         element<Eigen::half, float, double>("f16"),
                         element<Eigen::bfloat16, float, double>("bf16")};
const std::array kDoubles{element<double, double, double>("f64")};

struct Integer {
    Element<Index, Index> element;
    Index least, most;
};
template <class T>
Integer integer(const char *name) {
    using Limits = std::numeric_limits<T>;
    return {element<T, Index, Index>(name), Limits::min(), Limits::max()};
}
const std::array kIntegers{integer<std::int64_t>("s64"), integer<std::int32_t>("s32"),
                           integer<std::int8_t>("s8"), integer<std::uint8_t>("u8"),
                           integer<bool>("bool")};

}  // namespace

Step *reduction(const std::string &kind, const std::string &type, Index src, Index dst,
                const std::vector<Box> &kept, const std::vector<Box> &reduced,
                const std::vector<Box> &pads) {
    const auto found = std::ranges::find(kKinds, kind);
    demand(found != kKinds.end(), "there is no such reduction");
    const auto which = static_cast<Kind>(found - kKinds.begin());
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const auto &one : kFloats)
        if (type == one.name)
            return new Reduction<float>(which, one, -kInfinity, kInfinity, src, dst, kept,
                                        reduced, pads);
    for (const auto &one : kDoubles)
        if (type == one.name)
            return new Reduction<double>(which, one, -kInfinity, kInfinity, src, dst, kept,
                                         reduced, pads);
    const bool roots =
        which == Kind::l2 || which == Kind::log_sum || which == Kind::log_sum_exp;
    for (const Integer &one : kIntegers)
        if (type == one.element.name && !roots)
            return new Reduction<Index>(which, one.element, one.least, one.most, src, dst, kept,
                                        reduced, pads);
    refuse("no " + kind + " of " + type);
}

}  // namespace vtensor::eigen
