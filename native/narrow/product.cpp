// native/narrow/product.cpp: products of matrices of bytes.
#include <cstring>

#include "operands.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace vtensor::narrow {

namespace {

// Writes a group of a panel from four rows of 16 bytes; `flip` is 0x80 for unsigned bytes.
void interleave(const std::uint8_t *const (&rows)[kGroup], std::uint8_t flip, std::int8_t *to) {
#if defined(__SSE2__)
    const __m128i mask = _mm_set1_epi8(static_cast<char>(flip));
    const auto load = [&](int i) {
        return _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i *>(rows[i])), mask);
    };
    const __m128i a = load(0), b = load(1), c = load(2), d = load(3);
    const __m128i ab[] = {_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)};
    const __m128i cd[] = {_mm_unpacklo_epi8(c, d), _mm_unpackhi_epi8(c, d)};
    auto *vectors = reinterpret_cast<__m128i *>(to);
    for (int half = 0; half < 2; ++half) {
        _mm_storeu_si128(vectors++, _mm_unpacklo_epi16(ab[half], cd[half]));
        _mm_storeu_si128(vectors++, _mm_unpackhi_epi16(ab[half], cd[half]));
    }
#else
    for (Index i = 0; i < kUnit; ++i)
        to[i] = static_cast<std::int8_t>(rows[i % kGroup][i / kGroup] ^ flip);
#endif
}

// Stores a matrix of `depth` rows in panels.
struct Panels {
    Index depth, columns;
    bool by_columns;  // elements of a column are next to one another
    std::uint8_t flip;

    Index groups() const { return up(depth, kGroup) / kGroup; }

    void pack(const std::uint8_t *from, Index panel, std::int8_t *to) const {
        const Index first = panel * kPanel, count = std::min(kPanel, columns - first);
        for (Index group = 0; group < groups(); ++group, to += kUnit) {
            const Index row = group * kGroup, rows = std::min(kGroup, depth - row);
            if (by_columns) {
                by_column(from + first * depth + row, rows, count, to);
            } else {
                by_row(from + row * columns + first, rows, count, to);
            }
        }
    }

private:
    void by_row(const std::uint8_t *from, Index rows, Index count, std::int8_t *to) const {
        std::uint8_t some[kGroup][kPanel] = {};
        const std::uint8_t *at[kGroup] = {some[0], some[1], some[2], some[3]};
        for (Index row = 0; row < rows; ++row) {
            if (count == kPanel) {
                at[row] = from + row * columns;
            } else {
                std::memcpy(some[row], from + row * columns, static_cast<std::size_t>(count));
            }
        }
        interleave(at, flip, to);
    }

    void by_column(const std::uint8_t *from, Index rows, Index count, std::int8_t *to) const {
        std::uint32_t words[kPanel] = {};
        const std::uint32_t mask = flip * 0x01010101U;
        for (Index column = 0; column < count; ++column) {
            if (rows == kGroup) {
                std::memcpy(words + column, from + column * depth, kGroup);
            } else {
                std::memcpy(words + column, from + column * depth, static_cast<std::size_t>(rows));
            }
        }
        for (std::uint32_t &word : words) word ^= mask;
        std::memcpy(to, words, sizeof words);
    }
};

// Rows that are next to one another.
class Matrix final : public Rows {
public:
    Matrix(const Shape &shape, const std::uint8_t *at, const std::uint8_t *zeros, bool one_zero)
        : shape_(shape), at_(at), zeros_(zeros), one_zero_(one_zero),
          in_place_(shape.length == shape.depth &&
                    (shape.kind->form == Form::bytes ||
                     (shape.kind->form == Form::shifted && !shape.packer.is_signed))) {}

    bool in_place() const override { return in_place_; }

    const std::byte *rows(Index first, Index count, std::byte *scratch,
                          Index *stride) const override {
        const std::uint8_t *from = at_ + first * shape_.depth;
        if (scratch == nullptr) {
            *stride = shape_.depth;
            return reinterpret_cast<const std::byte *>(from);
        }
        *stride = shape_.row_bytes();
        const Index item = shape_.kind->item();
        for (Index row = 0; row < count; ++row, from += shape_.depth) {
            std::byte *to = scratch + row * *stride;
            if (*stride >= kUnit && shape_.length > shape_.depth) {
                std::memset(to + *stride - kUnit, 0, kUnit);  // of a fixed size, before the rest
            } else {
                std::memset(to + shape_.depth * item, 0,
                            static_cast<std::size_t>((shape_.length - shape_.depth) * item));
            }
            shape_.packer.copy(from, shape_.depth, zero(first + row), to);
        }
        return scratch;
    }

    Index zero(Index row) const override {
        return zeros_ == nullptr ? 0 : shape_.packer.number(zeros_[one_zero_ ? 0 : row]);
    }

private:
    const Shape &shape_;
    const std::uint8_t *at_, *zeros_;
    bool one_zero_, in_place_;
};

