// native/narrow/multiply.cpp: blocks of sums, corrected by zero points, and their ending.
#include "multiply.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vtensor::narrow {

namespace {

// Bytes of the left factor that are used again for each pair of panels, from a core's cache.
constexpr Index kLeftBytes = Index{1} << 18;

// 32-bit arithmetic that wraps around.
inline std::int32_t wrapped(Index number) {
    return static_cast<std::int32_t>(static_cast<std::uint64_t>(number));
}

Index sum_of(const std::byte *row, Index length, Form form, bool is_signed) {
    Index sum = 0;
    if (form == Form::words) {
        for (Index i = 0; i < length; ++i) {
            std::int16_t word = 0;
            std::memcpy(&word, row + 2 * i, sizeof word);
            sum += word;
        }
        return sum;
    }
    const auto *bytes = reinterpret_cast<const std::uint8_t *>(row);
    std::int32_t part = 0;
    if (form == Form::bytes && is_signed) {
        for (Index i = 0; i < length; ++i) part += static_cast<std::int8_t>(bytes[i]);
    } else {
        for (Index i = 0; i < length; ++i) part += bytes[i];
    }
    return part;
}

// Two panels of one product.
class Pair {
public:
    Pair(const Shape &shape, const Ending &ending, const Factors &factors, Index panel, Index end)
        : shape_(shape), factors_(factors), column_(panel * kPanel),
          panels_(std::min<Index>(end - panel, 2)),
          count_(std::min(panels_ * kPanel, shape.columns - column_)),
          right_(factors.right + panel * shape.panel_bytes()), ending_(ending),
          columns_(ending.columns(*factors.ending, factors.first_column + column_, count_)) {
        for (Index i = 0; i < count_ && factors.right_zero != nullptr; ++i) {
            const Index at = factors.one_right_zero ? 0 : factors.first_column + column_ + i;
            const std::uint8_t byte = factors.right_zero[at];
            zeros_[i] = factors.right_signed ? static_cast<std::int8_t>(byte) : Index{byte} - 128;
        }
        const Index rest = shape.groups % (shape.kind->depth / kGroup) * kUnit;
        for (Index i = 0; i < panels_ && rest > 0; ++i) {
            std::memset(rest_ + i * kRestBytes, 0, kRestBytes);
            std::memcpy(rest_ + i * kRestBytes, right_ + (i + 1) * shape.panel_bytes() - rest,
                        static_cast<std::size_t>(rest));
        }
    }

    // What the sums of the panels' columns are needed for: the zero points of rows.
    enum class Ones {
        none,    // nothing
        after,   // a row of ones follows the rows
        missing, // it is multiplied afterwards, when the panels are in a cache
    };

    // Computes up to kRows rows. zero: the zero point of all rows, if they have none of their own.
    // of_rows: the sums of their elements, if right zero points matter.
    void rows(const std::byte *left, Index stride, Index first, Index rows, Ones ones, Index zero,
              const std::int32_t *of_rows) {
        alignas(64) std::int32_t sums[kRows * kColumns];
        const Index more = ones == Ones::after ? 1 : 0;
        shape_.kind->multiply({left, stride, right_, shape_.panel_bytes(), shape_.groups,
                               rows + more, panels_, shape_.packer.is_signed, sums, rest_});
        if (ones == Ones::after) {
            subtract(zero, sums + rows * kColumns);
        } else if (ones == Ones::missing) {
            alignas(64) std::int32_t of_columns[kRows * kColumns];
            kind_for(shape_.kind->name, 1).multiply({shape_.ones.data(), 0, right_,
                                                     shape_.panel_bytes(), shape_.groups, 1,
                                                     panels_, false, of_columns});
            subtract(zero, of_columns);
        }
        for (Index row = 0; row < rows && (of_rows != nullptr || shape_.row_zeros); ++row) {
            const Index zero =
                shape_.row_zeros ? shape_.packer.zero(factors_.left->zero(first + row)) : 0;
            const Index sum = of_rows == nullptr ? 0 : of_rows[row];
            std::int32_t *own = sums + row * kColumns;
            for (Index i = 0; i < count_; ++i)
                own[i] = wrapped(own[i] - zero * sums_[i] - sum * zeros_[i]);
        }
        ending_.store(*factors_.ending, columns_, sums, rows, count_,
                      factors_.to + first * factors_.stride + column_, factors_.stride);
    }

private:
    // Takes the zero points of rows into account, given the sums of the panels' columns.
    void subtract(Index zero, const std::int32_t *sums) {
        for (Index i = 0; i < count_; ++i) {
            sums_[i] = sums[i] - shape_.depth * zeros_[i];
            if (!shape_.row_zeros)
                columns_.shift[i] = wrapped(columns_.shift[i] - zero * sums_[i]);
        }
    }

