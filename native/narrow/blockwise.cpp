// native/narrow/blockwise.cpp: products with weights of 2, 4 or 8 bits in blocks.
//
// Codes are read as words of 32 bits, a vector of words at a time. Part j of a word is its j-th
// code.
//
// For few rows, a vector of words (a chunk) is of one output, and the sums of its products are
// added at the end. The row's numbers are arranged first: part j of a chunk is multiplied by a
// vector of numbers. All codes of a word are of one block, so that a lane has one scale.
//
// For more rows, words of neighbouring outputs are made a vector, and their weights are widened
// once for all rows, for as many codes of a row as fit into a cache.
#include "blockwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "eigen/check.h"
#include "eigen/parallel.h"
#include "rounded.h"
#include "winograd/ending.h"
#include "winograd/vector.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace vtensor::narrow {

namespace {

using eigen::demand;
using eigen::plus;
using eigen::times;
using winograd::all;
using winograd::each;
using winograd::kLanes;
using winograd::load;
using winograd::put;
using winograd::some;
using winograd::store;
using winograd::Vector;

using Byte = std::uint8_t;
using Words = std::uint32_t __attribute__((vector_size(kLanes * sizeof(float))));
using Integers = std::int32_t __attribute__((vector_size(kLanes * sizeof(float))));

constexpr Index kLine = 16;  // floats of a cache line
constexpr Index kWordBytes = sizeof(std::uint32_t), kChunkBytes = kLanes * kWordBytes;
// Outputs whose weights are widened together.
constexpr Index kWidth = 2 * kLanes;
// Codes of an output that are widened at a time: fewer, which stay in the first cache, if they are
// used by no more than kShallowRows rows. kMostRows rows of kDepth numbers stay in the second cache
// while the weights of all outputs pass.
constexpr Index kDepth = 1024, kShallow = 256, kShallowRows = 2 * winograd::kMostRows;
constexpr Index kMostRows = 16 * winograd::kMostRows;
// The most rows for which each row reads the codes by itself.
constexpr Index kFewRows = 3;
// How far ahead codes are prefetched, in bytes.
constexpr Index kAhead = 2048;
// Whether rounded numbers are multiplied as integers.
#if defined(__AVX2__)
constexpr bool kMultipliesIntegers = true;
#else
constexpr bool kMultipliesIntegers = false;
#endif

Words repeat(std::uint32_t value) { return Words{} + value; }
Words numbered() {
    return []<int... kLane>(std::integer_sequence<int, kLane...>) {
        return Words{static_cast<std::uint32_t>(kLane)...};
    }(std::make_integer_sequence<int, kLanes>{});
}

// Loads words; those from `count` on are 0 and are not read.
[[gnu::always_inline]] inline Words some_words(const void *from, Index count) {
    Words words{};
    if (count >= kLanes) {
        std::memcpy(&words, from, sizeof words);
        return words;
    }
#if defined(__AVX512F__)
    return reinterpret_cast<Words>(_mm512_maskz_loadu_epi32(winograd::first_of(count), from));
#elif defined(__AVX2__)
    const auto there = numbered() < repeat(static_cast<std::uint32_t>(count));
    return reinterpret_cast<Words>(
        _mm256_maskload_epi32(static_cast<const int *>(from), reinterpret_cast<__m256i>(there)));
#else
    std::memcpy(&words, from, static_cast<std::size_t>(count * kWordBytes));
    return words;
#endif
}

// Returns lanes of a vector, by their numbers.
[[gnu::always_inline]] inline Vector picked(Vector from, Words lanes) {
#if defined(__AVX512F__)
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(lanes), from);
#elif defined(__AVX2__)
    return _mm256_permutevar8x32_ps(from, reinterpret_cast<__m256i>(lanes));
#else
    return __builtin_shuffle(from, lanes);
#endif
}

[[gnu::always_inline]] inline float sum(Vector value) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(value);
#else
    for (std::uint32_t step = kLanes / 2; step > 0; step /= 2)
        value += picked(value, numbered() ^ repeat(step));
    return value[0];
#endif
}

// Exchanges rows and columns of kLanes vectors.
[[gnu::always_inline]] inline void transpose(Words (&rows)[kLanes]) {
    each<std::countr_zero(static_cast<unsigned>(kLanes))>([&](auto level) __attribute__((
        always_inline)) {
        constexpr int kStep = 1 << level;
        const Words lane = numbered(), bit = lane & repeat(kStep);
        const Words second = bit * (kLanes / kStep);  // lanes of the second vector come after
        each<kLanes>([&](auto i) __attribute__((always_inline)) {
            if constexpr ((i & kStep) == 0) {
                const Words a = rows[i], b = rows[i | kStep];
                rows[i] = __builtin_shuffle(a, b, (lane ^ bit) + second);
                rows[i | kStep] = __builtin_shuffle(a, b, (lane | repeat(kStep)) + second);
            }
        });
    });
}

