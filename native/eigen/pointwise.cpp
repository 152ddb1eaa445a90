// native/eigen/pointwise.cpp: element-wise expressions, a tile at a time.
//
// All instructions run on a tile before the next one is begun, so that values in between stay in
// the first-level cache and memory is passed over once.
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <ranges>

#include "boxes.h"
#include "check.h"
#include "kernels.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

constexpr Index kTile = 512;
// Rows of fewer elements are not worth tiles of their own.
constexpr Index kShortRow = 64;
constexpr std::size_t kMostValues = 32;

using Values = Eigen::Map<const Eigen::ArrayXf>;
using Result = Eigen::Map<Eigen::ArrayXf>;
using Function = void (*)(Values, Values, Result);

struct Named {
    const char *name;
    int operands;
    Function function;
};

constexpr auto kNaN = Eigen::PropagateNaN;

const std::array kFunctions{
    Named{"add", 2, [](Values a, Values b, Result y) { y = a + b; }},
    Named{"sub", 2, [](Values a, Values b, Result y) { y = a - b; }},
    Named{"mul", 2, [](Values a, Values b, Result y) { y = a * b; }},
    Named{"div", 2, [](Values a, Values b, Result y) { y = a / b; }},
    Named{"max", 2, [](Values a, Values b, Result y) { y = a.max<kNaN>(b); }},
    Named{"min", 2, [](Values a, Values b, Result y) { y = a.min<kNaN>(b); }},
    Named{"sqrt", 1, [](Values a, Values, Result y) { y = a.sqrt(); }},
    Named{"exp", 1, [](Values a, Values, Result y) { y = a.exp(); }},
    Named{"abs", 1, [](Values a, Values, Result y) { y = a.abs(); }},
    Named{"neg", 1, [](Values a, Values, Result y) { y = -a; }},
};

const Named &find(const std::string &name) {
    for (const Named &one : kFunctions)
        if (name == one.name) return one;
    refuse("there is no function " + name);
}

// Axes along which every operand goes on as before are one axis; those of extent 1 are none.
void merge(Ints &shape, std::vector<Ints> &strides) {
    Ints sizes;
    std::vector<Ints> steps(strides.size());
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        if (shape[axis] == 1) continue;
        const bool goes_on = !sizes.empty() && std::ranges::all_of(
            std::views::iota(std::size_t{0}, strides.size()), [&](std::size_t k) {
                return steps[k].back() == times(strides[k][axis], shape[axis]);
            });
        if (goes_on) {
            sizes.back() = times(sizes.back(), shape[axis]);
        } else {
            sizes.push_back(shape[axis]);
        }
        for (std::size_t k = 0; k < strides.size(); ++k) {
            if (goes_on) steps[k].pop_back();
            steps[k].push_back(strides[k][axis]);
        }
    }
    shape = sizes;
    strides = steps;
}

Ints dense(const Ints &shape) {
    Ints strides(shape.size(), 1);
    for (std::size_t axis = shape.size(); axis-- > 1;)
        strides[axis - 1] = strides[axis] * shape[axis];
    return strides;
}

class Pointwise final : public Step {
public:
    Pointwise(Ints shape, std::vector<Ints> strides, std::vector<float> constants,
              const std::vector<Instruction> &program, const std::vector<Box> &pads)
        : Step("pointwise"), size_(product(shape)), constants_(std::move(constants)) {
        for (const Ints &row : strides) add_slot("src", VTENSOR_READ, reach(shape, row));
        add_slot("dst", VTENSOR_WRITE, size_);
        const std::size_t first = strides.size() + constants_.size();
        demand(!program.empty(), "a program without instructions");
        demand(first + program.size() <= kMostValues, "a program of too many values");
        for (std::size_t i = 0; i < program.size(); ++i) {
            const Named &named = find(program[i].function);
            const Index right = named.operands == 2 ? program[i].right : program[i].left;
            const auto known = static_cast<Index>(first + i);
            demand(program[i].left >= 0 && program[i].left < known && right >= 0 && right < known,
                   "an instruction on a value that there is not yet");
            code_.push_back({named.function, static_cast<std::size_t>(program[i].left),
                             static_cast<std::size_t>(right)});
        }
        for (const Box &box : pads) {
            demand(box.source < 0, "a pad is filled, not copied");
            if (product(box.shape) > 0) pads_.push_back(arranged(box, 0, size_));
        }
        merge(shape, strides);
        for (const Ints &row : strides) dense_.push_back(row == dense(shape));
        shape_ = std::move(shape);
        strides_ = std::move(strides);
        divide();
    }

private:
    struct Code {
        Function function;
        std::size_t left, right;
    };
    using Tile = std::array<float, kTile>;

