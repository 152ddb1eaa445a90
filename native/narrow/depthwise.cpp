// native/narrow/depthwise.cpp: depthwise convolutions of bytes, by products of pairs of words, or
// of fours of bytes where the machine has VNNI.
#include <array>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "operands.h"
#include "vnni.h"
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

// A convolution of each channel by itself. Bands of lines are copied for a vector of channels, in
// the form in which `line` reads them.
class Depthwise : public Multiplying {
public:
    Depthwise(const Convolution &call, Form form, Index lanes)
        : Multiplying("depthwise", checked(call).ending, call.outputs,
                      times(times(call.images, product_of(call.dst)), call.outputs)),
          call_(call), signed_weights_(is_signed(call.weights_type)), lanes_(lanes),
          window_(call, Kind{"", form, 1, 1, nullptr, nullptr, nullptr}, lanes),
          taps_(product_of(call.taps)), vectors_(up(call.channels, lanes) / lanes) {
        demand(call.src_zeros == 0 || call.src_zeros == 1, "an image has one zero point");
        demand(call.weights_zeros == 0 || call.weights_zeros == 1 ||
                   call.weights_zeros == call.outputs,
               "weights have one zero point, or one for each output");
    }

protected:
    // Adds the slots.
    // line: bytes of a line's copy; source: those in which a line is before it gets its form; both
    // multiples of 64. weights: of a vector's weights in the form that `line` reads.
    void reserve(Index line, Index source, Index weights) {
        line_bytes_ = line;
        source_bytes_ = source;
        weights_bytes_ = weights;
        add_operands(times(times(call_.images, product_of(call_.src)), call_.channels),
                     times(taps_, call_.channels), call_.src_zeros, call_.weights_zeros,
                     eigen::plus(times(vectors_, weights_bytes_), times(threads_, own_bytes())));
    }

    // Returns where a line of taps is in a band's copy, from the first one on.
    Index place(Index z, Index y) const {
        return (z * band_lines() + y * call_.dilations[1]) * line_bytes_;
    }
    // Returns the weights of a tap and `count` channels, which follow one another.
    const std::uint8_t *taps(const Operands &at, Index tap, Index channel) const {
        return at.right + tap * call_.channels + channel;
    }
    // Returns the zero point of a channel's weights, as a number.
    Index weights_zero(const Operands &at, Index channel) const {
        const std::uint8_t byte = at.right_zeros[call_.weights_zeros <= 1 ? 0 : channel];
        return signed_weights_ ? Index{static_cast<std::int8_t>(byte)} : Index{byte};
    }
    // Returns the zero point of the image, as a number.
    Index zero(const Operands &at) const {
        return at.left_zeros == nullptr ? 0 : window_.packer.number(*at.left_zeros);
    }

    Convolution call_;
    bool signed_weights_;
    Index lanes_;
    Window window_;
    Index taps_, vectors_;

private:
    static const Convolution &checked(const Convolution &call) {
        check_window(call);
        demand(call.groups == call.channels && call.outputs == call.channels,
               "each channel has one output");
        return call;
    }

    // Stores the weights of `count` channels, from `channel` on.
    virtual void pack(const Operands &at, Index channel, Index count, std::byte *to) const = 0;
    // Brings a line from window_'s form into that of `line`; does nothing if it is the same.
    virtual void arrange(const std::byte *, std::byte *) const {}
    // Computes a line of results. The first one is element `to` of dst.
    virtual void line(const Operands &at, const EndingColumns &columns, const std::byte *from,
                      const std::byte *weights, Index to, Index count) const = 0;

    // Lines of dst that are computed from one copy of the lines that they see.
    Index band() const {
        constexpr Index kBandBytes = Index{1} << 16;
        const Index room = kBandBytes / std::max<Index>(line_bytes_ * call_.taps[0], 1);
        const Index reach = (call_.taps[1] - 1) * call_.dilations[1] + 1;
        return std::clamp<Index>((room - reach) / call_.strides[1] + 1, 1,
                                 std::max<Index>(call_.dst[1], 1));
    }
    Index band_lines() const {
        return (band() - 1) * call_.strides[1] + (call_.taps[1] - 1) * call_.dilations[1] + 1;
    }
    // Bytes of scratch that a thread needs.
    Index own_bytes() const {
        return eigen::plus(times(times(call_.taps[0], band_lines()), line_bytes_), source_bytes_);
    }

