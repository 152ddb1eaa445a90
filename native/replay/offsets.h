// native/replay/offsets.h: placement of pieces of memory in one arena.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vtensor::replay {

// Memory that is in use from one step to another, both included.
struct Piece {
    std::int64_t bytes;
    std::int64_t first;
    std::int64_t last;
};

// An offset for each piece, and the size of the arena.
using Offsets = std::pair<std::vector<std::int64_t>, std::int64_t>;

// Returns offsets such that pieces in use at the same step do not overlap. Each piece, the largest
// first, goes into the smallest gap that it fits into. If the arena is then larger than the most
// bytes in use at one step, other orders are tried.
Offsets offsets(std::span<const Piece> pieces);

}  // namespace vtensor::replay