// The codes of a vector of words as numbers, minus 2^(kBits - 1).
template <int kBits>
class Codes {
public:
    static constexpr int kParts = 32 / kBits;
    static constexpr float kMiddle = 1 << (kBits - 1);

    [[gnu::always_inline]] explicit Codes(Words words)
        : words_(kLooksUp ? words : words ^ repeat(kSigns)) {}

    template <int kPart>
    [[gnu::always_inline]] Vector part() const {
        if constexpr (kLooksUp) {
            return picked(table(), words_ >> (kBits * kPart));
        } else {
            const Words high = words_ << (32 - kBits * (kPart + 1));
            return __builtin_convertvector(reinterpret_cast<Integers>(high) >> (32 - kBits),
                                           Vector);
        }
    }

private:
    // With 16 lanes, a permutation by the last four bits of each word maps codes to numbers.
    static constexpr bool kLooksUp = kLanes == 16 && kBits <= 4;
    static constexpr std::uint32_t kSigns = 0xFFFFFFFFU / ((1U << kBits) - 1U) << (kBits - 1);

    [[gnu::always_inline]] static Vector table() {
        return __builtin_convertvector(numbered() & repeat((1U << kBits) - 1U), Vector) -
               all(kMiddle);
    }

    Words words_;
};

// What follows from the sizes of weights.
struct Geometry {
    explicit Geometry(const Blocks &call)
        : outputs(call.outputs), depth(call.depth), bits(call.bits), block(call.block) {
        demand(bits == 2 || bits == 4 || bits == 8, "codes have 2, 4 or 8 bits");
        demand(block >= 16 && std::has_single_bit(static_cast<std::uint64_t>(block)),
               "a block has a power of two of codes, at least 16");
        demand(call.zero_bytes == 0 || call.zero_bytes == 1 || call.zero_bytes == 4,
               "zeros are u8 or f32");
        demand(outputs >= 0 && depth > 0, "an output has no weights");
        parts = 32 / bits;
        blocks = plus(depth, block - 1) / block;
        words = times(blocks, block / parts);
        chunks = plus(words, kLanes - 1) / kLanes;
        shift = std::countr_zero(static_cast<std::uint64_t>(block / parts));
    }

    Index outputs, depth, bits, block;
    Index parts;                  // codes of a word
    Index blocks, words, chunks;  // of an output
    int shift;                    // a word is of block (its number >> shift)
};

// Numbers of the blocks of a chunk, each in the lanes of its block.
struct Spread {
    explicit Spread(const Geometry &own)
        : shift(own.shift), count(std::max<Index>(kLanes >> std::min(shift, 31), 1)), lanes{} {
        if (count > 1) lanes = numbered() >> static_cast<unsigned>(shift);
    }

    // Takes the numbers of an output's blocks; lanes past the last block are 0.
    [[gnu::always_inline]] Vector of(const float *row, Index chunk, Index blocks) const {
        const Index at = chunk * kLanes >> shift;
        if (count == 1) return all(row[at]);
        const Index there = std::min(count, blocks - at);
        return picked(reinterpret_cast<Vector>(some_words(row + at, there)), lanes);
    }
    [[gnu::always_inline]] Vector of(const Byte *row, Index chunk, Index blocks) const {
        const Index at = chunk * kLanes >> shift;
        if (count == 1) return all(static_cast<float>(row[at]));
        const Index there = std::min(count, blocks - at);
#if defined(__AVX512F__)
        const __m128i bytes = _mm_maskz_loadu_epi8(winograd::first_of(there), row + at);
        return picked(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), lanes);
#else
        alignas(Vector) float numbers[kLanes] = {};
        for (Index i = 0; i < there; ++i) numbers[i] = static_cast<float>(row[at + i]);
        return picked(load(numbers), lanes);
#endif
    }

    int shift;
    Index count;  // blocks of a chunk, at least 1
    Words lanes;
};

// The operands of a product.
struct Operands {
    const float *x;
    const Byte *weights;
    const float *scales;
    const void *zeros;
    const float *bias;
    float *dst, *scratch;
};

// The weights of an output.
template <class Zero>
struct Weights {
    Weights(const Operands &at, const Geometry &own, Index output)
        : codes(at.weights + output * own.words * kWordBytes),
          scales(at.scales + output * own.blocks),
          zeros(at.zeros == nullptr ? nullptr
                                    : static_cast<const Zero *>(at.zeros) + output * own.blocks) {}