    void compute(const Operands &at) const override {
        const auto weights = [&](Index vector) { return at.scratch + vector * weights_bytes_; };
        const auto channels = [&](Index vector) {
            return std::min(lanes_, call_.channels - vector * lanes_);
        };
        for (Index vector = 0; vector < vectors_; ++vector)
            pack(at, vector * lanes_, channels(vector), weights(vector));
        const Index bands = up(call_.dst[1], band()) / band();
        const Index pieces = call_.images * vectors_ * call_.dst[0] * bands;
        const Index work = call_.images * product_of(call_.dst) * call_.outputs * taps_ * 4;
        share(pieces, work, [&](Index worker, Index piece) {
            std::byte *source = weights(vectors_) + worker * own_bytes();
            std::byte *copy = source + source_bytes_;
            // One after another, vectors of channels read the same lines of the cache.
            const Index vector = piece % vectors_, band_ = piece / vectors_ % bands;
            const Index z = piece / vectors_ / bands % call_.dst[0];
            const Index image = piece / vectors_ / bands / call_.dst[0];
            const Index first = band_ * band(), last = std::min(first + band(), call_.dst[1]);
            const Index channel = vector * lanes_, count = channels(vector);
            const Index seen = (last - first - 1) * call_.strides[1] +
                               (call_.taps[1] - 1) * call_.dilations[1] + 1;
            const std::uint8_t *from =
                at.left + image * product_of(call_.src) * call_.channels + channel;
            for (Index tap = 0; tap < call_.taps[0]; ++tap) {
                for (Index line = 0; line < seen; ++line) {
                    std::byte *to = copy + (tap * band_lines() + line) * line_bytes_;
                    window_.line_at(from, call_.channels, count, zero(at),
                                    z * call_.strides[0] + tap * call_.dilations[0],
                                    first * call_.strides[1] + line,
                                    source_bytes_ > 0 ? source : to);
                    arrange(source, to);
                }
            }
            const EndingColumns columns = ending_.columns(at.ending, channel, count);
            for (Index y = first; y < last; ++y) {
                const Index to = ((image * call_.dst[0] + z) * call_.dst[1] + y) * call_.dst[2];
                line(at, columns, copy + (y - first) * call_.strides[1] * line_bytes_,
                     weights(vector), to * call_.outputs + channel, count);
            }
        });
    }

    Index line_bytes_ = 0, source_bytes_ = 0, weights_bytes_ = 0;
};

// Words minus their zero points, and weights in pairs of taps.
class Pairs final : public Depthwise {
public:
    explicit Pairs(const Convolution &call)
        : Depthwise(call, Form::words, kWords), pairs_(up(taps_, 2) / 2) {
        reserve(up(window_.line_bytes(), 64), 0, times(pairs_, 2 * kVectorBytes));
        for (Index z = 0; z < call.taps[0]; ++z)
            for (Index y = 0; y < call.taps[1]; ++y)
                for (Index x = 0; x < call.taps[2]; ++x)
                    offsets_.push_back(place(z, y) +
                                       x * call.dilations[2] * window_.pixel_bytes());
        if (taps_ % 2 != 0) offsets_.push_back(offsets_.back());  // its factors are 0
    }

private:
    void pack(const Operands &at, Index channel, Index count, std::byte *to) const override {
        alignas(64) std::int16_t zeros[kWords] = {}, numbers[2][kWords];
        for (Index i = 0; i < count; ++i)
            zeros[i] = static_cast<std::int16_t>(weights_zero(at, channel + i));
        const Packer packer{Form::words, signed_weights_};
        for (Index tap = 0; tap < taps_; tap += 2, to += 2 * kVectorBytes) {
            std::memset(numbers, 0, sizeof numbers);
            for (Index half = 0; half < std::min<Index>(2, taps_ - tap); ++half) {
                packer.copy(taps(at, tap + half, channel), count, 0,
                            reinterpret_cast<std::byte *>(numbers[half]));
                for (Index i = 0; i < kWords; ++i)
                    numbers[half][i] = static_cast<std::int16_t>(numbers[half][i] - zeros[i]);
            }
            const auto bytes = reinterpret_cast<const std::byte *>(numbers);
            const Words a = load(bytes), b = load(bytes + kVectorBytes);
            const Words halves[2] = {low(a, b), high(a, b)};
            std::memcpy(to, halves, sizeof halves);
        }
    }