    // Tiles lie within rows, which are the last axis unless that is short. They are visited such
    // that what is repeated stays: row by row where an operand is constant along each row, else
    // column by column.
    void divide() {
        const bool short_rows = shape_.empty() || shape_.back() < kShortRow;
        row_ = short_rows ? size_ : shape_.back();
        const auto constant = [&](const Ints &row) { return !short_rows && row.back() == 0; };
        const auto same = [](const Ints &row) {
            return std::all_of(row.begin(), row.end() - 1, [](Index step) { return step == 0; });
        };
        by_rows_ = short_rows || std::ranges::any_of(strides_, constant);
        for (const Ints &row : strides_)
            changes_.push_back(!(by_rows_ ? constant(row) : same(row)));
        changes_.resize(changes_.size() + constants_.size(), false);
        for (const Code &code : code_)
            changes_.push_back(changes_[code.left] || changes_[code.right]);
        changes_.back() = true;  // it is what writes dst
    }

    void run(void *const *slots) const override {
        if (size_ == 0) return;
        const Index tiles = size_ / row_ * across();
        parallel(tiles, size_, [&](Index begin, Index end) { run_tiles(slots, begin, end); });
        for (const Box &box : pads_) move(box, sizeof(float), nullptr, slots[strides_.size()]);
    }

    // Tiles a row.
    Index across() const { return (row_ + kTile - 1) / kTile; }

    void run_tiles(void *const *slots, Index begin, Index end) const {
        const std::size_t operands = strides_.size(), first = operands + constants_.size();
        alignas(64) std::array<Tile, kMostValues> tiles;
        std::array<const float *, kMostValues> values;
        for (std::size_t i = 0; i < first + code_.size(); ++i) values[i] = tiles[i].data();
        for (std::size_t i = 0; i < constants_.size(); ++i)
            tiles[operands + i].fill(constants_[i]);
        float *dst = output(slots, operands);
        const Index together = by_rows_ ? across() : size_ / row_;
        for (Index index = begin; index < end; ++index) {
            const Index outer = index / together, inner = index % together;
            const Index column = (by_rows_ ? inner : outer) * kTile;
            const Index start = (by_rows_ ? outer : inner) * row_ + column;
            const Index n = std::min(kTile, row_ - column);
            const bool fresh = index == begin || inner == 0;
            for (std::size_t k = 0; k < operands; ++k)
                if (fresh || changes_[k])
                    values[k] = load(k, input(slots, k), start, n, tiles[k].data());
            for (std::size_t i = 0; i < code_.size(); ++i) {
                if (!fresh && !changes_[first + i]) continue;
                const auto [function, left, right] = code_[i];
                const bool last = i + 1 == code_.size();
                function(Values(values[left], n), Values(values[right], n),
                         Result(last ? dst + start : tiles[first + i].data(), n));
            }
        }
    }

    // The operand's elements start .. start + n in dst's order: in place, or copied into `tile`.
    const float *load(std::size_t k, const float *src, Index start, Index n, float *tile) const {
        const Ints &strides = strides_[k];
        if (dense_[k]) return src + start;
        const Index inner = shape_.back(), step = strides.back();
        for (Index done = 0; done < n;) {
            Index rest = (start + done) / inner, at = (start + done) % inner;
            const Index count = std::min(n - done, inner - at);
            Index offset = at * step;
            for (std::size_t axis = shape_.size() - 1; axis-- > 0; rest /= shape_[axis])
                offset += rest % shape_[axis] * strides[axis];
            if (step == 1 && count == n) return src + offset;
            if (step == 0) {
                std::fill_n(tile + done, count, src[offset]);
            } else {
                for (Index i = 0; i < count; ++i) tile[done + i] = src[offset + i * step];
            }
            done += count;
        }
        return tile;
    }

    Index size_, row_ = 0;
    bool by_rows_ = true;
    std::vector<float> constants_;
    std::vector<Code> code_;
    Ints shape_;
    std::vector<Ints> strides_;
    std::vector<bool> dense_, changes_;  // changes_: of each value, from one tile to the next
    std::vector<Box> pads_;
};

}  // namespace

Step *pointwise(const Ints &shape, const std::vector<Ints> &strides,
                const std::vector<float> &constants, const std::vector<Instruction> &program,
                const std::vector<Box> &pads) {
    return new Pointwise(shape, strides, constants, program, pads);
}

}  // namespace vtensor::eigen
