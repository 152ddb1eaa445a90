// native/include/vtensor/float_flags.h: floating-point exceptions that the threads of a team have
// raised. No Python in here.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "vtensor/step.h"

namespace vtensor {

// Returns 1 if the calling thread has raised one of these exceptions (of enum vtensor_doubt), else
// 0, and clears them. Kernels compute in vectors, whose flags are in MXCSR; <cfenv> would read the
// flags of the x87 unit as well.
inline int thread_takes(std::uint32_t doubt) {
#if defined(__x86_64__)
    const unsigned flags = ((doubt & VTENSOR_INVALID) != 0 ? _MM_EXCEPT_INVALID : 0) |
                           ((doubt & VTENSOR_OVERFLOW) != 0 ? _MM_EXCEPT_OVERFLOW : 0);
    const unsigned state = _mm_getcsr();
    if ((state & flags) == 0) return 0;
    _mm_setcsr(state & ~flags);
    return 1;
#else
    const int flags = ((doubt & VTENSOR_INVALID) != 0 ? FE_INVALID : 0) |
                      ((doubt & VTENSOR_OVERFLOW) != 0 ? FE_OVERFLOW : 0);
    if (std::fetestexcept(flags) == 0) return 0;
    std::feclearexcept(flags);
    return 1;
#endif
}

// Returns whether any thread of the calling thread's team has raised one of these exceptions (of
// enum vtensor_doubt), and clears them. libgomp gives a thread the same team in each parallel
// region, so that the flags are those of the threads that computed.
inline bool team_takes(std::uint32_t doubt) {
    int found = 0;
#pragma omp parallel reduction(| : found)
    found |= thread_takes(doubt);
    return found != 0;
}

}  // namespace vtensor
