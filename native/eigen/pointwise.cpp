// native/eigen/pointwise.cpp: element-wise programs, a tile at a time.
//
// All instructions run on a tile before the next tile begins, so that intermediate values stay in
// the L1 cache and memory is read once. If all that changes is one operand of a byte an element, the
// program runs on the 256 bytes that there are, and each element's result is looked up.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <ranges>
#include <variant>

#include "boxes.h"
#include "check.h"
#include "elements.h"
#include "functions.h"
#include "joined.h"
#include "kernels.h"
#include "parallel.h"

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

namespace vtensor::eigen {

namespace {

constexpr Index kTile = 512;
// Elements below which a row gets no tiles of its own.
constexpr Index kShortRow = 64;
constexpr std::size_t kMostTiles = 48, kMostInstructions = 1024;
// Most operands and constants: MAX_INPUTS in libdesc/eigen/program.py.
constexpr std::size_t kMostGiven = 32;
// Most axes after merging.
constexpr std::size_t kMostAxes = 32;
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
// The number of values of a byte, and from how many elements and instructions on a table of a
// program's results for all of them saves time.
constexpr Index kByteValues = 256, kWorthATable = 4096;
constexpr std::size_t kLongProgram = 6;

// Merges neighbouring axes that are contiguous in every operand; drops axes of size 1.
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

// to[i] = table[src[i]]; a table has an element for each value of a byte.
template <class Element>
void look_up_each(const Element *table, const std::uint8_t *src, Element *to, Index n) {
#pragma GCC unroll 8
    for (Index i = 0; i < n; ++i) to[i] = table[src[i]];
}

#if defined(__AVX512BW__)
// Likewise, with the whole table in registers.
__attribute__((target("avx512vbmi"))) void look_up_64(const std::uint8_t *table,
                                                      const std::uint8_t *src, std::uint8_t *to,
                                                      Index n) {
    const __m512i parts[4] = {_mm512_loadu_si512(table), _mm512_loadu_si512(table + 64),
                              _mm512_loadu_si512(table + 128), _mm512_loadu_si512(table + 192)};
    Index i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i codes = _mm512_loadu_si512(src + i);
        const __m512i low = _mm512_permutex2var_epi8(parts[0], codes, parts[1]);
        const __m512i high = _mm512_permutex2var_epi8(parts[2], codes, parts[3]);
        const __mmask64 from_128 = _mm512_movepi8_mask(codes);
        _mm512_storeu_si512(to + i, _mm512_mask_blend_epi8(from_128, low, high));
    }
    look_up_each(table, src + i, to + i, n - i);
}
#endif

template <class Element>
void look_up_all(const Element *table, const std::uint8_t *src, Element *to, Index n) {
#if defined(__AVX512BW__)
    if constexpr (sizeof(Element) == 1) {
        static const bool vectors = __builtin_cpu_supports("avx512vbmi");
        if (vectors) return look_up_64(table, src, to, n);
    }
#endif
    look_up_each(table, src, to, n);
}

Ints dense(const Ints &shape) {
    Ints strides(shape.size(), 1);
    for (std::size_t axis = shape.size(); axis-- > 1;)
        strides[axis - 1] = strides[axis] * shape[axis];
    return strides;
}

class Pointwise final : public Step {
public:
    Pointwise(Ints shape, std::vector<Ints> strides, const std::vector<std::string> &types,
              const std::vector<Constant> &constants, const std::vector<Instruction> &program,
              const std::vector<Box> &pads, const Ints &pieces)
        : Step(pieces.empty() ? "pointwise" : "joined"), size_(product(shape)) {
        demand(types.size() == strides.size() + 1, "an element type an operand, and dst's");
        for (std::size_t k = 0; k < strides.size(); ++k) {
            types_.push_back(&element_type(types[k]));
            kinds_.push_back(types_[k]->kind);
            const Index most = reach(shape, strides[k]);
            if (k == 0 && !pieces.empty())
                divide_first(pieces);
            else
                add_slot("src", VTENSOR_READ, most, types_[k]->bytes);
        }
        types_.push_back(&element_type(types.back()));
        add_slot("dst", VTENSOR_WRITE, size_, types_.back()->bytes);
        for (const Constant &constant : constants) {
            constants_.push_back({element_type(constant.type).kind, constant.value});
            kinds_.push_back(constants_.back().kind);
        }
        demand(kinds_.size() <= kMostGiven, "a program of too many values");
        read(program);
        for (const Box &box : pads) {
            demand(box.source < 0, "a pad is filled, not copied");
            if (product(box.shape) > 0) pads_.push_back(arranged(box, 0, size_));
        }
        merge(shape, strides);
        demand(shape.size() <= kMostAxes, "operands that go on along too many axes");
        for (const Ints &row : strides) {
            dense_.push_back(row == dense(shape));
            walks_.push_back(walk(shape, row));
        }
        demand(ends_.empty() || dense_[0], "pieces lie otherwise than dst");
        shape_ = std::move(shape);
        strides_ = std::move(strides);
        divide();
        place();
        if (pieces.empty() && size_ >= kWorthATable && program.size() >= kLongProgram)
            plan_table(types, constants, program);
    }

private:
    // The walk through one operand, of which more axes may be merged than of all operands together.
    struct Walk {
        Ints shape, strides;
        Index run = 1;     // elements of the last axis, times its repetitions
        Index period = 0;  // elements after which they repeat; 0 if they do not
    };
    struct Code {
        Kernel3 kernel;
        std::array<std::size_t, kMostArguments> arguments;
    };
    struct Filled {
        Kind kind;
        std::variant<Index, double> value;
    };
    // A tile of values: f32, or 64-bit integers, for which it has room.
    struct alignas(64) Tile {
        std::array<std::byte, kTile * sizeof(std::int64_t)> bytes;
    };