    [[gnu::always_inline]] Words chunk(const Geometry &own, Index number) const {
        const Byte *const from = codes + number * kChunkBytes;
        __builtin_prefetch(from + kAhead);
        return some_words(from, own.words - number * kLanes);
    }

    const Byte *codes;
    const float *scales;
    const Zero *zeros;  // null if there are none
};

// Returns the largest magnitude; NaN if there is one.
float largest(const float *from, Index count) {
    std::uint32_t most = 0;
    for (Index i = 0; i < count; ++i)
        most = std::max(most, std::bit_cast<std::uint32_t>(from[i]) & 0x7FFFFFFFU);
    return std::bit_cast<float>(most);
}

// A block of a row as it is rounded: its numbers, the factor that makes codes of them, and the scale
// of the codes.
struct Rounding {
    Index begin, end;
    float inverse, scale;

    // The code of a number; anything if the scale is not finite.
    int operator()(float number) const { return static_cast<int>(std::lrint(number * inverse)); }
    // The sum of codes as a float; NaN if the scale is not finite.
    float sum(int codes) const {
        return std::isfinite(scale) ? static_cast<float>(codes)
                                    : std::numeric_limits<float>::quiet_NaN();
    }
};

// Calls take(rounding) for each block of a row.
template <class Take>
void round_row(const float *from, const Geometry &own, const Take &take) {
    for (Index begin = 0; begin < own.depth; begin += own.block) {
        const Index end = std::min(begin + own.block, own.depth);
        const float most = largest(from + begin, end - begin);
        take(Rounding{begin, end, most == 0.0f ? 0.0f : 127.0f / most, most / 127.0f});
    }
}

// A row for `dot`: its numbers in the order of a chunk's parts, and their sum for each word.
struct Arranged {
    static Index floats(const Geometry &own) {
        return times(times(own.chunks, own.parts + 1), kLanes);
    }

    Arranged(const Geometry &own, float *to) : numbers(to + own.chunks * kLanes), sums(to) {}

    void fill(const float *from, const Geometry &own) const {
        for (Index chunk = 0; chunk < own.chunks; ++chunk) {
            for (Index lane = 0; lane < kLanes; ++lane) {
                const Index first = (chunk * kLanes + lane) * own.parts;
                const Index there = std::clamp<Index>(own.depth - first, 0, own.parts);
                float total = 0.0f, *to = numbers + chunk * own.parts * kLanes + lane;
                for (Index j = 0; j < there; ++j, to += kLanes) total += *to = from[first + j];
                for (Index j = there; j < own.parts; ++j, to += kLanes) *to = 0.0f;
                sums[chunk * kLanes + lane] = total;
            }
        }
    }

    float *numbers, *sums;
};

template <int kBits, class Zero>
float dot(const Weights<Zero> &weights, const Geometry &own, const Spread &spread,
          const Arranged &row) {
    Vector total{};
    const float *x = row.numbers;
    for (Index chunk = 0; chunk < own.chunks; ++chunk, x += Codes<kBits>::kParts * kLanes) {
        const Codes<kBits> codes(weights.chunk(own, chunk));
        Vector sums[2] = {};
        each<Codes<kBits>::kParts>([&](auto j) __attribute__((always_inline)) {
            sums[j % 2] += codes.template part<j>() * load(x + j * kLanes);
        });
        Vector product = sums[0] + sums[1];
        if (weights.zeros != nullptr) {
            const Vector zero = spread.of(weights.zeros, chunk, own.blocks);
            product -= (zero - all(Codes<kBits>::kMiddle)) * load(row.sums + chunk * kLanes);
        }
        total += spread.of(weights.scales, chunk, own.blocks) * product;
    }
    return sum(total);
}

// A rounded row for `rounded_dot`: its codes in the order in which codes of weights are taken from
// words, and for each word the sum of the row's codes and their scale.
template <int kBits>
struct Rounded {
    // 8-bit codes of weights are multiplied as 16-bit integers, so that no sum saturates.
    using Code = std::conditional_t<kBits == 8, std::int16_t, std::int8_t>;
    // Codes of weights in the unit that holds one of them: kGroups vectors for a chunk.
    static constexpr Index kGroups = kBits == 8 ? 2 : 8 / kBits, kUnits = kChunkBytes / sizeof(Code);

    static Index floats(const Geometry &own) {
        return times(times(own.chunks, kLanes), kGroups + 2);
    }

    Rounded(const Geometry &own, float *to)
        : sums(to), scales(sums + own.chunks * kLanes),
          codes(reinterpret_cast<Code *>(scales + own.chunks * kLanes)) {}

