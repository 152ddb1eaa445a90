// native/narrow/sums.h: sums of products of bytes, by each kind of instructions.
//
// The right factor is stored in panels of 16 columns. A panel has its rows in groups of 4: [K/4]
// [16 columns] [4 rows], signed bytes; a group of 16 x 4 bytes is a vector for VNNI, 16 groups are
// a tile for AMX. Unsigned bytes are stored minus 128. The left factor has the form of `Form`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vtensor::narrow {

using Index = std::int64_t;

constexpr Index kPanel = 16;             // columns of a panel
constexpr Index kGroup = 4;              // rows of a group
constexpr Index kUnit = kPanel * kGroup; // bytes of a group
constexpr Index kColumns = 2 * kPanel;   // columns of a block, of at most two panels
constexpr Index kRows = 32;              // rows of a block, at most
constexpr Index kRestBytes = 16 * kUnit; // of a tile

// How the left factor is stored for a kind of instructions.
enum class Form {
    words,   // 16-bit integers, from which the zero point is subtracted
    shifted, // unsigned bytes; signed ones plus 128
    bytes    // bytes as they are
};

// The product of some rows of the left factor and of one panel or two. All rows that `Kind.rows`
// rounds up to can be read, and so can the left factor up to a multiple of `Kind.depth` elements.
// There it is 0 where the right factor has no rows.
struct Block {
    const std::byte *left;
    Index left_stride;  // bytes
    const std::int8_t *right;
    Index panel_bytes;
    Index groups;
    Index rows, panels;
    bool is_signed;     // the left factor, as bytes
    std::int32_t *sums; // rows of kColumns; all rows that Kind.rows rounds up to are written
    // The last groups % (Kind.depth / kGroup) groups of each panel, each time in kRestBytes that
    // have 0 after them; null if the kernel has to copy them.
    const std::int8_t *rest = nullptr;
};

// A kind of instructions, and its kernel.
struct Kind {
    const char *name;
    Form form;
    Index depth;  // the kernel reads the left factor up to a multiple of this, in elements
    Index rows;   // the kernel reads multiples of this many rows
    void (*multiply)(const Block &block);
    // Return to what the calling thread's registers were, around calls of multiply; or null.
    void (*begin)();
    void (*end)();

    Index item() const { return form == Form::words ? 2 : 1; }
};

// Returns the kinds that this module has and the machine runs, the slowest first.
const std::vector<Kind> &kinds();

// Returns the kind of a name that is not the best one for few rows: AMX wastes most of a tile on
// one or two rows, which VNNI multiplies as fast as memory delivers the right factor.
const Kind &kind_for(const std::string &name, Index rows);

// Returns the kinds' names.
std::vector<std::string> instructions();

#if defined(__AVX2__)
void multiply_vnni(const Block &block);
#endif
#if defined(__AVX512F__)
void multiply_amx(const Block &block);
void begin_amx();
void end_amx();
#endif
void multiply_words(const Block &block);

}  // namespace vtensor::narrow
