// native/eigen/trees.cpp: ensembles of decision trees, by walking several trees or rows at once.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "check.h"
#include "parallel.h"
#include "trees.h"

namespace vtensor::eigen {

namespace {

// Walks that go on at once, so that the latency of loads overlaps.
constexpr Index kLanes = 8;
// Rows that are walked through one tree before the next tree: their sums stay in the cache.
constexpr Index kBlock = 64;

// How a node compares a feature with its threshold; the numbers of ops/_trees.py.
enum Mode : std::int32_t { kLessOrEqual, kLess, kGreaterOrEqual, kGreater, kEqual, kNotEqual };

// A node as it is stored: 16 * feature + 2 * mode + whether NaN goes to the first child, the
// children, the threshold. A leaf has -1, its first vote and the number of its votes.
template <class Number>
struct Node {
    std::int32_t word, first, second;
    Number threshold;
};

// Words of a stored node, which has no gaps.
template <class Number>
constexpr Index kWords = 3 + static_cast<Index>(sizeof(Number) / sizeof(std::int32_t));

template <class Number>
Node<Number> node_at(const std::int32_t *nodes, Index at) {
    const std::int32_t *words = nodes + at * kWords<Number>;
    Node<Number> node{words[0], words[1], words[2], {}};
    std::memcpy(&node.threshold, words + 3, sizeof(Number));
    return node;
}

template <class Number>
bool goes_first(const Node<Number> &node, Number value) {
    if ((node.word & 1) != 0 && value != value) return true;
    switch (node.word >> 1 & 7) {
        case kLessOrEqual: return value <= node.threshold;
        case kLess: return value < node.threshold;
        case kGreaterOrEqual: return value >= node.threshold;
        case kGreater: return value > node.threshold;
        case kEqual: return value == node.threshold;
        default: return value != node.threshold;
    }
}

[[noreturn]] void broken() { throw BadInput("the nodes of a tree do not fit each other"); }

// The score of a target, and whether a vote or a base score has contributed to it.
template <class Number>
struct Score {
    Number value;
    bool has;
};

template <class Number>
class Walker : public Step {
protected:
    Walker(const char *name, const Forest &forest) : Step(name), forest_(forest) {
        const Forest &f = forest_;
        demand(f.targets >= 0 && f.trees >= 0 && f.nodes >= 0 && f.votes >= 0,
               "a size is negative");
        demand(f.aggregate == "SUM" || f.aggregate == "AVERAGE" || f.aggregate == "MIN" ||
                   f.aggregate == "MAX",
               "no such aggregate");
        kind_ = f.aggregate == "MIN" ? Kind::kMin : f.aggregate == "MAX" ? Kind::kMax : Kind::kSum;
        this->add_slot("x", VTENSOR_READ, product({f.rows, f.features}), sizeof(Number));
        this->add_slot("nodes", VTENSOR_READ, times(f.nodes, kWords<Number>),
                       sizeof(std::int32_t));
        this->add_slot("roots", VTENSOR_READ, f.trees, sizeof(std::int32_t));
        this->add_slot("targets", VTENSOR_READ, f.votes, sizeof(std::int32_t));
        this->add_slot("weights", VTENSOR_READ, f.votes, sizeof(Number));
    }

    // Calls body(row, scores) for each row of x.
    template <class Body>
    void each_row(void *const *slots, const Body &body) const {
        const Forest &f = forest_;
        const auto *x = static_cast<const Number *>(slots[0]);
        const Index blocks = (f.rows + kBlock - 1) / kBlock;
        // A tree is about as deep as the logarithm of its nodes; 8 operations a level.
        const Index work = times(f.rows, times(f.trees, 64));
        const Index parts = blocks > 1 ? blocks : f.rows;
        const Index many = blocks > 1 ? kBlock : 1;
        parallel(parts, work, [&](Index begin, Index end) {
            const Index first = begin * many, last = std::min(end * many, f.rows);
            const auto room =
                std::make_unique<Score<Number>[]>(std::min(kBlock, last - first) * f.targets);
            for (Index row = first; row < last; row += kBlock) {
                const Index count = std::min(kBlock, last - row);
                std::fill_n(room.get(), count * f.targets, Score<Number>{0, false});
                if (f.plain) {
                    add_votes<true>(slots, x + row * f.features, count, room.get());
                } else {
                    add_votes<false>(slots, x + row * f.features, count, room.get());
                }
                for (Index at = 0; at < count; ++at) body(row + at, room.get() + at * f.targets);
            }
        });
    }

