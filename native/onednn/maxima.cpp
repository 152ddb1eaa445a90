// native/onednn/maxima.cpp: the NaN and infinities that oneDNN's max pooling loses.
#include "maxima.h"

#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <cstdint>

namespace vtensor::onednn {

namespace {

// A floating-point type by its bits: a sign, then a magnitude that grows as a whole number does.
template <typename Bits, Bits kInfinity>
struct Float {
    using Type = Bits;
    static constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    static constexpr Bits kLowest = kSign | kInfinity;

    static bool is_nan(Bits bits) { return static_cast<Bits>(bits & ~kSign) > kInfinity; }
    static std::int64_t order(Bits bits) {
        const auto magnitude = static_cast<std::int64_t>(bits & static_cast<Bits>(~kSign));
        return (bits & kSign) != 0 ? -magnitude : magnitude;
    }
};

template <typename F>
bool holds_odd(const typename F::Type *values, std::int64_t count) {
    int found = 0;
#pragma omp parallel for simd reduction(| : found)
    for (std::int64_t i = 0; i < count; ++i)
        found |= static_cast<int>(F::is_nan(values[i])) | static_cast<int>(values[i] == F::kLowest);
    return found != 0;
}

// Where the elements of a dim lie, in elements; the place of an element is a sum over its dims.
Ints places(const Desc &desc, int dim) {
    Ints found;
    for (dnnl_dim_t i = 0; i < desc.dims()[static_cast<std::size_t>(dim)]; ++i) {
        dnnl_dim_t place = 0, index = i, inside = 1;
        for (std::size_t b = desc.blocks().size(); b-- > 0;) {
            const auto &[size, blocked] = desc.blocks()[b];
            if (blocked == dim) {
                place += index % size * inside;
                index /= size;
            }
            inside *= size;
        }
        found.push_back(place + index * desc.strides()[static_cast<std::size_t>(dim)]);
    }
    return found;
}

// For each position along a spatial dim of dst, the places in src that its window sees.
std::vector<Ints> windows(const Window &window, std::size_t d, const Ints &along, dnnl_dim_t count) {
    std::vector<Ints> seen(static_cast<std::size_t>(count));
    for (dnnl_dim_t i = 0; i < count; ++i) {
        for (dnnl_dim_t k = 0; k < window.kernel[d]; ++k) {
            const dnnl_dim_t at =
                i * window.strides[d] - window.pads_begin[d] + k * window.dilations[d];
            if (at >= 0 && at < static_cast<dnnl_dim_t>(along.size()))
                seen[static_cast<std::size_t>(i)].push_back(along[static_cast<std::size_t>(at)]);
        }
    }
    return seen;
}

template <typename F>
typename F::Type largest(const typename F::Type *src, const std::array<const Ints *, 3> &taps) {
    auto best = F::kLowest;
    for (const dnnl_dim_t d : *taps[0]) {
        for (const dnnl_dim_t h : *taps[1]) {
            for (const dnnl_dim_t w : *taps[2]) {
                const auto value = src[d + h + w];
                if (F::is_nan(value)) return value;
                if (F::order(value) > F::order(best)) best = value;
            }
        }
    }
    return best;
}

template <typename F>
void pool(const Window &window, const Desc &src_desc, const Desc &dst_desc,
          const typename F::Type *src, typename F::Type *dst) {
    // A missing spatial dim is one of a single position.
    std::array<std::vector<Ints>, 3> seen{{{{0}}, {{0}}, {{0}}}};
    std::array<Ints, 3> made{{{0}, {0}, {0}}};
    const std::size_t spatial = window.kernel.size();
    for (std::size_t d = 0; d < spatial; ++d) {
        const int dim = static_cast<int>(d) + 2;
        made[3 - spatial + d] = places(dst_desc, dim);
        seen[3 - spatial + d] = windows(window, d, places(src_desc, dim), dst_desc.dims()[d + 2]);
    }
    const Ints from_n = places(src_desc, 0), from_c = places(src_desc, 1);
    const Ints to_n = places(dst_desc, 0), to_c = places(dst_desc, 1);
#pragma omp parallel for collapse(2)
    for (std::size_t n = 0; n < from_n.size(); ++n) {
        for (std::size_t c = 0; c < from_c.size(); ++c) {
            const auto *image = src + src_desc.offset() + from_n[n] + from_c[c];
            auto *result = dst + dst_desc.offset() + to_n[n] + to_c[c];
            for (std::size_t d = 0; d < made[0].size(); ++d) {
                for (std::size_t h = 0; h < made[1].size(); ++h) {
                    for (std::size_t w = 0; w < made[2].size(); ++w)
                        result[made[0][d] + made[1][h] + made[2][w]] =
                            largest<F>(image, {&seen[0][d], &seen[1][h], &seen[2][w]});
                }
            }
        }
    }
}

template <typename F>
void restore(const Window &window, const Desc &src_desc, const Desc &dst_desc, const void *src,
             void *dst) {
    using Bits = typename F::Type;
    const auto *values = static_cast<const Bits *>(src);
    if (holds_odd<F>(values, static_cast<std::int64_t>(src_desc.bytes() / sizeof(Bits))))
        pool<F>(window, src_desc, dst_desc, values, static_cast<Bits *>(dst));
}

}  // namespace

void restore_maxima(const Window &window, const Desc &src_desc, const Desc &dst_desc,
                    const void *src, void *dst) {
    if (src_desc.type() != dst_desc.type()) return;
    if (src_desc.type() == dnnl_f32)
        restore<Float<std::uint32_t, 0x7f800000>>(window, src_desc, dst_desc, src, dst);
    if (src_desc.type() == dnnl_bf16)
        restore<Float<std::uint16_t, 0x7f80>>(window, src_desc, dst_desc, src, dst);
    if (src_desc.type() == dnnl_f16)
        restore<Float<std::uint16_t, 0x7c00>>(window, src_desc, dst_desc, src, dst);
}

}  // namespace vtensor::onednn
