// native/narrow/vnni.h: sums of four products of bytes in a lane, by VNNI of AVX-512 or AVX.
#pragma once

#if defined(__AVX2__)

#include <immintrin.h>

namespace vtensor::narrow {

// add_fours: to each sum the products of four unsigned and four signed bytes. As the intrinsics,
// whose sums GCC 12 would copy from register to register, and to memory. As assembly, an
// instruction needs no compiler option by which code for other machines might change.
#if defined(__AVX512F__)
using Vector = __m512i;
constexpr int kFours = 16;  // lanes of a vector
[[gnu::always_inline]] inline void add_fours(Vector &sums, const Vector &factor,
                                              const Vector &columns) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(factor), "v"(columns));
}
#else
using Vector = __m256i;
constexpr int kFours = 8;
[[gnu::always_inline]] inline void add_fours(Vector &sums, const Vector &factor,
                                              const Vector &columns) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(factor), "x"(columns));
}
#endif

}  // namespace vtensor::narrow

#endif