Shape shape_of(const Product &call) {
    const Kind &kind = kind_for(call.instructions, call.rows);
    Shape shape{&kind,
                {kind.form, is_signed(call.left_type)},
                call.depth,
                up(call.depth, kind.depth),
                up(call.depth, kGroup) / kGroup,
                call.columns,
                call.left_zeros > 1,
                {}};
    shape.ones.resize(static_cast<std::size_t>(shape.length));
    std::fill_n(shape.ones.begin(), call.depth, std::byte{1});
    return shape;
}

class MatrixProduct final : public Multiplying {
public:
    explicit MatrixProduct(const Product &call)
        : Multiplying("product " + call.instructions, checked(call).ending, call.columns,
                      times(eigen::product(call.batch), times(call.rows, call.columns))),
          call_(call), shape_(shape_of(call)),
          panels_{call.depth, call.columns, call.right == "columns",
                  static_cast<std::uint8_t>(is_signed(call.right_type) ? 0 : 0x80)},
          batches_(eigen::product(call.batch)) {
        demand(call.right == "panels" || call.right == "rows" || call.right == "columns",
               "the right factor is stored as panels, rows or columns");
        const Index lefts = eigen::reach(call.batch, call.left_steps);
        rights_ = eigen::reach(call.batch, call.right_steps);
        const Index all_rows = times(lefts, call.rows), all_columns = times(rights_, call.columns);
        demand(call.left_zeros == 0 || call.left_zeros == 1 || call.left_zeros == all_rows,
               "zero points of the left factor are one, or one for each row");
        demand(call.right_zeros == 0 || call.right_zeros == 1 || call.right_zeros == all_columns,
               "zero points of the right factor are one, or one for each column");
        const Index matrix = times(shape_.panels(), shape_.panel_bytes());
        const Index packed = times(rights_, matrix);
        const bool packs = call.right != "panels";
        room_ = packs ? up(packed, 64) : 0;
        add_operands(times(all_rows, call.depth), packs ? times(all_columns, call.depth) : packed,
                     call.left_zeros, call.right_zeros,
                     eigen::plus(room_, times(threads_, shape_.scratch_bytes())));
    }

private:
    static const Product &checked(const Product &call) {
        constexpr Index kMost = Index{1} << 40;  // so that sizes of blocks do not overflow
        demand(call.rows >= 0 && call.columns >= 0, "a size is negative");
        demand(call.depth > 0, "there is nothing to sum");
        demand(std::max({call.rows, call.columns, call.depth}) < kMost, "sizes overflow");
        times(times(call.rows, call.columns), call.depth);
        return call;
    }

    void compute(const Operands &at) const override {
        const auto *panels = reinterpret_cast<const std::int8_t *>(at.right);
        const Index count = shape_.panels(), bytes = shape_.panel_bytes();
        if (room_ > 0) {
            auto *packed = reinterpret_cast<std::int8_t *>(at.scratch);
            share(rights_ * count, rights_ * count * bytes, [&](Index, Index piece) {
                const Index matrix = piece / count, panel = piece % count;
                panels_.pack(at.right + matrix * call_.depth * call_.columns, panel,
                             packed + piece * bytes);
            });
            panels = packed;
        }
        const Parts parts = batches_ >= threads_ ? Parts{1, 1}
                                                 : Parts::of(threads_, call_.rows, count);
        const bool one_right = call_.right_zeros <= 1;
        const bool zeros = any_zero(at.right_zeros, call_.right_zeros, panels_.flip == 0);
        const Index work = batches_ * call_.rows * call_.columns * call_.depth;
        share(batches_ * parts.count(), work, [&](Index worker, Index piece) {
            const Index batch = piece / parts.count(), part = piece % parts.count();
            const Index left = offset(batch, call_.left_steps);
            const Index right = offset(batch, call_.right_steps);
            const bool one = call_.left_zeros == 1;
            const Matrix rows(
                shape_, at.left + left * call_.rows * call_.depth,
                call_.left_zeros > 1 ? at.left_zeros + left * call_.rows : at.left_zeros, one);
            const Factors factors{&rows,
                                  panels + right * count * bytes,
                                  !zeros      ? nullptr
                                  : one_right ? at.right_zeros
                                              : at.right_zeros + right * call_.columns,
                                  one_right,
                                  panels_.flip == 0,
                                  &at.ending,
                                  batch * call_.rows * call_.columns,
                                  call_.columns,
                                  0};
            multiply(shape_, ending_, factors, parts.rows(part, call_.rows),
                     parts.panels(part, count),
                     at.scratch + room_ + worker * shape_.scratch_bytes());
        });
    }

    // Returns the number of the matrix that an index of the batch has.
    Index offset(Index batch, const Ints &steps) const {
        Index at = 0;
        for (std::size_t i = steps.size(); i-- > 0; batch /= call_.batch[i])
            at += batch % call_.batch[i] * steps[i];
        return at;
    }

    Product call_;
    Shape shape_;
    Panels panels_;
    Index batches_, rights_ = 0, room_ = 0;
};

}  // namespace

Step *product(const Product &call) { return new MatrixProduct(call); }

}  // namespace vtensor::narrow