    static Walk walk(Ints shape, const Ints &row) {
        std::vector<Ints> alone{row};
        merge(shape, alone);
        Walk made{std::move(shape), std::move(alone[0])};
        if (made.shape.empty()) return made;
        made.run = made.shape.back();
        const std::size_t rank = made.shape.size();
        if (rank > 1 && made.run < kShortRow && made.strides[rank - 2] == 0) {
            made.period = made.run;
            made.run = times(made.run, made.shape[rank - 2]);
        }
        return made;
    }

    std::size_t operands() const { return strides_.size(); }
    // Returns the slot of an operand, or of dst; each piece has a slot of its own.
    std::size_t slot(std::size_t operand) const {
        return operand + (ends_.empty() || operand == 0 ? 0 : ends_.size() - 1);
    }

    // Divides each row of the first operand into pieces of these sizes.
    void divide_first(const Ints &pieces) {
        for (const Index piece : pieces) {
            demand(piece > 0, "a piece has no elements");
            ends_.push_back(plus(ends_.empty() ? 0 : ends_.back(), piece));
        }
        demand(size_ % ends_.back() == 0, "pieces make no whole rows");
        for (const Index piece : pieces)
            add_slot("src", VTENSOR_READ, times(size_ / ends_.back(), piece), types_[0]->bytes);
    }

    // Checks a program from outside; kinds_ grows by one per instruction.
    void read(const std::vector<Instruction> &program) {
        demand(!program.empty(), "a program without instructions");
        demand(program.size() <= kMostInstructions, "a program of too many instructions");
        for (const Instruction &instruction : program) {
            const Function &named = function(instruction.function);
            demand(instruction.arguments.size() == named.arguments,
                   "a function of another number of values");
            Code code{named.kernel, {}};
            for (std::size_t i = 0; i < named.arguments; ++i) {
                const Index value = instruction.arguments[i];
                demand(value >= 0 && value < static_cast<Index>(kinds_.size()),
                       "an instruction on a value that there is not yet");
                code.arguments[i] = static_cast<std::size_t>(value);
                demand(kinds_[code.arguments[i]] == named.takes[i],
                       "a function of values of another kind");
            }
            for (std::size_t i = named.arguments; i < kMostArguments; ++i)
                code.arguments[i] = code.arguments[0];
            code_.push_back(code);
            kinds_.push_back(named.gives);
        }
        demand(kinds_.back() == types_.back()->kind, "a result of another kind than dst");
    }

