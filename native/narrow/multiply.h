// native/narrow/multiply.h: rows times panels, with zero points and an ending.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "eigen/check.h"
#include "eigen/step.h"
#include "ending.h"
#include "sums.h"

namespace vtensor::narrow {

using eigen::Ints;

struct Range {
    Index begin, end;
    Index count() const { return end - begin; }
};

inline bool is_signed(const std::string &type) {
    eigen::demand(type == "u8" || type == "s8", "factors are u8 or s8");
    return type == "s8";
}

inline Index up(Index size, Index unit) { return (size + unit - 1) / unit * unit; }

// Copies bytes into the form of a kind of instructions.
struct Packer {
    Form form;
    bool is_signed;

    // Returns the byte as the number that it stands for.
    Index number(std::uint8_t byte) const {
        return is_signed ? Index{static_cast<std::int8_t>(byte)} : Index{byte};
    }
    // Returns what is subtracted from stored elements of a zero point: words are stored without it.
    Index zero(Index number) const {
        return form == Form::words ? 0 : form == Form::shifted && is_signed ? number + 128 : number;
    }
    // Writes `count` elements; words are those of `from` minus `zero`.
    [[gnu::always_inline]] void copy(const std::uint8_t *from, Index count, Index zero,
                                     std::byte *to) const {
        if (form == Form::words) {
            auto *words = reinterpret_cast<std::int16_t *>(to);
            const auto less = static_cast<std::int16_t>(zero);
            if (is_signed) {
                for (Index i = 0; i < count; ++i)
                    words[i] = static_cast<std::int16_t>(static_cast<std::int8_t>(from[i]) - less);
            } else {
                for (Index i = 0; i < count; ++i)
                    words[i] = static_cast<std::int16_t>(from[i] - less);
            }
        } else if (form == Form::shifted && is_signed) {
            for (Index i = 0; i < count; ++i) to[i] = static_cast<std::byte>(from[i] ^ 0x80U);
        } else {
            std::memcpy(to, from, static_cast<std::size_t>(count));
        }
    }
    // Writes `count` elements that stand for the number `zero`.
    void fill(Index count, Index zero, std::byte *to) const;
};

// The left factor: rows in the form that its kind of instructions needs.
class Rows {
public:
    virtual ~Rows() = default;
    // Returns whether `whole` rows are in memory as the kernel needs them.
    virtual bool in_place() const = 0;
    // Returns rows from `first` on, `stride` bytes apart: in place, or in `scratch`.
    virtual const std::byte *rows(Index first, Index count, std::byte *scratch,
                                  Index *stride) const = 0;
    // Returns the zero point of a row, as a number.
    virtual Index zero(Index row) const = 0;
};

// What a product is, whatever its operands' addresses are.
struct Shape {
    const Kind *kind;
    Packer packer;
    Index depth;   // elements of a row that count
    Index length;  // elements of a stored row: a multiple of kind->depth
    Index groups;  // of a panel
    Index columns;
    bool row_zeros;               // rows have zero points of their own
    std::vector<std::byte> ones;  // a stored row of bytes: 1 where an element counts, else 0

    Index panels() const { return up(columns, kPanel) / kPanel; }
    Index panel_bytes() const { return groups * kUnit; }
    Index row_bytes() const { return length * kind->item(); }
    // Returns how many rows are used at a time, and the bytes of scratch that a thread needs.
    Index most_rows() const;
    Index scratch_bytes() const;
};

// The operands of a product of one matrix.
struct Factors {
    const Rows *left;
    const std::int8_t *right;       // panels
    const std::uint8_t *right_zero; // null if there is none, or all are the number that means 0
    bool one_right_zero, right_signed;
    const EndingOperands *ending;
    Index to, stride;  // of the first result, and from row to row
    Index first_column;  // of the operands that have one element for each column
};

// Computes some rows and panels of a product.
void multiply(const Shape &shape, const Ending &ending, const Factors &factors, Range rows,
              Range panels, std::byte *scratch);

// The division of a product among threads: rows in `down` parts, and panels in `across`.
struct Parts {
    Index down, across;

    static Parts of(Index threads, Index rows, Index panels);
    Index count() const { return down * across; }
    Range rows(Index part, Index all) const { return share(part % down, down, all); }
    Range panels(Index part, Index all) const { return share(part / down, across, all); }

private:
    static Range share(Index mine, Index parts, Index all) {
        return {all * mine / parts, all * (mine + 1) / parts};
    }
};

// Returns whether any zero point of a right factor is not 0 in panels. If `count` is 0, `zeros`
// points to one 0, the zero point of all columns.
bool any_zero(const std::uint8_t *zeros, Index count, bool is_signed);

}  // namespace vtensor::narrow
