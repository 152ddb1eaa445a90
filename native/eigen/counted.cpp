// native/eigen/counted.cpp: kernels that find as much as the data decide. Each writes what it finds
// at the begin of a slot for the most that it can find, zeros after it, and the number found.
#include "counted.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <type_traits>
#include <vector>

#include "elements.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

constexpr std::uint32_t kNumber = sizeof(Index);

Index *numbers(void *const *slots, std::size_t slot) { return static_cast<Index *>(slots[slot]); }

template <class Element>
class NonZero final : public Step {
public:
    explicit NonZero(const Ints &shape) : Step("nonzero"), shape_(shape), size_(product(shape)) {
        const auto rank = static_cast<Index>(shape.size());
        add_slot("src", VTENSOR_READ, size_, sizeof(Element));
        add_slot("indices", VTENSOR_WRITE, times(rank, size_), kNumber);
        add_slot("count", VTENSOR_WRITE, 1, kNumber);
    }

private:
    // A row along the last axis has the other indices in common.
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        Index *const indices = numbers(slots, 1);
        const auto rank = static_cast<Index>(shape_.size());
        const Index width = rank == 0 ? 1 : shape_[rank - 1];
        Index found = 0;
        for (Index begin = 0, row = 0; begin < size_; begin += width, ++row) {
            const Index before = found;
            for (Index i = 0; i < width; ++i) {
                if (rank > 0) indices[(rank - 1) * size_ + found] = i;
                found += src[begin + i] == Element(0) ? 0 : 1;
            }
            for (Index axis = rank - 1, rest = row; axis-- > 0; rest /= shape_[axis])
                std::fill(indices + axis * size_ + before, indices + axis * size_ + found,
                          rest % shape_[axis]);
        }
        for (Index axis = 0; axis < rank; ++axis)
            std::fill(indices + axis * size_ + found, indices + (axis + 1) * size_, 0);
        numbers(slots, 2)[0] = found;
    }

    Ints shape_;
    Index size_;
};

// Slices along the middle axis of (outer length inner).
struct Slices {
    Index outer, length, inner;

    // Copies slice `from` of src to slice `to` of dst.
    template <class Element>
    void copy(const Element *src, Index from, Element *dst, Index to) const {
        for (Index o = 0; o < outer; ++o)
            std::copy_n(src + (o * length + from) * inner, inner, dst + (o * length + to) * inner);
    }

    template <class Element>
    void zero_from(Element *dst, Index begin) const {
        for (Index o = 0; o < outer; ++o)
            std::fill_n(dst + (o * length + begin) * inner, (length - begin) * inner, Element(0));
    }
};

template <class Element>
class Select final : public Step {
public:
    Select(const Slices &slices, Index conditions)
        : Step("select"), slices_(slices), conditions_(std::min(conditions, slices.length)) {
        const Index size = product({slices.outer, slices.length, slices.inner});
        add_slot("src", VTENSOR_READ, size, sizeof(Element));
        add_slot("condition", VTENSOR_READ, conditions, 1);
        add_slot("dst", VTENSOR_WRITE, size, sizeof(Element));
        add_slot("count", VTENSOR_WRITE, 1, kNumber);
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        const auto *condition = static_cast<const std::uint8_t *>(slots[1]);
        auto *dst = static_cast<Element *>(slots[2]);
        Index found = 0;
        for (Index i = 0; i < conditions_; ++i)
            if (condition[i] != 0) slices_.copy(src, i, dst, found++);
        slices_.zero_from(dst, found);
        numbers(slots, 3)[0] = found;
    }

    Slices slices_;
    Index conditions_;
};

template <std::size_t>
struct BitsOf;
template <>
struct BitsOf<1> : std::type_identity<std::uint8_t> {};
template <>
struct BitsOf<2> : std::type_identity<std::uint16_t> {};
template <>
struct BitsOf<4> : std::type_identity<std::uint32_t> {};
template <>
struct BitsOf<8> : std::type_identity<std::uint64_t> {};

// Returns a number that is smaller for smaller elements and equal for equal ones; for NaN, which
// comes last, the largest.
template <class Element>
auto rank_of(Element value) {
    using Bits = typename BitsOf<sizeof(Element)>::type;
    constexpr auto kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    const auto bits = std::bit_cast<Bits>(value);
    if constexpr (std::is_integral_v<Element>) {
        return static_cast<Bits>(std::is_signed_v<Element> ? bits ^ kSign : bits);
    } else {
        if (is_nan(value)) return static_cast<Bits>(~Bits{0});
        if (value == Element(0)) return kSign;
        return static_cast<Bits>((bits & kSign) != 0 ? ~bits : bits | kSign);
    }
}

// An element by its rank, and its index.
struct Ranked {
    std::uint64_t rank;
    Index index;
};