    // Divides the elements into tiles, which do not cross rows, in an order that keeps repeated
    // operands loaded: row by row if an operand is constant along the last axis (all short rows
    // then count as one), or if operands repeat a block of elements along the axis before (both
    // axes are a row); else column by column, where as many rows as fit into a tile count as one.
    // Single elements stay loaded in any order; they decide only if no operand repeats its row.
    void divide() {
        const Index last = shape_.empty() ? 1 : std::max<Index>(shape_.back(), 1);
        const auto zero = [](Index step) { return step == 0; };
        const auto single = [&](const Ints &row) { return std::ranges::all_of(row, zero); };
        const auto one_a_row = [&](const Ints &row) { return !single(row) && row.back() == 0; };
        const auto same_rows = [&](const Ints &row) {
            return std::all_of(row.begin(), row.end() - 1, zero);
        };
        const auto one_row = [&](const Ints &row) {
            return !single(row) && row.size() > 1 && same_rows(row);
        };
        const auto constant = [&](const Ints &row) {
            return single(row) || (last >= kShortRow && one_a_row(row));
        };
        const auto block = [](const Ints &row) { return row[row.size() - 2] == 0; };
        const auto any = [&](const auto &kind) { return std::ranges::any_of(strides_, kind); };
        by_rows_ = shape_.empty() || any(one_a_row) || (any(single) && !any(one_row));
        const bool blocks = !by_rows_ && shape_.size() > 2 && last < kShortRow &&
                            kTile % last == 0 && last * shape_[shape_.size() - 2] >= kShortRow &&
                            any(block);
        if (blocks)
            row_ = last * shape_[shape_.size() - 2];
        else if (by_rows_)
            row_ = last < kShortRow ? size_ : last;
        else
            row_ = last * std::max<Index>(kTile / last, 1);
        by_rows_ = by_rows_ || blocks;
        for (const Ints &row : strides_)
            changes_.push_back(!(blocks ? block(row) : by_rows_ ? constant(row) : same_rows(row)));
        changes_.resize(changes_.size() + constants_.size(), false);
        for (const Code &code : code_)
            changes_.push_back(std::ranges::any_of(
                code.arguments, [&](std::size_t value) { return changes_[value]; }));
        changes_.back() = true;  // the last value is written to dst
    }

    // Assigns a tile to each value. A value that changes from tile to tile leaves its tile to
    // others that do, after its last reader.
    void place() {
        const std::size_t first = operands() + constants_.size();
        std::vector<std::size_t> last(kinds_.size(), 0), free;
        for (std::size_t i = 0; i < code_.size(); ++i)
            for (const std::size_t value : code_[i].arguments) last[value] = i;
        for (std::size_t value = 0; value < kinds_.size(); ++value) {
            if (value < operands() && in_place(value)) {
                tiles_.push_back(kNone);
            } else if (value < first || !changes_[value] || free.empty()) {
                tiles_.push_back(tile_count_++);
            } else {
                tiles_.push_back(free.back());
                free.pop_back();
            }
            if (value < first) continue;
            std::vector<std::size_t> ended;
            for (const std::size_t read : code_[value - first].arguments)
                if (last[read] == value - first && changes_[read] && tiles_[read] != kNone &&
                    std::ranges::find(ended, tiles_[read]) == ended.end())
                    ended.push_back(tiles_[read]);
            free.insert(free.end(), ended.begin(), ended.end());
        }
        demand(tile_count_ <= kMostTiles, "a program of too many values at once");
    }

    // Makes a step that computes a table of results, if only one byte changes from element to
    // element: operands are that byte, read once or several times, or single elements.
    void plan_table(const std::vector<std::string> &types, const std::vector<Constant> &constants,
                    const std::vector<Instruction> &program) {
        std::vector<Ints> strides;
        for (std::size_t k = 0; k < operands(); ++k) {
            const bool single = std::ranges::all_of(strides_[k], [](Index s) { return s == 0; });
            const bool byte = !single && dense_[k] && types_[k]->bytes == 1;
            if (byte) bytes_.push_back(k);
            if ((!single && !byte) || (byte && types_[k] != types_[bytes_[0]])) return;
            strides.push_back({byte ? 1 : 0});
        }
        if (bytes_.empty()) return;
        table_ = std::make_unique<Pointwise>(Ints{kByteValues}, strides, types, constants, program,
                                             std::vector<Box>(), Ints());
    }

    bool reads_one_byte(void *const *slots) const {
        return table_ && std::ranges::all_of(bytes_, [&](std::size_t k) {
            return slots[k] == slots[bytes_[0]];
        });
    }

    // Computes the results for all values of the byte, then looks up those of the elements.
    void look_up(void *const *slots) const {
        std::array<std::uint8_t, kByteValues> codes;
        std::iota(codes.begin(), codes.end(), std::uint8_t{0});
        alignas(64) std::array<std::byte, kByteValues * sizeof(std::int64_t)> results;
        std::vector<void *> places(slots, slots + operands());
        for (const std::size_t k : bytes_) places[k] = codes.data();
        places.push_back(results.data());
        table_->run(places.data());
        const auto *src = static_cast<const std::uint8_t *>(slots[bytes_[0]]);
        void *dst = slots[operands()];
        with_bytes(types_.back()->bytes, [&](auto type) {
            using Element = typename decltype(type)::type;
            const auto *table = reinterpret_cast<const Element *>(results.data());
            parallel(size_, size_, [&](Index begin, Index end) {
                auto *to = static_cast<Element *>(dst);
                look_up_all(table, src + begin, to + begin, end - begin);
            });
        });
    }

