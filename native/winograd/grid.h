// native/winograd/grid.h: the division of a product of matrices among the threads of a team.
#pragma once

#include "product.h"

namespace vtensor::winograd {

struct Range {
    Index begin, end;
};

// One of `all` equal parts.
struct Share {
    Index mine, all;
    Range of(Index pieces) const { return {pieces * mine / all, pieces * (mine + 1) / all}; }
};

// The division of rows times a matrix: rows fall into `down` ranges, and `across` threads share
// each range.
struct Grid {
    Index down, across;

    // Gives each thread rows of its own, as long as these are worth reading all weights again.
    static Grid of(Index threads, Index rows) {
        Index down = threads;
        while (down > 1 && (threads % down != 0 || rows / down < kMostRows * 3 / 4)) --down;
        return {down, threads / down};
    }

    Index threads() const { return down * across; }
    Index range(Index thread) const { return thread % down; }
    Range rows(Index thread, Index all) const { return Share{range(thread), down}.of(all); }
    Share share(Index thread) const { return {thread / down, across}; }
};

}  // namespace vtensor::winograd
