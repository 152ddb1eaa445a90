// native/winograd/depthwise.cpp: depthwise convolution.
//
// Adjacent results are computed together, for a vector of channels: a pixel is read once per row of
// the filter and used for all of them. The next work is close in memory: further channels if they
// are the last dim, else the results below.
#include "depthwise.h"

#include <algorithm>

#include "eigen/check.h"
#include "eigen/parallel.h"
#include "ending.h"
#include "grid.h"
#include "image.h"
#include "operands.h"
#include "vector.h"

namespace vtensor::winograd {

namespace {

using eigen::demand;
using eigen::times;

// With channels last, rows are shared among threads; with few rows, parts of them.
constexpr Index kFewRows = 32, kPieces = 4;

// Repetitions of a piece of work: their number, and by how many floats each operand then advances.
struct Again {
    Index count, src, weights, bias, dst;
};

// Adjacent results and the pixels that they read.
struct Window {
    const float *src;   // the image
    Index first;        // floats from there to the first pixel; may be negative
    Index row, column;  // floats from one to the next
    Index begin, end;   // the pixels of a row that are inside the image
    Index rows;         // rows of the filter inside the image
    const float *weights;
    Again again;
};

// Computes the sums of kCount results. Each result reads a pixel inside of the image, so that only
// the first and the last kTaps - 1 pixels may be outside.
template <int kTaps, int kStride, int kCount, class Read>
[[gnu::always_inline]] inline void slide(const Window &at, Index number, const Read &read,
                                         Vector (&sums)[kCount]) {
    constexpr int kPixels = (kCount - 1) * kStride + kTaps;
    const float *weights = at.weights + number * at.again.weights;
    Index from = at.first + number * at.again.src;
    for (Index row = 0; row < at.rows; ++row, from += at.row, weights += kTaps * kLanes) {
        const float *next = at.src + from;
        each<kPixels>([&](auto pixel) __attribute__((always_inline)) {
            constexpr int kPixel = pixel;
            const float *const own = next;
            next += at.column;
            if (kPixel < kTaps - 1 && kPixel < at.begin) return;
            if (kPixel > kPixels - kTaps && kPixel >= at.end) return;
            const Vector value = read(own);
            each<kCount>([&](auto result) __attribute__((always_inline)) {
                constexpr int kTap = kPixel - result * kStride;
                if constexpr (kTap >= 0 && kTap < kTaps)
                    sums[result] += value * load(weights + kTap * kLanes);
            });
        });
    }
}

// The destination of sums.
struct Target {
    const float *bias, *other;  // of the first result; null where there is none
    float *dst;
    Index column;
    Index there, stored;  // lanes
    Ending ending;

    template <int kCount>
    [[gnu::always_inline]] void operator()(Vector (&sums)[kCount]) const {
        if (there != kLanes) {
            Vector own[kCount];
            each<kCount>([&](auto result) { own[result] = sums[result]; });
            return part(own, kCount);
        }
        if (bias != nullptr) {
            const Vector added = load(bias);
            each<kCount>([&](auto result) { sums[result] += added; });
        }
        if (other != nullptr)
            each<kCount>([&](auto result) { sums[result] += load(other + result * column); });
        const Ending bounds = ending;
        float *to = dst;
        each<kCount>([&](auto result) {
            bounds(sums[result], nullptr, to, kLanes, kLanes);
            to += column;
        });
    }

    [[gnu::always_inline]] void go_on(const Again &again) {
        if (bias != nullptr) bias += again.bias;
        if (other != nullptr) other += again.dst;
        dst += again.dst;
    }

