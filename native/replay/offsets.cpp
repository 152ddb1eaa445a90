// native/replay/offsets.cpp: placement of pieces of memory in one arena.
#include "offsets.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

namespace vtensor::replay {

namespace {

struct Placed {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t first;
    std::int64_t last;
};

// Returns the begin of the smallest gap that the piece fits into, between memory in use at the same
// time; the last gap is unbounded.
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

// Returns the most bytes in use at one time: a lower bound for any arrangement.
std::int64_t needed_at_once(std::span<const Piece> pieces) {
    std::vector<std::tuple<std::int64_t, bool, std::int64_t>> changes;
    changes.reserve(2 * pieces.size());
    for (const Piece &piece : pieces) {
        changes.emplace_back(piece.first, false, piece.bytes);
        changes.emplace_back(piece.last, true, -piece.bytes);
    }
    std::ranges::sort(changes);  // begins sort before ends at one step: both pieces are in use then
    std::int64_t now = 0, most = 0;
    for (const auto &[step, ends, change] : changes) most = std::max(most, now += change);
    return most;
}

// Orders in which pieces are placed, the best on average first; none is best for all networks.
using Rank = std::pair<std::int64_t, std::int64_t>;
constexpr std::array<Rank (*)(const Piece &), 3> kRanks{
    [](const Piece &one) -> Rank { return {-one.bytes, one.first}; },
    [](const Piece &one) -> Rank { return {one.first, -one.bytes}; },
    [](const Piece &one) -> Rank { return {one.first - one.last, -one.bytes}; },
};

Offsets in_order(std::span<const Piece> pieces, Rank (*rank)(const Piece &)) {
    std::vector<std::size_t> order(pieces.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t at) { return rank(pieces[at]); });
    std::vector<Placed> by_begin;
    by_begin.reserve(pieces.size());
    Offsets found{std::vector<std::int64_t>(pieces.size()), 0};
    for (const std::size_t index : order) {
        const Piece &piece = pieces[index];
        const std::int64_t begin = gap(by_begin, piece), end = begin + piece.bytes;
        const auto place = std::upper_bound(
            by_begin.begin(), by_begin.end(), begin,
            [](std::int64_t value, const Placed &one) { return value < one.begin; });
        by_begin.insert(place, {begin, end, piece.first, piece.last});
        found.first[index] = begin;
        found.second = std::max(found.second, end);
    }
    return found;
}

}  // namespace

Offsets offsets(std::span<const Piece> pieces) {
    const std::int64_t least = needed_at_once(pieces);
    Offsets best = in_order(pieces, kRanks.front());
    for (const auto rank : std::span(kRanks).subspan(1)) {
        if (best.second <= least) break;
        if (Offsets other = in_order(pieces, rank); other.second < best.second)
            best = std::move(other);
    }
    return best;
}

}  // namespace vtensor::replay
