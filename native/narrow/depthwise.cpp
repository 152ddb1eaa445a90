// native/narrow/depthwise.cpp: depthwise convolutions of bytes, by products of pairs of words.
#include <cstring>

#include "operands.h"
#include "window.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace vtensor::narrow {

namespace {

// Pixels have their channels in vectors of kWords words. Weights are pairs of taps: for each
// vector, the words of both taps in turns, as a product of pairs adds them up.
#if defined(__AVX512BW__)
constexpr Index kWords = 32;
using Words = __m512i;
inline Words low(Words a, Words b) { return _mm512_unpacklo_epi16(a, b); }
inline Words high(Words a, Words b) { return _mm512_unpackhi_epi16(a, b); }
inline Words added(Words sums, Words a, Words b) {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b));
}
#elif defined(__AVX2__)
constexpr Index kWords = 16;
using Words = __m256i;
inline Words low(Words a, Words b) { return _mm256_unpacklo_epi16(a, b); }
inline Words high(Words a, Words b) { return _mm256_unpackhi_epi16(a, b); }
inline Words added(Words sums, Words a, Words b) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
}
#elif defined(__SSE2__)
constexpr Index kWords = 8;
using Words = __m128i;
inline Words low(Words a, Words b) { return _mm_unpacklo_epi16(a, b); }
inline Words high(Words a, Words b) { return _mm_unpackhi_epi16(a, b); }
inline Words added(Words sums, Words a, Words b) {
    return _mm_add_epi32(sums, _mm_madd_epi16(a, b));
}
#else
constexpr Index kWords = 8;
struct Words {
    std::int16_t words[8];
};
inline Words joined(const Words &a, const Words &b, int first) {
    Words value;
    for (int i = 0; i < 8; ++i) value.words[i] = (i % 2 == 0 ? a : b).words[first + i / 2];
    return value;
}
inline Words low(const Words &a, const Words &b) { return joined(a, b, 0); }
inline Words high(const Words &a, const Words &b) { return joined(a, b, 4); }
inline Words added(const Words &sums, const Words &a, const Words &b) {
    std::int32_t four[4];
    std::memcpy(four, &sums, sizeof four);
    for (int i = 0; i < 4; ++i)
        four[i] += a.words[2 * i] * b.words[2 * i] + a.words[2 * i + 1] * b.words[2 * i + 1];
    Words value;
    std::memcpy(&value, four, sizeof four);
    return value;
}
#endif

inline Words load(const std::byte *at) {
    Words words;
    std::memcpy(&words, at, sizeof words);
    return words;
}

constexpr Index kVectorBytes = kWords * 2;
constexpr Index kPixels = 4;  // results of a line that are computed together
static_assert(kWords <= kColumns);

// Stores sums in the order of channels: `low` has the first half of each 16 bytes' words.
inline void store(const Words &first, const Words &second, std::int32_t *to) {
#if defined(__AVX512BW__)
    const auto order = [](int begin) {
        const __m512i steps =
            _mm512_set_epi32(19, 18, 17, 16, 3, 2, 1, 0, 19, 18, 17, 16, 3, 2, 1, 0);
        const __m512i parts = _mm512_set_epi32(4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0);
        return _mm512_add_epi32(_mm512_add_epi32(steps, parts), _mm512_set1_epi32(begin));
    };
    _mm512_storeu_si512(to, _mm512_permutex2var_epi32(first, order(0), second));
    _mm512_storeu_si512(to + 16, _mm512_permutex2var_epi32(first, order(8), second));
#elif defined(__AVX2__)
    auto *vectors = reinterpret_cast<__m256i *>(to);
    _mm256_storeu_si256(vectors, _mm256_permute2x128_si256(first, second, 0x20));
    _mm256_storeu_si256(vectors + 1, _mm256_permute2x128_si256(first, second, 0x31));
#else
    std::memcpy(to, &first, sizeof first);
    std::memcpy(to + kWords / 2, &second, sizeof second);
#endif
}

