// native/winograd/grid.h: how a team shares products of matrices.
#pragma once

#include "product.h"

namespace vtensor::winograd {

struct Range {
    Index begin, end;
};

// One of several equal parts of so many pieces.
struct Share {
    Index mine, all;
    Range of(Index pieces) const { return {pieces * mine / all, pieces * (mine + 1) / all}; }
};

// A team that shares rows times a matrix: rows fall into `down` ranges, and `across` threads share
// each of them.
struct Grid {
    Index down, across;

    // Each thread has rows of its own, as far as they are enough for all weights to be read again.
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