    Forest forest_;

private:
    enum class Kind { kSum, kMin, kMax };

    template <bool kPlain>
    void add_votes(void *const *slots, const Number *x, Index count, Score<Number> *scores) const {
        const Forest &f = forest_;
        const auto *roots = static_cast<const std::int32_t *>(slots[2]);
        std::array<const Number *, kLanes> rows{};
        std::array<Index, kLanes> at{};
        Index row = 0;
        // Full groups of rows: one tree after another for all groups.
        const Index grouped = count / kLanes * kLanes;
        for (Index tree = 0; tree < f.trees && grouped > 0; ++tree) {
            for (row = 0; row < grouped; row += kLanes) {
                for (Index lane = 0; lane < kLanes; ++lane) {
                    rows[lane] = x + (row + lane) * f.features;
                    at[lane] = roots[tree];
                }
                walk<kPlain>(slots, rows, at, kLanes);
                for (Index lane = 0; lane < kLanes; ++lane)
                    vote(slots, at[lane], scores + (row + lane) * f.targets);
            }
        }
        // The rows that are left: several trees at once.
        for (row = grouped; row < count; ++row) {
            rows.fill(x + row * f.features);
            for (Index tree = 0; tree < f.trees; tree += kLanes) {
                const Index lanes = std::min(kLanes, f.trees - tree);
                std::copy_n(roots + tree, lanes, at.begin());
                walk<kPlain>(slots, rows, at, lanes);
                for (Index lane = 0; lane < lanes; ++lane)
                    vote(slots, at[lane], scores + row * f.targets);
            }
        }
    }

    // Moves each of the first `lanes` places to a leaf. Children come after their parents, which is
    // checked at each step, so a walk ends.
    template <bool kPlain>
    void walk(void *const *slots, const std::array<const Number *, kLanes> &rows,
              std::array<Index, kLanes> &at, Index lanes) const {
        const auto *nodes = static_cast<const std::int32_t *>(slots[1]);
        const Index count = forest_.nodes, features = forest_.features;
        for (Index lane = 0; lane < lanes; ++lane)
            if (at[lane] < 0 || at[lane] >= count) broken();
        for (bool moves = true; moves;) {
            moves = false;
            for (Index lane = 0; lane < lanes; ++lane) {
                const Node<Number> node = node_at<Number>(nodes, at[lane]);
                if (node.word < 0) continue;
                const Index feature = node.word >> 4;
                if (feature >= features) [[unlikely]]
                    broken();
                const Number value = rows[lane][feature];
                const bool is_first = kPlain ? value <= node.threshold : goes_first(node, value);
                const Index next = is_first ? node.first : node.second;
                if (next <= at[lane] || next >= count) [[unlikely]]
                    broken();
                at[lane] = next;
                moves = true;
            }
        }
    }

    void vote(void *const *slots, Index leaf, Score<Number> *scores) const {
        const auto *targets = static_cast<const std::int32_t *>(slots[3]);
        const auto *weights = static_cast<const Number *>(slots[4]);
        const Node<Number> node =
            node_at<Number>(static_cast<const std::int32_t *>(slots[1]), leaf);
        const Index first = node.first, many = node.second;
        if (first < 0 || many < 0 || first + many > forest_.votes) [[unlikely]]
            broken();
        for (Index at = first; at < first + many; ++at) {
            const Index target = targets[at];
            if (target < 0 || target >= forest_.targets) [[unlikely]]
                broken();
            Score<Number> &score = scores[target];
            const Number weight = weights[at];
            if (kind_ == Kind::kSum || !score.has) {
                score.value += weight;
            } else {
                score.value = kind_ == Kind::kMin ? std::min(score.value, weight)
                                                  : std::max(score.value, weight);
            }
            score.has = true;
        }
    }

