// native/narrow/blockwise.h: products with, and rows of, weights of 2, 4 or 8 bits in blocks.
#pragma once

#include "eigen/step.h"

namespace vtensor::narrow {

using eigen::Index;
using eigen::Step;

// Weights: `outputs` rows of `depth` codes, each row in blocks of `block` codes of `bits` bits. The
// first code of a byte is in its lowest bits; the last block is whole. A weight is
// (code - zero) * scale, with one scale and zero for each block.
struct Blocks {
    Index outputs, depth, bits, block;
    // Bytes of a zero: 1 for u8, 4 for f32, 0 if there are none: then zero is 2^(bits - 1).
    Index zero_bytes;
};

// Rows of `depth` numbers times the weights of each output.
struct BlockProduct {
    Blocks weights;
    Index rows;
    bool bias;
    // Whether the numbers are first rounded to 8 bits, by a scale for each row and block.
    bool rounded;
};

// Rows of numbers that weights stand for: `lines` outputs for each of `count` indices, s32 or s64 as
// index_bytes says. A negative index counts from the end; one outside is bad input if indices are
// checked, else makes zeros. Without indices (index_bytes is 0), all outputs.
struct BlockRows {
    Blocks weights;
    Index count, lines, index_bytes;
    bool checked;
};

Step *block_product(const BlockProduct &call);
Step *block_rows(const BlockRows &call);

}  // namespace vtensor::narrow