    void fill(const float *from, const Geometry &own) const {
        std::memset(sums, 0, static_cast<std::size_t>(floats(own)) * sizeof(float));
        round_row(from, own, [&](const Rounding &block) {
            for (Index k = block.begin; k < block.end;) {
                const Index word = k / Codes<kBits>::kParts;
                int total = 0;
                for (Index j = 0; j < Codes<kBits>::kParts && k < block.end; ++j, ++k) {
                    const Index unit = k / kGroups;
                    const int code = block(from[k]);
                    codes[(unit / kUnits * kGroups + k % kGroups) * kUnits + unit % kUnits] =
                        static_cast<Code>(code);
                    total += code;
                }
                sums[word] = block.sum(total);
                scales[word] = block.scale;
            }
        });
    }

    float *sums, *scales;
    Code *codes;
};

#if defined(__AVX2__)
// Sums, for each word, the products of its codes and a row's; exact.
template <int kBits>
[[gnu::always_inline]] inline Vector products(Words words, const void *row) {
#if defined(__AVX512F__)
    using Wide = __m512i;
    constexpr auto kPairs = [](Wide a, Wide b) { return _mm512_madd_epi16(a, b); };
    constexpr auto kBytes = [](Wide a, Wide b) { return _mm512_maddubs_epi16(a, b); };
    constexpr auto kAdd = [](Wide a, Wide b) { return _mm512_add_epi16(a, b); };
    const Wide ones = _mm512_set1_epi16(1);
#else
    using Wide = __m256i;
    constexpr auto kPairs = [](Wide a, Wide b) { return _mm256_madd_epi16(a, b); };
    constexpr auto kBytes = [](Wide a, Wide b) { return _mm256_maddubs_epi16(a, b); };
    constexpr auto kAdd = [](Wide a, Wide b) { return _mm256_add_epi16(a, b); };
    const Wide ones = _mm256_set1_epi16(1);
#endif
    const auto group = [&](auto j, std::uint32_t mask) __attribute__((always_inline)) {
        return reinterpret_cast<Wide>(words >> (kBits * j) & repeat(mask));
    };
    const auto numbers = [&](auto j) __attribute__((always_inline)) {
        Wide loaded;
        std::memcpy(&loaded, static_cast<const Byte *>(row) + j * kChunkBytes, sizeof loaded);
        return loaded;
    };
    Wide total{};
    if constexpr (kBits == 8) {
        each<2>([&](auto j) __attribute__((always_inline)) {
            const Wide pairs = kPairs(group(j, 0x00FF00FFU), numbers(j));
            total = reinterpret_cast<Wide>(reinterpret_cast<Words>(total) +
                                           reinterpret_cast<Words>(pairs));
        });
    } else {
        each<8 / kBits>([&](auto j) __attribute__((always_inline)) {
            total = kAdd(total, kBytes(group(j, kBits == 4 ? 0x0F0F0F0FU : 0x03030303U), numbers(j)));
        });
        total = kPairs(total, ones);
    }
    return __builtin_convertvector(reinterpret_cast<Integers>(total), Vector);
}

template <int kBits, class Zero>
float rounded_dot(const Weights<Zero> &weights, const Geometry &own, const Spread &spread,
                  const Rounded<kBits> &row) {
    Vector total{};
    const auto *codes = row.codes;
    const float *sums = row.sums, *scales = row.scales;
    for (Index chunk = 0; chunk < own.chunks; ++chunk) {
        Vector zero = all(Codes<kBits>::kMiddle);
        if (weights.zeros != nullptr) zero = spread.of(weights.zeros, chunk, own.blocks);
        const Vector scale = spread.of(weights.scales, chunk, own.blocks) * load(scales);
        total += scale * (products<kBits>(weights.chunk(own, chunk), codes) - zero * load(sums));
        sums += kLanes;
        scales += kLanes;
        codes += Rounded<kBits>::kGroups * Rounded<kBits>::kUnits;
    }
    return sum(total);
}
#endif

// Loads kLanes words of kLanes outputs, from `word` on: a vector of outputs for each word. Words from
// `end` on are 0.
[[gnu::always_inline]] inline void words_of(const Operands &at, const Geometry &own, Index output,
                                            Index word, Index end, Words (&rows)[kLanes]) {
    for (Index i = 0; i < kLanes; ++i) {
        const bool there = output + i < own.outputs;
        const Index number = there ? (output + i) * own.words + word : 0;
        rows[i] = some_words(at.weights + number * kWordBytes, there ? end - word : 0);
    }
    transpose(rows);
}