    static bool as_it_is(const ElementType &type) { return type.bytes == value_bytes(type.kind); }
    bool in_place(std::size_t operand) const {
        const bool in_pieces = operand == 0 && !ends_.empty();
        return dense_[operand] && !in_pieces && as_it_is(*types_[operand]);
    }

    void run(void *const *slots) const override {
        if (size_ == 0) return;
        const Index tiles = rows() * across();
        const Index work = times(size_, static_cast<Index>(code_.size()));
        if (reads_one_byte(slots))
            look_up(slots);
        else
            parallel(tiles, work, [&](Index begin, Index end) { run_tiles(slots, begin, end); });
        for (const Box &box : pads_)
            move(box, types_.back()->bytes, nullptr, slots[slot(operands())]);
    }

    // The number of rows; the last one may be shorter.
    Index rows() const { return (size_ + row_ - 1) / row_; }
    // The number of tiles per row.
    Index across() const { return (row_ + kTile - 1) / kTile; }

    void run_tiles(void *const *slots, Index begin, Index end) const {
        const std::size_t first = operands() + constants_.size();
        std::array<Tile, kMostTiles> tiles;
        std::vector<const void *> values(kinds_.size());
        for (std::size_t i = 0; i < values.size(); ++i)
            if (tiles_[i] != kNone) values[i] = tiles[tiles_[i]].bytes.data();
        const Index longest = std::min(kTile, row_);
        for (std::size_t i = 0; i < constants_.size(); ++i)
            fill(constants_[i], tiles[tiles_[operands() + i]].bytes.data(), longest);
        const ElementType &type = *types_.back();
        auto *dst = static_cast<std::byte *>(slots[slot(operands())]);
        const Index together = by_rows_ ? across() : rows();
        for (Index index = begin; index < end; ++index) {
            const Index outer = index / together, inner = index % together;
            const Index column = (by_rows_ ? inner : outer) * kTile;
            const Index start = (by_rows_ ? outer : inner) * row_ + column;
            const Index n = std::min({kTile, row_ - column, size_ - start});
            const bool fresh = index == begin || inner == 0;
            for (std::size_t k = 0; k < operands(); ++k)
                if (fresh || changes_[k])
                    values[k] = load(k, slots, start, n, tiles.data());
            void *target = dst + start * type.bytes;
            for (std::size_t i = 0; i < code_.size(); ++i) {
                if (!fresh && !changes_[first + i]) continue;
                const auto &[kernel, from] = code_[i];
                const bool last = i + 1 == code_.size();
                void *to = last && as_it_is(type) ? target
                                                  : tiles[tiles_[first + i]].bytes.data();
                kernel(values[from[0]], values[from[1]], values[from[2]], to, n);
            }
            if (!as_it_is(type)) type.narrow(values.back(), target, n);
        }
    }

    static void fill(const Filled &constant, void *tile, Index n) {
        std::visit(
            [&](auto value) {
                if (constant.kind == Kind::kFloat)
                    std::fill_n(static_cast<float *>(tile), n, static_cast<float>(value));
                else
                    std::fill_n(static_cast<Index *>(tile), n, static_cast<Index>(value));
            },
            constant.value);
    }