    const Shape &shape_;
    const Factors &factors_;
    Index column_, panels_, count_;
    const std::int8_t *right_;
    const Ending &ending_;
    EndingColumns columns_;
    Index zeros_[kColumns] = {}, sums_[kColumns] = {};
    alignas(64) std::int8_t rest_[2 * kRestBytes];
};

}  // namespace

void Packer::fill(Index count, Index zero, std::byte *to) const {
    const std::size_t bytes = static_cast<std::size_t>(count) * (form == Form::words ? 2 : 1);
    std::memset(to, static_cast<int>(this->zero(zero) & 255), bytes);
}

Index Shape::most_rows() const {
    return std::max(kLeftBytes / row_bytes() / kRows, Index{1}) * kRows;
}

Index Shape::scratch_bytes() const {
    return up(most_rows() * (row_bytes() + static_cast<Index>(sizeof(std::int32_t))), 64);
}

void multiply(const Shape &shape, const Ending &ending, const Factors &factors, Range rows,
              Range panels, std::byte *scratch) {
    const Kind &kind = *shape.kind;
    const Index most = shape.most_rows();
    auto *of_rows = reinterpret_cast<std::int32_t *>(scratch + most * shape.row_bytes());
    if (kind.begin != nullptr) kind.begin();
    for (Index first = rows.begin; first < rows.end;) {
        Index count = std::min(most, rows.end - first);
        const Index rest = count % kind.rows;  // the kernel reads whole multiples
        const Index zero = shape.packer.zero(factors.left->zero(first));
        const bool sums = kind.form != Form::words && (shape.row_zeros || zero != 0);
        // A row more costs little: the kernel reads it anyway, or reads rows one by one.
        const bool ones = sums && count < kRows && (rest != 0 || kind.rows == 1);
        const bool in_place = factors.left->in_place() && count >= kind.rows && !ones;
        if (in_place) count -= rest;
        Index stride = 0;
        const std::byte *left =
            factors.left->rows(first, count, in_place ? nullptr : scratch, &stride);
        if (ones) std::ranges::copy(shape.ones, scratch + count * stride);
        if (factors.right_zero != nullptr)
            for (Index row = 0; row < count; ++row)
                of_rows[row] = wrapped(sum_of(left + row * stride, shape.length, kind.form,
                                              shape.packer.is_signed));
        for (Index panel = panels.begin; panel < panels.end; panel += 2) {
            Pair pair(shape, ending, factors, panel, panels.end);
            Pair::Ones first_ones = ones   ? Pair::Ones::after
                                    : sums ? Pair::Ones::missing
                                           : Pair::Ones::none;
            for (Index row = 0; row < count; row += kRows)
                pair.rows(left + row * stride, stride, first + row, std::min(kRows, count - row),
                          std::exchange(first_ones, Pair::Ones::none), zero,
                          factors.right_zero == nullptr ? nullptr : of_rows + row);
        }
        first += count;
    }
    if (kind.end != nullptr) kind.end();
}

Parts Parts::of(Index threads, Index rows, Index panels) {
    const Index pairs = (panels + 1) / 2;
    if (pairs >= threads && (pairs % threads == 0 || pairs >= 4 * threads) &&
        panels * kPanel > rows)
        return {1, threads};
    const Index down = std::clamp<Index>(rows / kRows, 1, threads);
    return {down, std::clamp<Index>(threads / down, 1, pairs)};
}

bool any_zero(const std::uint8_t *zeros, Index count, bool is_signed) {
    const std::uint8_t none = is_signed ? 0 : 128;
    return std::any_of(zeros, zeros + std::max<Index>(count, 1),
                       [=](std::uint8_t zero) { return zero != none; });
}

}  // namespace vtensor::narrow