// Widens codes `begin` .. `end` (exclusive, in words) of kLanes outputs: a vector of outputs for
// each code, kWidth floats apart.
template <int kBits, class Zero>
void widen(const Operands &at, const Geometry &own, Index output, Index begin, Index end,
           float *to) {
    const Index outputs = std::clamp<Index>(own.outputs - output, 0, kLanes);
    const Weights<Zero> first(at, own, output);
    Index block = -1;
    alignas(Vector) float scales[kLanes] = {}, zeros[kLanes] = {};
    for (Index word = begin; word < end; word += kLanes) {
        Words rows[kLanes];
        words_of(at, own, output, word, end, rows);
        const Index count = std::min<Index>(kLanes, end - word);
        for (Index i = 0; i < count; ++i, to += Codes<kBits>::kParts * kWidth) {
            if ((word + i) >> own.shift != block) {
                block = (word + i) >> own.shift;
                for (Index lane = 0; lane < outputs; ++lane) {
                    const Index number = lane * own.blocks + block;
                    scales[lane] = first.scales[number];
                    if (first.zeros != nullptr)
                        zeros[lane] = static_cast<float>(first.zeros[number]) - Codes<kBits>::kMiddle;
                }
            }
            const Vector scale = load(scales), zero = load(zeros);
            const Codes<kBits> codes(rows[i]);
            each<Codes<kBits>::kParts>([&](auto j) __attribute__((always_inline)) {
                store(to + j * kWidth, (codes.template part<j>() - zero) * scale);
            });
        }
    }
}

// Where sums of a tile go: rows `row` floats apart, in two vectors of outputs.
struct Target {
    const float *bias;  // of the first output; null if there is none, or it has been added
    float *dst;
    Index row, outputs;
    bool adds;  // to earlier sums
};

// Multiplies kRows rows, `row` floats apart, by the widened weights of kWidth outputs.
template <int kRows>
void tile(const float *x, Index row, const float *weights, Index depth, const Target &target) {
    Vector sums[kRows][2] = {};
    for (Index k = 0; k < depth; ++k, weights += kWidth) {
        const Vector first = load(weights), second = load(weights + kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
            const Vector factor = all(x[i * row + k]);
            sums[i][0] += factor * first;
            sums[i][1] += factor * second;
        }
    }
    for (int half = 0; half < 2; ++half) {
        const Index there = std::clamp<Index>(target.outputs - half * kLanes, 0, kLanes);
        if (there == 0) return;
        Vector bias{};
        if (target.bias != nullptr) bias = some(target.bias + half * kLanes, there);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
            float *const to = target.dst + i * target.row + half * kLanes;
            Vector result = sums[i][half] + bias;
            if (target.adds) result += some(to, there);
            put(to, result, there, there);
        }
    }
}

using Tile = void (*)(const float *, Index, const float *, Index, const Target &);
constexpr auto kTiles = []<int... kRows>(std::integer_sequence<int, kRows...>) {
    struct Tiles {
        Tile of[sizeof...(kRows)];
    };
    return Tiles{{&tile<kRows + 1>...}};
}(std::make_integer_sequence<int, winograd::kMostRows>{});

template <int kBits, class Zero>
class Product final : public Step {
public:
    explicit Product(const BlockProduct &call)
        : Step("blocks of " + std::to_string(call.weights.block) + " x " + std::to_string(kBits) +
               " bits" + (call.rounded ? ", rounded" : "")),
          own_(call.weights),
          spread_(own_),
          rows_(call.rows),
          has_zeros_(call.weights.zero_bytes > 0),
          bias_(call.bias),
          rounded_(call.rounded),
          few_(rows_ <= kFewRows),
          multiply_codes_(rounded_ && !few_ ? multiply_codes(kBits) : nullptr),
          deep_(rows_ <= kShallowRows ? kShallow : kDepth),
          threads_(omp_get_max_threads()) {
        demand(rows_ >= 0, "a size is negative");
        const Index blocks = times(own_.outputs, own_.blocks), codes = times(own_.words, kWordBytes);
        add_slot("x", VTENSOR_READ, times(rows_, own_.depth));
        add_slot("weights", VTENSOR_READ, times(own_.outputs, codes), 1);
        add_slot("scales", VTENSOR_READ, blocks);
        if (has_zeros_) add_slot("zeros", VTENSOR_READ, blocks, sizeof(Zero));
        if (bias_) add_slot("bias", VTENSOR_READ, own_.outputs);
        add_slot("dst", VTENSOR_WRITE, times(rows_, own_.outputs));
        // rows whose distance is an odd number of cache lines do not compete for places of a cache
        plain_ = plus(own_.depth, 2 * kLine - 1) / (2 * kLine) * (2 * kLine) + kLine;
        row_ = integers() ? Rounded<kBits>::floats(own_) : Arranged::floats(own_);
        Index room = kWidth * deep_;
        if (multiply_codes_ != nullptr) {
            plain_ = plus(own_.words * own_.parts / 4, times(own_.blocks, 2));
            room = times(plus(own_.words, times(own_.blocks, 2)), kWidth) + kCodeRows * kWidth;
        }
        room_ = room;
        copied_ = times(few_ ? rounded_ && !integers() : std::min(rows_, kMostRows), plain_);
        add_scratch(plus(copied_, few_ ? times(rows_, row_) : times(threads_, room_)));
    }

private:
    bool integers() const { return kMultipliesIntegers && rounded_ && few_; }