    void line(const Operands &at, const EndingColumns &columns, const std::byte *from,
              const std::byte *weights, Index to, Index count) const override {
        const Index step = call_.strides[2] * window_.pixel_bytes();
        alignas(64) std::int32_t sums[kRows * kColumns];
        for (Index first = 0; first < call_.dst[2]; first += kRows) {
            const Index some = std::min(kRows, call_.dst[2] - first);
            const std::byte *begin = from + first * step;
            Index x = 0;
            for (; x + kPixels <= some; x += kPixels)
                pixels<kPixels>(begin + x * step, step, weights, sums + x * kColumns);
            for (; x < some; ++x) pixels<1>(begin + x * step, step, weights, sums + x * kColumns);
            ending_.store(at.ending, columns, sums, some, count, to + first * call_.outputs,
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

    Index pairs_;
    Ints offsets_;
};

#if defined(__AVX2__)

// Unsigned bytes, and signed weights, in fours of taps along a line: a line's copy has the channels
// of four pixels in turns, once for each pixel at which a four begins. Zero points are subtracted
// from the sums: sum of (x - zero) * (w - zero of w).
class Fours final : public Depthwise {
public:
    explicit Fours(const Convolution &call)
        : Depthwise(call, Form::shifted, kFours), across_(up(call.taps[2], 4) / 4) {
        const Index reach = 4 * call.dilations[2], lines = call.taps[0] * call.taps[1];
        gap_ = across_ == 1 ? call.strides[2] : std::gcd(call.strides[2], reach);
        const Index last = (std::max<Index>(call.dst[2], 1) - 1) * call.strides[2] +
                           (across_ - 1) * reach;
        places_ = last / gap_ + 1;
        fours_ = times(lines, across_);
        reserve(times(places_, kVector),
                up(times(last + 3 * call.dilations[2] + 1, window_.pixel_bytes()), 64),
                times(fours_ + 2, kVector));
        for (Index z = 0; z < call.taps[0]; ++z)
            for (Index y = 0; y < call.taps[1]; ++y)
                for (Index x = 0; x < across_; ++x)
                    offsets_.push_back(place(z, y) + x * reach / gap_ * kVector);
    }

private:
    using Sums = std::int32_t __attribute__((vector_size(sizeof(Vector))));
    static constexpr Index kVector = sizeof(Vector);
    static constexpr Index kMost = 8;  // results of a line that are computed together

    static Vector vector(const void *at) {
        Vector value;
        std::memcpy(&value, at, sizeof value);
        return value;
    }

    // Returns the channels of four pixels in turns.
    static Vector turned(Vector pixels) {
        // First words of four channels, of the four pixels; then the bytes of each group.
        const auto groups = [] {
            alignas(64) std::array<std::int32_t, kFours> order;
            for (int i = 0; i < kFours; ++i) order[i] = i % 4 * (kFours / 4) + i / 4;
            return vector(order.data());
        };
        const auto bytes = [] {
            alignas(64) std::array<std::int8_t, kVector> order;
            for (int i = 0; i < kVector; ++i)
                order[i] = static_cast<std::int8_t>(i % 4 * 4 + i / 4 % 4);
            return vector(order.data());
        };
#if defined(__AVX512F__)
        return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(groups(), pixels), bytes());
#else
        return _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(pixels, groups()), bytes());
#endif
    }

    void arrange(const std::byte *from, std::byte *to) const override {
        const Index next = call_.dilations[2] * kFours;
        for (Index i = 0; i < places_; ++i, from += gap_ * kFours, to += kVector) {
            Vector pixels;
            if (next == kFours) {
                pixels = vector(from);
            } else {
                alignas(64) std::array<std::byte, kVector> four;
                for (Index k = 0; k < 4; ++k)
                    std::memcpy(four.data() + k * kFours, from + k * next, kFours);
                pixels = vector(four.data());
            }
            const Vector value = turned(pixels);
            std::memcpy(to, &value, sizeof value);
        }
    }

    // After the fours come, for each channel, what sums begin with and the zero point.
    void pack(const Operands &at, Index channel, Index count, std::byte *to) const override {
        const std::uint8_t flip = signed_weights_ ? 0 : 0x80;
        alignas(64) std::array<std::int32_t, kFours> sums{}, zeros{};
        for (Index row = 0; row < fours_; ++row, to += kVector) {
            alignas(64) std::array<std::int8_t, kVector> four{};
            const Index x = row % across_ * 4, tap = row / across_ * call_.taps[2] + x;
            for (Index k = 0; k < std::min<Index>(4, call_.taps[2] - x); ++k) {
                const std::uint8_t *from = taps(at, tap + k, channel);
                for (Index i = 0; i < count; ++i) {
                    const auto weight = static_cast<std::int8_t>(from[i] ^ flip);
                    four[static_cast<std::size_t>(k * kFours + i)] = weight;
                    sums[static_cast<std::size_t>(i)] += weight;
                }
            }
            const Vector value = turned(vector(four.data()));
            std::memcpy(to, &value, sizeof value);
        }
        const auto own = static_cast<std::int32_t>(window_.packer.zero(zero(at)));
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            const Index number = weights_zero(at, channel + static_cast<Index>(i));
            zeros[i] = static_cast<std::int32_t>(signed_weights_ ? number : number - 128);
            sums[i] = own * (static_cast<std::int32_t>(taps_) * zeros[i] - sums[i]);
        }
        std::memcpy(to, sums.data(), kVector);
        std::memcpy(to + kVector, zeros.data(), kVector);
    }