// Sorts by rank, from the lowest byte of `bytes` to the highest; equal ranks keep their order.
// Returns the sorted array, which is one of the two.
Ranked *sorted(Ranked *from, Ranked *to, Index length, std::size_t bytes) {
    constexpr int kValues = 256;
    std::array<std::array<Index, kValues>, sizeof(std::uint64_t)> found{};
    for (Index i = 0; i < length; ++i)
        for (std::size_t byte = 0; byte < bytes; ++byte)
            ++found[byte][from[i].rank >> (8 * byte) & 0xFF];
    for (std::size_t byte = 0; byte < bytes; ++byte) {
        std::array<Index, kValues> &ends = found[byte];
        if (std::ranges::find(ends, length) != ends.end()) continue;  // all have the same one
        std::exclusive_scan(ends.begin(), ends.end(), ends.begin(), Index{0});
        for (Index i = 0; i < length; ++i) to[ends[from[i].rank >> (8 * byte) & 0xFF]++] = from[i];
        std::swap(from, to);
    }
    return from;
}

// Slices are compared element by element, the first ones first. NaN comes last. It equals NaN where
// elements are compared alone, and nothing in a longer slice.
template <class Element>
class Unique final : public Step {
public:
    Unique(const Slices &slices, bool alone, bool ascending)
        : Step("unique"), slices_(slices), alone_(alone), ascending_(ascending) {
        const Index size = product({slices.outer, slices.length, slices.inner});
        add_slot("src", VTENSOR_READ, size, sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, size, sizeof(Element));
        for (const char *name : {"indices", "inverse", "counts"})
            add_slot(name, VTENSOR_WRITE, slices.length, kNumber);
        add_slot("count", VTENSOR_WRITE, 1, kNumber);
        add_scratch(times(times(4, slices.length), kNumber / sizeof(float)));
    }

private:
    // Returns a negative number if slice `one` comes before slice `two`, 0 if they are equal.
    int compared(const Element *src, Index one, Index two) const {
        for (Index o = 0; o < slices_.outer; ++o) {
            const Element *row = src + o * slices_.length * slices_.inner;
            for (Index i = 0; i < slices_.inner; ++i) {
                const Element a = row[one * slices_.inner + i], b = row[two * slices_.inner + i];
                if (a < b || (!is_nan(a) && is_nan(b))) return -1;
                if (b < a || is_nan(a) != is_nan(b)) return 1;
                if (is_nan(a) && !alone_) return one < two ? -1 : one > two;
            }
        }
        return 0;
    }

    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Element *>(slots[1]);
        const Index length = slices_.length;
        Index *const first = numbers(slots, 2), *const inverse = numbers(slots, 3);
        Index *const counts = numbers(slots, 4);
        Index *const order = numbers(slots, 6);
        // The place in the result of each slice that is the first of its kind.
        Index *places = order + length;
        Index found = 0, begin = 0;
        const auto visit = [&](Index slice, bool begins) {
            if (begins) begin = slice;
            if (begins && ascending_) places[slice] = found++;
            inverse[slice] = begin;
        };
        if (slices_.outer == 1 && slices_.inner == 1) {
            auto *const one = reinterpret_cast<Ranked *>(order), *const two = one + length;
            for (Index i = 0; i < length; ++i) one[i] = {rank_of(src[i]), i};
            const Ranked *const row = sorted(one, two, length, sizeof(Element));
            places = reinterpret_cast<Index *>(row == one ? two : one);
            for (Index i = 0; i < length; ++i)
                visit(row[i].index, i == 0 || row[i].rank != row[i - 1].rank ||
                                        (!alone_ && is_nan(src[row[i].index])));
        } else {
            std::iota(order, order + length, Index{0});
            std::sort(order, order + length, [&](Index left, Index right) {
                const int sign = compared(src, left, right);
                return sign < 0 || (sign == 0 && left < right);
            });
            for (Index i = 0; i < length; ++i)
                visit(order[i], i == 0 || compared(src, order[i - 1], order[i]) != 0);
        }
        std::fill_n(first, length, 0);
        std::fill_n(counts, length, 0);
        for (Index i = 0; i < length; ++i) {
            const Index same = inverse[i];
            if (same == i) {
                if (!ascending_) places[i] = found++;
                first[places[i]] = i;
                slices_.copy(src, i, dst, places[i]);
            }
            inverse[i] = places[same];
            ++counts[inverse[i]];
        }
        slices_.zero_from(dst, found);
        numbers(slots, 5)[0] = found;
    }

    Slices slices_;
    bool alone_, ascending_;
};