    // Returns the operand's elements start .. start + n in dst's order: in place, or converted into
    // its tile.
    const void *load(std::size_t k, void *const *slots, Index start, Index n, Tile *tiles) const {
        const ElementType &type = *types_[k];
        const auto *from = static_cast<const std::byte *>(slots[slot(k)]);
        if (tiles_[k] == kNone) return from + start * type.bytes;
        std::byte *tile = tiles[tiles_[k]].bytes.data();
        if (k == 0 && !ends_.empty()) return load_pieces(slots, start, n, tile);
        if (dense_[k]) {
            type.widen(from + start * type.bytes, 1, tile, n);
            return tile;
        }
        const Walk &walk = walks_[k];
        const Index step = walk.strides.back();
        const std::size_t outer = walk.shape.size() - (walk.period == 0 ? 1 : 2);
        std::array<Index, kMostAxes> digits;
        Index rest = start / walk.run, at = start % walk.run, offset = 0;
        for (std::size_t axis = outer; axis-- > 0; rest /= walk.shape[axis]) {
            digits[axis] = rest % walk.shape[axis];
            offset += digits[axis] * walk.strides[axis];
        }
        for (Index done = 0; done < n;) {
            const Index count = std::min(n - done, walk.run - at);
            const std::byte *place = from + offset * type.bytes;
            std::byte *to = tile + done * value_bytes(type.kind);
            if (walk.period != 0) {
                repeat(type, place, step, at % walk.period, walk.period, to, count);
            } else {
                place += at * step * type.bytes;
                if (step == 1 && count == n && as_it_is(type)) return place;
                type.widen(place, step, to, count);
            }
            done += count;
            at = 0;
            for (std::size_t axis = outer; axis-- > 0;) {
                offset += walk.strides[axis];
                if (++digits[axis] < walk.shape[axis]) break;
                offset -= digits[axis] * walk.strides[axis];
                digits[axis] = 0;
            }
        }
        return tile;
    }

    // Fills `to` with elements that repeat with a period, from element `at` of the period on.
    static void repeat(const ElementType &type, const std::byte *place, Index step, Index at,
                       Index period, std::byte *to, Index count) {
        const auto bytes = static_cast<Index>(value_bytes(type.kind));
        const Index first = std::min(count, period - at), second = std::min(count, period) - first;
        type.widen(place + at * step * type.bytes, step, to, first);
        if (second > 0) type.widen(place, step, to + first * bytes, second);
        for (Index have = first + second; have < count;) {  // whole periods, doubling
            const Index more = std::min(have - have % period, count - have);
            std::copy_n(to + have % period * bytes, more * bytes, to + have * bytes);
            have += more;
        }
    }

    // Loads the first operand likewise if it comes in pieces.
    const void *load_pieces(void *const *slots, Index start, Index n, std::byte *tile) const {
        const ElementType &type = *types_[0];
        Index row = start / ends_.back(), at = start % ends_.back();
        const auto found = std::ranges::upper_bound(ends_, at);
        auto piece = static_cast<std::size_t>(found - ends_.begin());
        for (Index done = 0; done < n;) {
            const Index begin = piece == 0 ? 0 : ends_[piece - 1], end = ends_[piece];
            const Index count = std::min(n - done, end - at);
            const Index offset = row * (end - begin) + at - begin;
            const auto *from = static_cast<const std::byte *>(slots[piece]) + offset * type.bytes;
            if (count == n && as_it_is(type)) return from;
            type.widen(from, 1, tile + done * value_bytes(type.kind), count);
            done += count;
            at += count;
            if (++piece < ends_.size()) continue;
            piece = 0;
            at = 0;
            ++row;
        }
        return tile;
    }

    Index size_, row_ = 0;
    bool by_rows_ = true;
    std::vector<const ElementType *> types_;  // the operands', then dst's
    std::vector<Kind> kinds_;                 // of each value
    std::vector<Filled> constants_;
    std::vector<Code> code_;
    Ints shape_;
    std::vector<Ints> strides_;
    std::vector<Walk> walks_;  // of each operand
    Ints ends_;  // ends of the first operand's pieces in a row; empty if it is whole
    std::vector<bool> dense_, changes_;  // changes_: whether a value changes from tile to tile
    std::vector<std::size_t> tiles_;     // of each value
    std::size_t tile_count_ = 0;
    std::vector<Box> pads_;
    std::vector<std::size_t> bytes_;    // the operands that are the byte of table_
    std::unique_ptr<Pointwise> table_;  // computes results for all values of a byte; or none
};

}  // namespace

Step *pointwise(const Ints &shape, const std::vector<Ints> &strides,
                const std::vector<std::string> &types, const std::vector<Constant> &constants,
                const std::vector<Instruction> &program, const std::vector<Box> &pads) {
    return new Pointwise(shape, strides, types, constants, program, pads, {});
}

Step *joined(const Ints &shape, const std::vector<Ints> &strides,
             const std::vector<std::string> &types, const std::vector<Constant> &constants,
             const std::vector<Instruction> &program, const std::vector<Box> &pads,
             const Ints &pieces) {
    demand(!strides.empty() && !pieces.empty(), "nothing is joined");
    return new Pointwise(shape, strides, types, constants, program, pads, pieces);
}

}  // namespace vtensor::eigen