    [[gnu::noinline]] void part(const Vector *sums, int count) const {
        Vector added{};
        if (bias != nullptr) added = some(bias, there);
        for (Index at = 0; count > 0; --count, ++sums, at += column)
            ending(*sums + added, other == nullptr ? nullptr : other + at, dst + at, there, stored);
    }
};

template <int kTaps, int kStride, int kCount>
void results(const Window &at, Target target) {
    for (Index number = 0; number < at.again.count; ++number) {
        Vector sums[kCount] = {};
        slide<kTaps, kStride>(at, number, [](const float *from) { return load(from); }, sums);
        target(sums);
        target.go_on(at.again);
    }
}

// Computes one result, reading only the valid lanes of its pixels.
template <int kTaps, int kStride>
void careful(const Window &at, Target target) {
    Vector sums[1] = {};
    slide<kTaps, kStride>(at, 0, [&](const float *from) { return some(from, target.there); }, sums);
    target(sums);
}

using Kernel = void (*)(const Window &, Target);

struct Kernels {
    Kernel of[kMostRows];
    Kernel careful;
};

template <int kTaps, int kStride>
constexpr Kernels kKernels = []<int... kCounts>(std::integer_sequence<int, kCounts...>) {
    return Kernels{{&results<kTaps, kStride, kCounts + 1>...}, &careful<kTaps, kStride>};
}(std::make_integer_sequence<int, kMostRows>{});

const Kernels &kernels_of(Index taps, Index stride) {
    demand(stride == 1 || stride == 2, "a step across of 1 or 2");
    const bool one = stride == 1;
    if (taps == 3) return one ? kKernels<3, 1> : kKernels<3, 2>;
    if (taps == 5) return one ? kKernels<5, 1> : kKernels<5, 2>;
    demand(taps == 7, "3, 5 or 7 taps across");
    return one ? kKernels<7, 1> : kKernels<7, 2>;
}

void validate(const Depthwise &call) {
    for (const Ints *pair : {&call.src, &call.dst, &call.begin, &call.taps, &call.strides})
        demand(pair->size() == 2, "two spatial dims");
    demand(call.images > 0 && call.channels > 0, "a size is not above 0");
    for (const int i : {0, 1}) {
        demand(std::min({call.src[i], call.dst[i], call.taps[i], call.strides[i]}) > 0,
               "a size is not above 0");
        demand(call.begin[i] >= 0 && call.begin[i] < call.taps[i],
               "a pad is negative, or as large as the filter");
        const Index last = times(call.dst[i] - 1, call.strides[i]) - call.begin[i];
        demand(last < call.src[i], "a result sees nothing of the image");
    }
    for (const Index block : {call.src_block, call.dst_block})
        demand(block == 0 || (block > 0 && block % kLanes == 0), "a block is no whole vectors");
    demand(call.low <= call.high, "bounds that hold nothing");
}

class Sliding final : public Convolving {
public:
    explicit Sliding(const Depthwise &call)
        : Convolving("depthwise " + std::to_string(call.taps[0]) + "x" +
                         std::to_string(call.taps[1]),
                     call),
          call_(call),
          kernels_(kernels_of(call.taps[1], call.strides[1])),
          ending_{call.low, call.high},
          src_(call.images, call.channels, call.src, call.src_block),
          dst_(call.images, call.channels, call.dst, call.dst_block),
          vectors_(dst_.lanes() / kLanes),
          taps_(times(call.taps[0], call.taps[1])),
          work_(times(dst_.elements, taps_)),
          tiles_(up(dst_.width, kMostRows) / kMostRows),
          pieces_(pieces_of(call.images)) {
        add_operands(src_.elements, times(up(call.channels, kLanes), taps_), call.channels,
                     dst_.elements);
    }

private:
    void compute(const Operands &at) const override {
        const Index lines = call_.images * pieces_ * dst_.height;
        eigen::parallel(lines, work_,
                        [&](Index begin, Index end) { pieces(at, begin, end); });
    }

    Index pieces_of(Index images) const {
        if (dst_.block != 0) return vectors_;
        return images * dst_.height < kFewRows ? std::min(kPieces, vectors_) : 1;
    }

    // Computes pieces in their order in memory.
    void pieces(const Operands &at, Index begin, Index end) const {
        const Index height = dst_.height;
        while (begin < end) {
            const Index image = begin / (pieces_ * height);
            if (dst_.block == 0) {
                const Index piece = begin % pieces_;
                row_of(at, image, begin / pieces_ % height, Share{piece, pieces_}.of(vectors_));
                ++begin;
            } else {
                const Index first = begin % height, last = std::min(height, first + end - begin);
                column_of(at, image, begin / height % pieces_, {first, last});
                begin += last - first;
            }
        }
    }

