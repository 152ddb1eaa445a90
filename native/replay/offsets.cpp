// native/replay/offsets.cpp
#include "offsets.h"

#include <algorithm>
#include <numeric>

namespace vtensor::replay {

namespace {

struct Placed {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t first;
    std::int64_t last;
};

// The begin of the smallest gap between memory in use at the time; the last one has no end.
std::int64_t gap(const std::vector<Placed> &by_begin, const Piece &piece) {
    std::int64_t reached = 0, found = -1, smallest = 0;
    for (const Placed &one : by_begin) {
        if (one.first > piece.last || one.last < piece.first) continue;
        const std::int64_t size = one.begin - reached;
        if (size >= piece.bytes && (found < 0 || size < smallest)) {
            found = reached;
            smallest = size;
        }
        reached = std::max(reached, one.end);
    }
    return found < 0 ? reached : found;
}

}  // namespace

std::pair<std::vector<std::int64_t>, std::int64_t> offsets(std::span<const Piece> pieces) {
    std::vector<std::size_t> order(pieces.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (pieces[a].bytes != pieces[b].bytes) return pieces[a].bytes > pieces[b].bytes;
        return pieces[a].first < pieces[b].first;
    });
    std::vector<Placed> by_begin;
    by_begin.reserve(pieces.size());
    std::vector<std::int64_t> begins(pieces.size());
    std::int64_t total = 0;
    for (const std::size_t index : order) {
        const Piece &piece = pieces[index];
        const std::int64_t begin = gap(by_begin, piece), end = begin + piece.bytes;
        const auto place = std::upper_bound(
            by_begin.begin(), by_begin.end(), begin,
            [](std::int64_t value, const Placed &one) { return value < one.begin; });
        by_begin.insert(place, {begin, end, piece.first, piece.last});
        begins[index] = begin;
        total = std::max(total, end);
    }
    return {std::move(begins), total};
}

}  // namespace vtensor::replay