    void run(void *const *slots) const override {
        if (rows_ == 0 || own_.outputs == 0) return;
        const auto next = [&] { return *slots++; };
        Operands at{};
        at.x = static_cast<const float *>(next());
        at.weights = static_cast<const Byte *>(next());
        at.scales = static_cast<const float *>(next());
        if (has_zeros_) at.zeros = next();
        if (bias_) at.bias = static_cast<const float *>(next());
        at.dst = static_cast<float *>(next());
        at.scratch = static_cast<float *>(next());
        few_ ? few_rows(at) : many_rows(at);
    }

    // Copies a row, rounded if that is asked for.
    void copy(const float *from, float *to) const {
        if (rounded_) {
            round_row(from, own_, [&](const Rounding &block) {
                for (Index k = block.begin; k < block.end; ++k)
                    to[k] = std::nearbyint(from[k] * block.inverse) * block.scale;
            });
        } else {
            std::copy_n(from, own_.depth, to);
        }
    }

    void few_rows(const Operands &at) const {
        float *const rows = at.scratch + copied_;
        for (Index row = 0; row < rows_; ++row) {
            const float *from = at.x + row * own_.depth;
            float *const to = rows + row * row_;
            if (integers()) {
                Rounded<kBits>(own_, to).fill(from, own_);
                continue;
            }
            if (rounded_) {
                copy(from, at.scratch);
                from = at.scratch;
            }
            Arranged(own_, to).fill(from, own_);
        }
        const Index work = rows_ * own_.outputs * own_.depth;
        eigen::parallel(own_.outputs, work, [&](Index begin, Index end) {
            for (Index output = begin; output < end; ++output) {
                const Weights<Zero> weights(at, own_, output);
                for (Index row = 0; row < rows_; ++row) {
                    float result = one(weights, rows + row * row_);
                    if (bias_) result += at.bias[output];
                    at.dst[row * own_.outputs + output] = result;
                }
            }
        });
    }

    [[gnu::always_inline]] float one(const Weights<Zero> &weights, float *row) const {
#if defined(__AVX2__)
        if (rounded_)
            return rounded_dot<kBits>(weights, own_, spread_, Rounded<kBits>(own_, row));
#endif
        return dot<kBits>(weights, own_, spread_, Arranged(own_, row));
    }

    void many_rows(Operands at) const {
        for (Index done = 0; done < rows_; done += kMostRows) {
            const Index rows = std::min(kMostRows, rows_ - done), copies = rows * own_.depth;
            eigen::parallel(rows, copies, [&](Index begin, Index end) {
                for (Index row = begin; row < end; ++row) {
                    const float *const from = at.x + row * own_.depth;
                    multiply_codes_ == nullptr ? copy(from, at.scratch + row * plain_)
                                               : code(from, row, rows, at.scratch);
                }
            });
            const Index panels = (own_.outputs + kWidth - 1) / kWidth;
            const Index shares = std::min(threads_, panels);  // each has scratch memory of its own
            eigen::parallel(shares, copies * own_.outputs, [&](Index begin, Index end) {
                for (Index share = begin; share < end; ++share)
                    multiply_share(at, rows, panels * share / shares, panels * (share + 1) / shares,
                                   at.scratch + copied_ + share * room_);
            });
            at.x += copies;
            at.dst += rows * own_.outputs;
        }
    }

    // Multiplies rows by the outputs of panels `begin` .. `end` (exclusive).
    void multiply_share(const Operands &at, Index rows, Index begin, Index end, float *room) const {
        if (multiply_codes_ != nullptr) {
            for (Index panel = begin; panel < end; ++panel)
                multiply_as_integers(at, rows, panel * kWidth, room);
            return;
        }
        for (Index k = 0; k < own_.depth; k += deep_) {
            for (Index panel = begin; panel < end; ++panel)
                multiply(at, rows, k, panel * kWidth, room);
        }
    }

