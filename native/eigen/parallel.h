// native/eigen/parallel.h: division of work among the calling thread's OpenMP threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "step.h"

namespace vtensor::eigen {

// Elements, or floating-point operations, below which waking a team costs more than it saves.
constexpr Index kWorthATeam = 1 << 15;

// Calls body(begin, end) for parts of 0 .. pieces; rethrows an exception of any part.
template <class Body>
void parallel(Index pieces, Index work, const Body &body) {
    const Index most = work < kWorthATeam ? 1 : omp_get_max_threads();
    const int threads = static_cast<int>(std::min(most, pieces));
    if (threads <= 1) {
        if (pieces > 0) body(Index{0}, pieces);
        return;
    }
    std::exception_ptr failure;
    std::mutex guard;
#pragma omp parallel num_threads(threads)
    {
        const Index all = omp_get_num_threads(), mine = omp_get_thread_num();
        try {
            const Index begin = pieces * mine / all, end = pieces * (mine + 1) / all;
            if (begin < end) body(begin, end);
        } catch (...) {
            const std::scoped_lock lock(guard);
            failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

// Calls first(begin, end) for parts of 0 .. pieces and, once all of them have ended, second(begin,
// end) for the same parts, each on the thread that had it before. No call may throw. Without pieces
// there is one part, which is empty.
template <class First, class Second>
void in_two_phases(Index pieces, Index work, const First &first, const Second &second) noexcept {
    const Index most = work < kWorthATeam ? 1 : omp_get_max_threads();
    const int threads = static_cast<int>(std::min(most, pieces));
    if (threads <= 1) {
        first(Index{0}, pieces);
        second(Index{0}, pieces);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        const Index all = omp_get_num_threads(), mine = omp_get_thread_num();
        const Index begin = pieces * mine / all, end = pieces * (mine + 1) / all;
        first(begin, end);
#pragma omp barrier
        second(begin, end);
    }
}

}  // namespace vtensor::eigen
