// native/onednn/floats.cpp: search for NaN and -inf in memory.
#include "floats.h"

#include <algorithm>

namespace vtensor::onednn {

namespace {

// Returns whether there is a NaN or -inf. Compares integers as wide as the elements, which
// vectorises.
template <typename F>
[[gnu::always_inline]] inline bool holds_odd(const typename F::Type *values, std::int64_t count) {
    typename F::Type found = 0;
#pragma omp simd reduction(| : found)
    for (std::int64_t i = 0; i < count; ++i) {
        const auto one = values[i];
        found = static_cast<typename F::Type>(found | (F::is_nan(one) | (one == F::kLowest)));
    }
    return found != 0;
}

template <typename F>
bool holds_odd_baseline(const typename F::Type *values, std::int64_t count) {
    return holds_odd<F>(values, count);
}

#if defined(__x86_64__)
template <typename F>
[[gnu::target("avx2")]] bool holds_odd_avx2(const typename F::Type *values, std::int64_t count) {
    return holds_odd<F>(values, count);
}

template <typename F>
auto scanner() {
    return __builtin_cpu_supports("avx2") ? &holds_odd_avx2<F> : &holds_odd_baseline<F>;
}
#else
template <typename F>
auto scanner() {
    return &holds_odd_baseline<F>;
}
#endif

}  // namespace

template <typename F>
std::vector<std::int64_t> odd_blocks(const typename F::Type *values, std::int64_t count) {
    const auto scan = scanner<F>();
    const std::int64_t blocks = (count + kBlock - 1) / kBlock;
    std::vector<std::uint8_t> odd(static_cast<std::size_t>(blocks));
    int any = 0;
#pragma omp parallel for reduction(| : any) if (blocks > 1)
    for (std::int64_t b = 0; b < blocks; ++b) {
        const bool here = scan(values + b * kBlock, std::min(kBlock, count - b * kBlock));
        odd[static_cast<std::size_t>(b)] = here;
        any |= here;
    }
    std::vector<std::int64_t> found;
    for (std::int64_t b = 0; any != 0 && b < blocks; ++b)
        if (odd[static_cast<std::size_t>(b)] != 0) found.push_back(b);
    return found;
}

template std::vector<std::int64_t> odd_blocks<F32>(const std::uint32_t *, std::int64_t);
template std::vector<std::int64_t> odd_blocks<Bf16>(const std::uint16_t *, std::int64_t);
template std::vector<std::int64_t> odd_blocks<F16>(const std::uint16_t *, std::int64_t);

}  // namespace vtensor::onednn