class Depthwise final : public Multiplying {
public:
    explicit Depthwise(const Convolution &call)
        : Multiplying("depthwise", checked(call).ending, call.outputs,
                      times(times(call.images, product_of(call.dst)), call.outputs)),
          call_(call), signed_weights_(is_signed(call.weights_type)),
          window_(call, Kind{"", Form::words, 1, 1, nullptr, nullptr, nullptr}, kWords),
          taps_(product_of(call.taps)), pairs_(up(taps_, 2) / 2),
          vectors_(up(call.channels, kWords) / kWords) {
        demand(call.src_zeros == 0 || call.src_zeros == 1, "an image has one zero point");
        demand(call.weights_zeros == 0 || call.weights_zeros == 1 ||
                   call.weights_zeros == call.outputs,
               "weights have one zero point, or one for each output");
        for (Index z = 0; z < call.taps[0]; ++z)
            for (Index y = 0; y < call.taps[1]; ++y)
                for (Index x = 0; x < call.taps[2]; ++x)
                    offsets_.push_back(place(z, y, x));
        if (taps_ % 2 != 0) offsets_.push_back(offsets_.back());  // its factors are 0
        weights_bytes_ = times(times(vectors_, pairs_), 2 * kVectorBytes);
        add_operands(times(times(call.images, product_of(call.src)), call.channels),
                     times(taps_, call.channels), call.src_zeros, call.weights_zeros,
                     eigen::plus(weights_bytes_, times(threads_, band_bytes())));
    }

private:
    static const Convolution &checked(const Convolution &call) {
        check_window(call);
        demand(call.groups == call.channels && call.outputs == call.channels,
               "each channel has one output");
        return call;
    }

    // Lines of dst that are computed from one copy of the lines that they see.
    Index band() const {
        constexpr Index kBandBytes = Index{1} << 17;
        const Index room = kBandBytes / std::max<Index>(window_.line_bytes() * call_.taps[0], 1);
        const Index reach = (call_.taps[1] - 1) * call_.dilations[1] + 1;
        return std::clamp<Index>((room - reach) / call_.strides[1] + 1, 1,
                                 std::max<Index>(call_.dst[1], 1));
    }
    Index band_lines() const {
        return (band() - 1) * call_.strides[1] + (call_.taps[1] - 1) * call_.dilations[1] + 1;
    }
    Index band_bytes() const {
        return up(times(times(call_.taps[0], band_lines()), window_.line_bytes()), 64);
    }
    // Returns where a tap is in a band's copy, from the first one on.
    Index place(Index z, Index y, Index x) const {
        return (z * band_lines() + y * call_.dilations[1]) * window_.line_bytes() +
               x * call_.dilations[2] * window_.pixel_bytes();
    }

    void compute(const Operands &at) const override {
        for (Index vector = 0; vector < vectors_; ++vector) pack(at, vector);
        const Index zero = at.left_zeros == nullptr ? 0 : window_.packer.number(*at.left_zeros);
        const Index bands = up(call_.dst[1], band()) / band();
        const Index pieces = call_.images * vectors_ * call_.dst[0] * bands;
        const Index work = call_.images * product_of(call_.dst) * call_.outputs * taps_ * 4;
        share(pieces, work, [&](Index worker, Index piece) {
            std::byte *copy = at.scratch + weights_bytes_ + worker * band_bytes();
            const Index band_ = piece % bands, z = piece / bands % call_.dst[0];
            const Index vector = piece / bands / call_.dst[0] % vectors_;
            const Index image = piece / bands / call_.dst[0] / vectors_;
            const Index first = band_ * band(), last = std::min(first + band(), call_.dst[1]);
            const Index channel = vector * kWords;
            const Index count = std::min(kWords, call_.channels - channel);
            const Index seen = (last - first - 1) * call_.strides[1] +
                               (call_.taps[1] - 1) * call_.dilations[1] + 1;
            const std::uint8_t *from =
                at.left + image * product_of(call_.src) * call_.channels + channel;
            for (Index tap = 0; tap < call_.taps[0]; ++tap)
                for (Index line = 0; line < seen; ++line)
                    window_.line_at(from, call_.channels, count, zero,
                                    z * call_.strides[0] + tap * call_.dilations[0],
                                    first * call_.strides[1] + line,
                                    copy + (tap * band_lines() + line) * window_.line_bytes());
            const EndingColumns columns = ending_.columns(at.ending, channel, count);
            const std::byte *weights = at.scratch + vector * pairs_ * 2 * kVectorBytes;
            for (Index y = first; y < last; ++y) {
                const Index to = ((image * call_.dst[0] + z) * call_.dst[1] + y) * call_.dst[2];
                line(at, columns, copy + (y - first) * call_.strides[1] * window_.line_bytes(),
                     weights, to * call_.outputs + channel, count);
            }
        });
    }