    void line(const Operands &at, const EndingColumns &columns, const std::byte *from,
              const std::byte *weights, Index to, Index count) const override {
        Sums zeros;
        std::memcpy(&zeros, weights + (fours_ + 1) * kVector, sizeof zeros);
        bool centered = false;
        for (int i = 0; i < kFours; ++i) centered = centered || zeros[i] != 0;
        const Index step = call_.strides[2] / gap_ * kVector;
        alignas(64) std::int32_t sums[kRows * kColumns];
        const auto pixels = [&]<int kCount>(std::integral_constant<int, kCount>, Index x) {
            const std::byte *begin = from + x * step;
            std::int32_t *into = sums + x % kRows * kColumns;
            if (centered)
                results<kCount, true>(begin, step, weights, into);
            else
                results<kCount, false>(begin, step, weights, into);
        };
        for (Index first = 0; first < call_.dst[2]; first += kRows) {
            const Index last = std::min(first + kRows, call_.dst[2]);
            Index x = first;
            for (; x + kMost <= last; x += kMost) pixels(std::integral_constant<int, kMost>(), x);
            for (; x + 3 <= last; x += 3) pixels(std::integral_constant<int, 3>(), x);
            for (; x < last; ++x) pixels(std::integral_constant<int, 1>(), x);
            ending_.store(at.ending, columns, sums, last - first, count,
                          to + first * call_.outputs, call_.outputs);
        }
    }

    template <int kCount, bool kCentered>
    void results(const std::byte *from, Index step, const std::byte *weights,
                 std::int32_t *to) const {
        const Vector begin = vector(weights + fours_ * kVector);
        Vector sums[kCount], plain[kCentered ? kCount : 1] = {};
        for (Vector &sum : sums) sum = begin;
        for (Index row = 0; row < fours_; ++row) {
            const Vector factors = vector(weights + row * kVector);
            const Vector ones = kCentered ? counted(row % across_ * 4) : Vector{};
#pragma GCC unroll 8
            for (int i = 0; i < kCount; ++i) {
                const Vector four = vector(from + i * step + offsets_[row]);
                add_fours(sums[i], four, factors);
                if constexpr (kCentered) add_fours(plain[i], four, ones);
            }
        }
        for (int i = 0; i < kCount; ++i) {
            if constexpr (kCentered) {
                Sums zeros;
                std::memcpy(&zeros, weights + (fours_ + 1) * kVector, sizeof zeros);
                const Sums less = reinterpret_cast<Sums>(plain[i]) * zeros;
                sums[i] = reinterpret_cast<Vector>(reinterpret_cast<Sums>(sums[i]) - less);
            }
            std::memcpy(to + i * kColumns, &sums[i], sizeof sums[i]);
        }
    }

    // Returns 1 for each of four taps, from tap x of a line on, that the line has, else 0.
    Vector counted(Index x) const {
        std::uint32_t four = 0;
        for (Index k = 0; k < std::min<Index>(4, call_.taps[2] - x); ++k) four |= 1U << (8 * k);
        const Sums repeated = static_cast<std::int32_t>(four) - Sums{};
        return reinterpret_cast<Vector>(repeated);
    }

    Index across_, gap_ = 1, places_ = 0, fours_ = 0;  // fours along a line, and all
    Ints offsets_;
};

#endif

}  // namespace

Step *depthwise(const Convolution &call) {
#if defined(__AVX2__)
    if (kind_for(call.instructions, kRows).form != Form::words) return new Fours(call);
#endif
    return new Pairs(call);
}

}  // namespace vtensor::narrow
