// native/narrow/rounded.h: rounded rows times codes in blocks, as integers.
#pragma once

#include <cstdint>

#include "eigen/step.h"

namespace vtensor::narrow {

using eigen::Index;

// Outputs of a panel.
constexpr int kCodePanel = 32;

// A panel of codes, and rows that it is multiplied by. Codes are in words of 32 bits: a word of
// each output in turn. A row has the codes of a word in the order in which words are shifted: first
// the lowest code of each byte. Of each block, outputs have a scale and a zero, rows have a scale
// and a sum.
struct CodeProduct {
    const std::uint32_t *words;
    const float *scales, *zeros;
    const std::int8_t *rows;
    const float *row_scales, *row_sums;
    Index blocks, block_words;
    Index row_codes;  // from one row to the next; row_scales and row_sums are `blocks` apart
    float *dst;       // kCodePanel floats for each row
};

// Multiplies up to kCodeRows rows; null if the machine or this level has no instructions for it.
constexpr int kCodeRows = 6;
using MultiplyCodes = void (*)(const CodeProduct &call, int rows);
MultiplyCodes multiply_codes(int bits);

}  // namespace vtensor::narrow