    Kind kind_ = Kind::kSum;
};

template <class Number, class Result>
class Regressor final : public Walker<Number> {
public:
    explicit Regressor(const Forest &forest) : Walker<Number>("forest", forest) {
        this->add_slot("base", VTENSOR_READ, forest.targets, sizeof(Number));
        this->add_slot("dst", VTENSOR_WRITE, product({forest.rows, forest.targets}),
                       sizeof(Result));
    }

private:
    void run(void *const *slots) const override {
        const Forest &f = this->forest_;
        const auto *base = static_cast<const Number *>(slots[5]);
        auto *dst = static_cast<Result *>(slots[6]);
        const auto many = static_cast<Number>(f.aggregate == "AVERAGE" ? std::max<Index>(f.trees, 1) : 1);
        this->each_row(slots, [&](Index row, const Score<Number> *scores) {
            for (Index at = 0; at < f.targets; ++at) {
                const bool has = scores[at].has || f.targets == 1;
                dst[row * f.targets + at] =
                    has ? static_cast<Result>(scores[at].value / many + base[at]) : Result{0};
            }
        });
    }
};

// A classifier with the labels and scores that ONNX Runtime gives.
template <class Number>
class Classifier final : public Walker<Number> {
public:
    Classifier(const Forest &forest, const Classes &classes)
        : Walker<Number>("tree_classifier", forest), classes_(classes) {
        demand(forest.targets >= 1, "there are no classes");
        demand(!classes.binary || forest.targets == 2, "a binary choice is between two classes");
        const Index most = std::max<Index>(forest.targets, 2);
        demand(classes.bases >= 0 && classes.bases <= most, "too many base scores");
        this->add_slot("base", VTENSOR_READ, classes.bases, sizeof(Number));
        this->add_slot("labels", VTENSOR_READ, plus(forest.targets, 2), sizeof(std::int64_t));
        this->add_slot("label", VTENSOR_WRITE, forest.rows, sizeof(std::int64_t));
        this->add_slot("scores", VTENSOR_WRITE, product({forest.rows, forest.targets}));
    }

private:
    void run(void *const *slots) const override {
        const Index targets = this->forest_.targets;
        const auto *base = static_cast<const Number *>(slots[5]);
        const auto *labels = static_cast<const std::int64_t *>(slots[6]);
        auto *label = static_cast<std::int64_t *>(slots[7]);
        float *scores = output(slots, 8);
        this->each_row(slots, [&](Index row, Score<Number> *of) {
            label[row] = labels[targets > 2 ? largest(base, of) : of_two(base, of)];
            for (Index at = 0; at < targets; ++at)
                scores[row * targets + at] = of[at].has ? static_cast<float>(of[at].value) : 0.0F;
        });
    }

    // Adds the base scores, and returns the index of the first class with the largest score.
    Index largest(const Number *base, Score<Number> *of) const {
        const Index targets = this->forest_.targets;
        for (Index at = 0; at < targets && classes_.bases == targets; ++at)
            of[at] = {of[at].value + base[at], true};
        Index found = -1;
        for (Index at = 0; at < targets; ++at)
            if (of[at].has && (found < 0 || of[at].value > of[found].value)) found = at;
        return std::max<Index>(found, 0);
    }

    // Returns the index of the label of one or two classes, and completes their scores.
    Index of_two(const Number *base, Score<Number> *of) const {
        Score<Number> none{0, false};
        Score<Number> &one = of[0], &two = this->forest_.targets == 2 ? of[1] : none;
        if (classes_.bases == 2 && two.has) {
            two.value = base[1] + one.value;
            one.value = -two.value;
        } else if (classes_.bases >= 1) {
            one = {one.value + base[0], one.has || classes_.bases == 2};
        }
        const Number score = two.has ? two.value : one.has ? one.value : Number{0};
        const Number bound = classes_.binary && classes_.positive ? Number{0.5} : Number{0};
        const Index label = score > bound ? 1 : 0;
        if (!two.has && classes_.bases != 2 && this->forest_.targets == 2) {
            two = {one.value, true};
            one = {classes_.complement ? 1 - two.value : -two.value, true};
        }
        return classes_.binary ? label : this->forest_.targets + label;
    }

    Classes classes_;
};

}  // namespace

Step *forest(const std::string &dtype, const std::string &to, const Forest &forest) {
    if (dtype == "f32" && to == "f32") return new Regressor<float, float>(forest);
    if (dtype == "f64" && to == "f32") return new Regressor<double, float>(forest);
    if (dtype == "f64" && to == "f64") return new Regressor<double, double>(forest);
    refuse("no trees on " + dtype + " that give " + to);
}

Step *tree_classifier(const std::string &dtype, const Forest &forest, const Classes &classes) {
    if (dtype == "f32") return new Classifier<float>(forest, classes);
    if (dtype == "f64") return new Classifier<double>(forest, classes);
    refuse("no trees on " + dtype);
}

}  // namespace vtensor::eigen