    // Multiplies numbers of rows, from `first` on, by the weights of kWidth outputs.
    void multiply(const Operands &at, Index rows, Index first, Index output, float *panel) const {
        const Index begin = first / own_.parts;
        const Index end = std::min(own_.words, begin + deep_ / own_.parts);
        widen<kBits, Zero>(at, own_, output, begin, end, panel);
        widen<kBits, Zero>(at, own_, output + kLanes, begin, end, panel + kLanes);
        const Index groups = (rows + winograd::kMostRows - 1) / winograd::kMostRows;
        for (Index group = 0, row = 0; group < groups; ++group) {  // all of nearly the same number
            const Index next = rows * (group + 1) / groups;
            const Target target{first > 0 || !bias_ ? nullptr : at.bias + output,
                                at.dst + row * own_.outputs + output, own_.outputs,
                                std::min(kWidth, own_.outputs - output), first > 0};
            kTiles.of[next - row - 1](at.scratch + row * plain_ + first, plain_, panel,
                                      std::min(deep_, own_.depth - first), target);
            row = next;
        }
    }

    // Rounds a row for `multiply_codes`. The scratch memory has the codes of all rows, then their
    // scales of each block, then their sums.
    void code(const float *from, Index row, Index rows, float *scratch) const {
        const Index bytes = own_.words * own_.parts, number = row * own_.blocks;
        auto *const codes = reinterpret_cast<std::int8_t *>(scratch) + row * bytes;
        float *const scales = scratch + rows * (bytes / 4), *const sums = scales + rows * own_.blocks;
        std::memset(codes, 0, static_cast<std::size_t>(bytes));
        round_row(from, own_, [&](const Rounding &block) {
            constexpr Index kParts = Codes<kBits>::kParts, kGroups = 8 / kBits;
            int total = 0;
            for (Index k = block.begin; k < block.end; ++k) {
                const int code = block(from[k]);
                codes[k / kParts * kParts + k % kGroups * 4 + k % kParts / kGroups] =
                    static_cast<std::int8_t>(code);
                total += code;
            }
            sums[number + block.begin / own_.block] = block.sum(total);
            scales[number + block.begin / own_.block] = block.scale;
        });
    }

    // Multiplies rounded rows by the codes of kWidth outputs.
    void multiply_as_integers(const Operands &at, Index rows, Index output, float *words) const {
        const Index bytes = own_.words * own_.parts;
        float *const scales = words + own_.words * kWidth, *const zeros = scales + own_.blocks * kWidth;
        float *const sums = zeros + own_.blocks * kWidth;
        for (Index half = 0; half < kWidth; half += kLanes) {
            for (Index word = 0; word < own_.words; word += kLanes) {
                Words own[kLanes];
                words_of(at, own_, output + half, word, own_.words, own);
                for (Index i = 0; i < std::min<Index>(kLanes, own_.words - word); ++i)
                    std::memcpy(words + (word + i) * kWidth + half, &own[i], sizeof own[i]);
            }
        }
        for (Index lane = 0; lane < kWidth; ++lane) {
            const Index number = std::min(output + lane, own_.outputs - 1);
            const Weights<Zero> weights(at, own_, number);
            for (Index block = 0; block < own_.blocks; ++block) {
                const bool given = weights.zeros != nullptr;
                scales[block * kWidth + lane] = weights.scales[block];
                zeros[block * kWidth + lane] =
                    given ? static_cast<float>(weights.zeros[block]) : Codes<kBits>::kMiddle;
            }
        }
        const float *const steps = at.scratch + rows * (bytes / 4);
        const Index outputs = std::min(kWidth, own_.outputs - output);
        for (Index row = 0; row < rows; row += kCodeRows) {
            const Index count = std::min<Index>(kCodeRows, rows - row), number = row * own_.blocks;
            multiply_codes_({reinterpret_cast<const std::uint32_t *>(words), scales, zeros,
                             reinterpret_cast<const std::int8_t *>(at.scratch) + row * bytes,
                             steps + number, steps + (rows * own_.blocks + number), own_.blocks,
                             own_.block / own_.parts, bytes, sums},
                            static_cast<int>(count));
            for (Index i = 0; i < count * outputs; ++i) {
                const Index lane = i % outputs, place = i / outputs;
                at.dst[(row + place) * own_.outputs + output + lane] =
                    sums[place * kWidth + lane] + (bias_ ? at.bias[output + lane] : 0.0f);
            }
        }
    }

    Geometry own_;
    Spread spread_;
    Index rows_;
    bool has_zeros_, bias_, rounded_, few_;
    MultiplyCodes multiply_codes_;  // null: rows are multiplied as f32
    Index deep_;  // codes that are widened at a time
    Index threads_;
    // Floats of a row as it is multiplied, of a copy of it, and of all copies.
    Index row_ = 0, plain_ = 0, copied_ = 0;
    Index room_ = 0;  // scratch floats of a thread that multiplies many rows
};