    template <class Take>
    void each_tile(const Take &take) const {
        for (Index tile = 0; tile < tiles_; ++tile)
            take(Share{tile, tiles_}.of(dst_.width));
    }

    void row_of(const Operands &at, Index image, Index row, Range vectors) const {
        const Index whole = std::min(vectors.end, dst_.channels / kLanes) - vectors.begin;
        const bool rest = whole < vectors.end - vectors.begin;
        const Index step = src_.block == 0 || src_.block == kLanes ? whole : 1;
        each_tile([&](Range tile) {
            for (Index vector = 0; vector < whole; vector += step) {
                results_of(at, image, row, tile, vectors.begin + vector,
                           {step, src_.of(kLanes), taps_ * kLanes, kLanes, kLanes});
            }
            if (rest) results_of(at, image, row, tile, vectors.end - 1, {1, 0, 0, 0, 0});
        });
    }

    void column_of(const Operands &at, Index image, Index vector, Range rows) const {
        const Index step = call_.strides[0], below = src_.height - call_.taps[0] + call_.begin[0];
        const Index inner = (call_.begin[0] + step - 1) / step;  // the first that reads all rows
        const Index outer = below < 0 ? 0 : below / step + 1;    // the first after those
        each_tile([&](Range tile) {
            for (Index row = rows.begin; row < rows.end;) {
                const Index alike = row < inner ? 1 : std::min(rows.end, outer) - row;
                const Index count = std::max<Index>(alike, 1);
                results_of(at, image, row, tile, vector, {count, step * src_.row, 0, 0, dst_.row});
                row += count;
            }
        });
    }

    void results_of(const Operands &at, Index image, Index row, Range tile, Index vector,
                    const Again &again) const {
        const Index channel = vector * kLanes, there = dst_.there(channel);
        const Index top = row * call_.strides[0] - call_.begin[0];
        const Index skipped = std::max<Index>(-top, 0);
        const Index target = dst_.at(image, channel) + row * dst_.row + tile.begin * dst_.column;
        Target to{at.bias == nullptr ? nullptr : at.bias + channel,
                  at.other == nullptr ? nullptr : at.other + target,
                  at.dst + target,
                  dst_.column,
                  there,
                  dst_.stored(channel),
                  ending_};
        Window window{};
        window.src = at.src;
        window.row = src_.row;
        window.column = src_.column;
        // A vector without a channel only fills padding of a block.
        window.rows = there > 0 ? std::min(call_.taps[0], src_.height - top) - skipped : 0;
        window.weights = at.weights + (channel * call_.taps[0] + skipped * kLanes) * call_.taps[1];
        window.again = again;
        const auto see = [&](Index column) {
            const Index left = column * call_.strides[1] - call_.begin[1];
            window.first =
                src_.at(image, channel) + (top + skipped) * src_.row + left * src_.column;
            window.begin = -left;
            window.end = src_.width - left;
        };
        see(tile.begin);
        // Lanes past the last channel belong to another pixel; after the last pixel there is none.
        const Index seen = (tile.end - tile.begin - 1) * call_.strides[1] + call_.taps[1];
        const Index last = window.first + (again.count - 1) * again.src +
                           (window.rows - 1) * window.row +
                           (std::min(seen, window.end) - 1) * window.column;
        if (there == 0 || src_.block != 0 || last + kLanes <= src_.elements)
            return kernels_.of[tile.end - tile.begin - 1](window, to);
        again_carefully(window, to, tile, see);
    }

    template <class See>
    void again_carefully(Window &window, Target to, Range tile, const See &see) const {
        for (Index number = 0; number < window.again.count; ++number) {
            Target own = to;
            for (Index column = tile.begin; column < tile.end; ++column, own.dst += own.column) {
                see(column);
                window.first += number * window.again.src;
                kernels_.careful(window, own);
                if (own.other != nullptr) own.other += own.column;
            }
            to.go_on(window.again);
        }
    }

    Depthwise call_;
    const Kernels &kernels_;
    Ending ending_;
    Image src_, dst_;
    Index vectors_, taps_, work_, tiles_, pieces_;
};

}  // namespace

Step *depthwise(const Depthwise &call) {
    validate(call);
    return new Sliding(call);
}

}  // namespace vtensor::winograd