    // Stores the weights of a vector of channels in pairs of taps, minus their zero points.
    void pack(const Operands &at, Index vector) const {
        auto *to = reinterpret_cast<std::int16_t *>(at.scratch) + vector * pairs_ * 2 * kWords;
        const Index first = vector * kWords;
        for (Index pair = 0; pair < pairs_; ++pair) {
            for (Index half = 0; half < 2; ++half) {
                for (Index group = 0; group < kWords / 2; ++group, to += 2) {
                    const Index channel = first + group / 4 * 8 + half * 4 + group % 4;
                    for (Index tap = 0; tap < 2; ++tap)
                        to[tap] = weight(at, 2 * pair + tap, channel);
                }
            }
        }
    }

    std::int16_t weight(const Operands &at, Index tap, Index channel) const {
        if (tap >= taps_ || channel >= call_.channels) return 0;
        const auto number = [&](std::uint8_t byte) {
            return signed_weights_ ? Index{static_cast<std::int8_t>(byte)} : Index{byte};
        };
        const Index value = number(at.right[tap * call_.channels + channel]);
        const Index zero = call_.weights_zeros <= 1 ? 0 : channel;
        return static_cast<std::int16_t>(value - number(at.right_zeros[zero]));
    }

    void line(const Operands &at, const EndingColumns &columns, const std::byte *from,
              const std::byte *weights, Index to, Index count) const {
        const Index step = call_.strides[2] * window_.pixel_bytes();
        alignas(64) std::int32_t sums[kPixels * kColumns];
        Index x = 0;
        for (; x + kPixels <= call_.dst[2]; x += kPixels) {
            pixels<kPixels>(from + x * step, step, weights, sums);
            ending_.store(at.ending, columns, sums, kPixels, count, to + x * call_.outputs,
                          call_.outputs);
        }
        for (; x < call_.dst[2]; ++x) {
            pixels<1>(from + x * step, step, weights, sums);
            ending_.store(at.ending, columns, sums, 1, count, to + x * call_.outputs,
                          call_.outputs);
        }
    }

    template <int kCount>
    void pixels(const std::byte *from, Index step, const std::byte *weights,
                std::int32_t *to) const {
        Words lows[kCount] = {}, highs[kCount] = {};
        const Index *offset = offsets_.data();
        for (Index pair = 0; pair < pairs_; ++pair, offset += 2, weights += 2 * kVectorBytes) {
            const Words first = load(weights), second = load(weights + kVectorBytes);
#pragma GCC unroll 4
            for (int i = 0; i < kCount; ++i) {
                const Words a = load(from + i * step + offset[0]);
                const Words b = load(from + i * step + offset[1]);
                lows[i] = added(lows[i], low(a, b), first);
                highs[i] = added(highs[i], high(a, b), second);
            }
        }
        for (int i = 0; i < kCount; ++i) store(lows[i], highs[i], to + i * kColumns);
    }

    Convolution call_;
    bool signed_weights_;
    Window window_;
    Index taps_, pairs_, vectors_, weights_bytes_ = 0;
    Ints offsets_;
};

}  // namespace

Step *depthwise(const Convolution &call) { return new Depthwise(call); }

}  // namespace vtensor::narrow
