// native/replay/offsets.h: where pieces of memory lie in one arena.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vtensor::replay {

// Memory that is needed from one step to another, both included.
struct Piece {
    std::int64_t bytes;
    std::int64_t first;
    std::int64_t last;
};

// An offset for each piece, and the size of the arena.
using Offsets = std::pair<std::vector<std::int64_t>, std::int64_t>;

// Pieces that are needed at once lie apart. One after another goes into the smallest gap that it
// fits into, the largest first; where that needs more than what is needed at once, other orders are
// tried too.
Offsets offsets(std::span<const Piece> pieces);

}  // namespace vtensor::replay