template <int kBits, class Zero>
class Rows final : public Step {
public:
    explicit Rows(const BlockRows &call)
        : Step("rows of blocks of " + std::to_string(kBits) + " bits"),
          own_(call.weights),
          has_zeros_(call.weights.zero_bytes > 0),
          count_(call.count),
          lines_(call.lines),
          index_bytes_(call.index_bytes),
          checked_(call.checked) {
        demand(index_bytes_ == 0 || index_bytes_ == 4 || index_bytes_ == 8,
               "indices are s32 or s64");
        demand(count_ >= 0 && lines_ >= 0 && own_.outputs % std::max<Index>(lines_, 1) == 0,
               "outputs do not divide into lines");
        demand(index_bytes_ > 0 || count_ * lines_ == own_.outputs, "not all outputs");
        const Index blocks = times(own_.outputs, own_.blocks);
        add_slot("weights", VTENSOR_READ, times(own_.outputs, times(own_.words, kWordBytes)), 1);
        add_slot("scales", VTENSOR_READ, blocks);
        if (has_zeros_) add_slot("zeros", VTENSOR_READ, blocks, sizeof(Zero));
        if (index_bytes_ > 0)
            add_slot("indices", VTENSOR_READ, count_, static_cast<std::uint32_t>(index_bytes_));
        add_slot("dst", VTENSOR_WRITE, times(times(count_, lines_), own_.depth));
    }

private:
    void run(void *const *slots) const override {
        Operands at{};
        at.weights = static_cast<const Byte *>(*slots++);
        at.scales = static_cast<const float *>(*slots++);
        if (has_zeros_) at.zeros = *slots++;
        const void *const indices = index_bytes_ > 0 ? *slots++ : nullptr;
        at.dst = static_cast<float *>(*slots++);
        const Index lines = count_ * lines_;
        eigen::parallel(lines, lines * own_.depth, [&](Index begin, Index end) {
            for (Index line = begin; line < end; ++line) {
                float *const to = at.dst + line * own_.depth;
                const Index output = number(indices, line / lines_) * lines_ + line % lines_;
                if (output >= own_.outputs) {
                    std::fill_n(to, own_.depth, 0.0f);
                } else {
                    fill(Weights<Zero>(at, own_, output), to);
                }
            }
        });
    }

    // An index, counted from the beginning; at least the number of rows if it is outside.
    Index number(const void *indices, Index at) const {
        if (indices == nullptr) return at;
        const Index given = index_bytes_ == 4 ? static_cast<const std::int32_t *>(indices)[at]
                                              : static_cast<const std::int64_t *>(indices)[at];
        const Index rows = own_.outputs / lines_, from = given < 0 ? given + rows : given;
        if (from >= 0 && from < rows) return from;
        if (checked_)
            throw eigen::BadInput("index " + std::to_string(given) + " into " +
                                  std::to_string(rows) + " rows");
        return rows;
    }

    void fill(const Weights<Zero> &weights, float *to) const {
        constexpr Index kCodes = 8 / kBits;  // of a byte
        const Byte *codes = weights.codes;
        for (Index block = 0; block < own_.blocks; ++block, codes += own_.block / kCodes) {
            const float scale = weights.scales[block];
            const float zero = weights.zeros == nullptr ? Codes<kBits>::kMiddle
                                                        : static_cast<float>(weights.zeros[block]);
            const auto weight = [&](Index k) {
                const int code = codes[k / kCodes] >> (k % kCodes * kBits) & ((1 << kBits) - 1);
                return (static_cast<float>(code) - zero) * scale;
            };
            const Index there = std::min(own_.block, own_.depth - block * own_.block);
            for (Index k = 0; k < there; ++k) *to++ = weight(k);
        }
    }

    Geometry own_;
    bool has_zeros_;
    Index count_, lines_, index_bytes_;
    bool checked_;
};

// Makes a kernel for the bits of codes and the type of zeros.
template <template <int, class> class Made, class Call>
Step *made(const Call &call) {
    const Geometry valid(call.weights);
    const auto of_bits = [&]<class Zero>(Zero) -> Step * {
        if (valid.bits == 2) return new Made<2, Zero>(call);
        if (valid.bits == 4) return new Made<4, Zero>(call);
        return new Made<8, Zero>(call);
    };
    return call.weights.zero_bytes == 1 ? of_bits(Byte{}) : of_bits(float{});
}

}  // namespace

Step *block_product(const BlockProduct &call) { return made<Product>(call); }

Step *block_rows(const BlockRows &call) { return made<Rows>(call); }

}  // namespace vtensor::narrow
