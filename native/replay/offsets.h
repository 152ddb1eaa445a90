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

// An offset for each piece, and the size of the arena: pieces that are needed at once lie apart.
// The largest piece comes first, each into the smallest gap that it fits into.
std::pair<std::vector<std::int64_t>, std::int64_t> offsets(std::span<const Piece> pieces);

}  // namespace vtensor::replay