class Suppression final : public Step {
public:
    explicit Suppression(const Boxes &boxes)
        : Step("suppression"),
          boxes_(boxes),
          lists_(product({boxes.images, boxes.classes})),
          limit_(std::min(boxes.count, boxes.most)) {
        demand(boxes.most >= 0, "a size is negative");
        add_slot("boxes", VTENSOR_READ, product({boxes.images, boxes.count, 4}));
        add_slot("scores", VTENSOR_READ, product({boxes.images, boxes.classes, boxes.count}));
        add_slot("indices", VTENSOR_WRITE, product({lists_, limit_, 3}), kNumber);
        add_slot("count", VTENSOR_WRITE, 1, kNumber);
    }

private:
    struct Corners {
        float low[2], high[2], area;
    };

    Corners corners(const float *box) const {
        Corners made{};
        for (int i = 0; i < 2; ++i) {
            const float one = box[i], two = box[i + 2];
            made.low[i] = boxes_.centered ? one - two / 2 : std::min(one, two);
            made.high[i] = boxes_.centered ? one + two / 2 : std::max(one, two);
        }
        made.area = (made.high[0] - made.low[0]) * (made.high[1] - made.low[1]);
        return made;
    }

    bool overlap(const Corners &a, const Corners &b) const {
        const float height = std::min(a.high[0], b.high[0]) - std::max(a.low[0], b.low[0]);
        const float width = std::min(a.high[1], b.high[1]) - std::max(a.low[1], b.low[1]);
        const float common = std::max(height, 0.0F) * std::max(width, 0.0F);
        return common > 0 && common / (a.area + b.area - common) > boxes_.overlap;
    }

    // Each list of an image and class is written to a part of its own; then the parts are joined.
    void run(void *const *slots) const override {
        Index *const rows = numbers(slots, 2);
        std::vector<Index> found(lists_);
        parallel(lists_, lists_ * boxes_.count * 8, [&](Index begin, Index end) {
            std::vector<Index> left;
            std::vector<Corners> chosen;
            for (Index list = begin; list < end; ++list)
                found[list] = choose(slots, list, rows + list * limit_ * 3, left, chosen);
        });
        Index *end = rows;
        for (Index list = 0; list < lists_; ++list) {
            const Index *part = rows + list * limit_ * 3;
            end = std::copy(part, part + found[list] * 3, end);
        }
        std::fill(end, rows + lists_ * limit_ * 3, 0);
        numbers(slots, 3)[0] = (end - rows) / 3;
    }

    // Writes the rows of the chosen boxes of a list and returns their number.
    Index choose(void *const *slots, Index list, Index *rows, std::vector<Index> &left,
                 std::vector<Corners> &chosen) const {
        const Index image = list / boxes_.classes;
        const float *boxes = input(slots, 0) + image * boxes_.count * 4;
        const float *scores = input(slots, 1) + list * boxes_.count;
        left.clear();
        chosen.clear();
        for (Index box = 0; box < boxes_.count; ++box)
            if (scores[box] > boxes_.score) left.push_back(box);
        std::sort(left.begin(), left.end(), [&](Index one, Index two) {
            return scores[one] > scores[two] || (scores[one] == scores[two] && one < two);
        });
        for (const Index box : left) {
            const auto count = static_cast<Index>(chosen.size());
            if (count == limit_) break;
            const Corners own = corners(boxes + box * 4);
            if (std::ranges::any_of(chosen, [&](const Corners &o) { return overlap(o, own); }))
                continue;
            chosen.push_back(own);
            const Index row[3] = {image, list % boxes_.classes, box};
            std::copy_n(row, 3, rows + count * 3);
        }
        return static_cast<Index>(chosen.size());
    }

    Boxes boxes_;
    Index lists_, limit_;
};

// Calls body(Type<T>()) with the type of this name; a truth value is a byte.
template <class Body>
auto with_number(const std::string &name, const Body &body) {
    if (name == "bool") return body(Type<std::uint8_t>());
    if (name == "u16") return body(Type<std::uint16_t>());
    if (name == "s16") return body(Type<std::int16_t>());
    if (name == "u32") return body(Type<std::uint32_t>());
    if (name == "u64") return body(Type<std::uint64_t>());
    return with_type(name, body);
}

}  // namespace

Step *nonzero(const std::string &dtype, const Ints &shape) {
    return with_number(dtype,
                       [&]<class T>(Type<T>) -> Step * { return new NonZero<T>(shape); });
}

Step *select(Index outer, Index length, Index inner, Index conditions, Index item_bytes) {
    return with_bytes(item_bytes, [&]<class T>(Type<T>) -> Step * {
        return new Select<T>({outer, length, inner}, conditions);
    });
}

Step *unique(const std::string &dtype, Index outer, Index length, Index inner, bool alone,
             bool ascending) {
    return with_number(dtype, [&]<class T>(Type<T>) -> Step * {
        return new Unique<T>({outer, length, inner}, alone, ascending);
    });
}

Step *suppression(const Boxes &boxes) { return new Suppression(boxes); }

}  // namespace vtensor::eigen
