// native/winograd/direct.cpp: convolution of few unblocked channels.
//
// Adjacent results are computed together, for up to three vectors of outputs: each pixel is a
// factor of whole vectors of weights, so that it may be anywhere and the image needs no other
// layout. Weights of so few channels stay in the L1 cache.
#include "direct.h"

#include <algorithm>
#include <array>

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

constexpr int kMostVectors = 3;
// Floats of an image that a tile at its edge reads, zeros around it included.
constexpr Index kPatch = 8192;

// Returns the adjacent results for this many vectors, whose sums must fit into registers.
constexpr int most_results(int vectors) { return vectors < 3 ? kMostRows : kMostRows * 2 / 3; }

// The pixels that a tile of results reads.
struct Window {
    const float *src;     // its first pixel, of the first channel
    Index channel, row;   // floats from one to the next
    Index rows, columns;  // of the filter, inside the image
    const float *weights;
    Index weights_vector, weights_channel;  // floats from one to the next
    Index channels;
};

// The destination of a tile's sums.
struct Target {
    const float *bias, *other;  // of the first vector; null where there is none
    float *dst;
    const Lanes *lanes;  // of the first vector
    Index column;
    Ending ending;

    template <int kVectors, int kCount>
    [[gnu::always_inline]] void operator()(const Vector (&sums)[kVectors][kCount]) const {
        each<kVectors>([&](auto vector) __attribute__((always_inline)) {
            const Lanes &own = lanes[vector];
            const Index at = own.at - lanes->at;
            if (own.there != kLanes) {
                Vector some_sums[kCount];
                each<kCount>([&](auto result) { some_sums[result] = sums[vector][result]; });
                return part(some_sums, kCount, vector);
            }
            Vector made[kCount], added{};
            if (bias != nullptr) added = load(bias + vector * kLanes);
            each<kCount>([&](auto result) { made[result] = sums[vector][result] + added; });
            if (other != nullptr)
                each<kCount>([&](auto result) { made[result] += load(other + at + result * column); });
            const Ending bounds = ending;
            const Index step = column;
            float *to = dst + at;
            each<kCount>([&](auto result) __attribute__((always_inline)) {
                bounds(made[result], nullptr, to, kLanes, kLanes);
                to += step;
            });
        });
    }

    // Stores vectors of results in which not all lanes are valid.
    [[gnu::noinline]] void part(const Vector *sums, int count, int vector) const {
        const Lanes &own = lanes[vector];
        Vector added{};
        if (bias != nullptr) added = some(bias + vector * kLanes, own.there);
        for (Index at = own.at - lanes->at; count > 0; --count, ++sums, at += column)
            ending(*sums + added, other == nullptr ? nullptr : other + at, dst + at, own.there,
                   own.stored);
    }
};

template <int kVectors, int kStep, int kCount>
void results(const Window &at, const Target &target) {
    Vector sums[kVectors][kCount] = {};
    for (Index channel = 0; channel < at.channels; ++channel) {
        const float *src = at.src + channel * at.channel;
        const float *weights = at.weights + channel * at.weights_channel;
        for (Index row = 0; row < at.rows; ++row, src += at.row) {
            const float *from = src;
            for (Index tap = 0; tap < at.columns; ++tap, ++from, weights += kLanes) {
                Vector own[kVectors];
                each<kVectors>([&](auto vector) __attribute__((always_inline)) {
                    own[vector] = load(weights + vector * at.weights_vector);
                });
                each<kCount>([&](auto result) __attribute__((always_inline)) {
                    const Vector factor = all(from[result * kStep]);
                    each<kVectors>([&](auto vector) __attribute__((always_inline)) {
                        sums[vector][result] += factor * own[vector];
                    });
                });
            }
        }
    }
    target(sums);
}

using Kernel = void (*)(const Window &, const Target &);

struct Kernels {
    Kernel of[kMostVectors][kMostRows];
};

template <int kVectors, int kStep>
constexpr void add_kernels(Kernels &made) {
    [&]<int... kCounts>(std::integer_sequence<int, kCounts...>) {
        ((made.of[kVectors - 1][kCounts] = &results<kVectors, kStep, kCounts + 1>), ...);
    }(std::make_integer_sequence<int, most_results(kVectors)>{});
}

template <int kStep>
constexpr Kernels kKernels = [] {
    Kernels made{};
    add_kernels<1, kStep>(made);
    add_kernels<2, kStep>(made);
    add_kernels<3, kStep>(made);
    return made;
}();

const Kernels &kernels_of(Index step) {
    if (step == 1) return kKernels<1>;
    if (step == 2) return kKernels<2>;
    demand(step == 4, "a step across of 1, 2 or 4");
    return kKernels<4>;
}

void validate(const Direct &call) {
    for (const Ints *pair : {&call.src, &call.dst, &call.begin, &call.taps, &call.strides})
        demand(pair->size() == 2, "two spatial dims");
    demand(call.images > 0 && call.channels > 0 && call.outputs > 0, "a size is not above 0");
    for (const int i : {0, 1}) {
        demand(std::min({call.src[i], call.dst[i], call.taps[i], call.strides[i]}) > 0,
               "a size is not above 0");
        demand(call.begin[i] >= 0 && call.begin[i] < call.taps[i],
               "a pad is negative, or as large as the filter");
        const Index last = times(call.dst[i] - 1, call.strides[i]) - call.begin[i];
        demand(last < call.src[i], "a result sees nothing of the image");
    }
    demand(call.src_block == 1, "channels lie apart");
    demand(call.dst_block == 0 || (call.dst_block > 0 && call.dst_block % kLanes == 0),
           "a block is no whole vectors");
    const Index wide = eigen::plus(times(kMostRows - 1, call.strides[1]), call.taps[1]);
    demand(times(times(call.channels, call.taps[0]), wide) <= kPatch, "a window is too large");
    demand(call.low <= call.high, "bounds that hold nothing");
}

class Broadcasting final : public Convolving {
public:
    explicit Broadcasting(const Direct &call)
        : Convolving("direct " + std::to_string(call.taps[0]) + "x" + std::to_string(call.taps[1]),
                     call),
          call_(call),
          kernels_(kernels_of(call.strides[1])),
          ending_{call.low, call.high},
          src_(call.images, call.channels, call.src, 1),
          dst_(call.images, call.outputs, call.dst, call.dst_block),
          lanes_(dst_.vectors(dst_.lanes())),
          filled_(up(call.outputs, kLanes) / kLanes),
          depth_(times(times(call.taps[0], call.taps[1]), call.channels)),
          work_(times(dst_.elements, depth_)) {
        add_operands(src_.elements, times(up(call.outputs, kLanes), depth_), call.outputs,
                     dst_.elements);
    }

private:
    void compute(const Operands &at) const override {
        const Index height = dst_.height;
        eigen::parallel(call_.images * height, work_, [&](Index begin, Index end) {
            for (Index line = begin; line < end; ++line) row_of(at, line / height, line % height);
        });
    }

    void row_of(const Operands &at, Index image, Index row) const {
        const Index groups = (filled_ + kMostVectors - 1) / kMostVectors;
        for (Index group = 0; group < groups; ++group)
            vectors_of(at, image, row, Share{group, groups}.of(filled_), true);
        // Vectors without a channel fill padding of a block.
        for (Index vector = filled_; vector < static_cast<Index>(lanes_.size()); ++vector)
            vectors_of(at, image, row, {vector, vector + 1}, false);
    }

    // Computes the results of vectors in a row; they are zeros where they read nothing.
    void vectors_of(const Operands &at, Index image, Index row, Range vectors, bool sees) const {
        const Index count = vectors.end - vectors.begin, first = vectors.begin * kLanes;
        const Index most = most_results(static_cast<int>(count));
        const Index tiles = (dst_.width + most - 1) / most;
        const Index top = row * call_.strides[0] - call_.begin[0];
        const Index skipped = std::max<Index>(-top, 0), taps = call_.taps[1];
        const Index target = image * dst_.image + lanes_[vectors.begin].at + row * dst_.row;
        Window window{};
        window.src = at.src + image * src_.image + (top + skipped) * src_.row;
        window.channel = src_.part;
        window.row = src_.row;
        window.rows = std::min(call_.taps[0], src_.height - top) - skipped;
        window.columns = taps;
        window.weights = at.weights + first * depth_ + skipped * taps * kLanes;
        window.weights_vector = kLanes * depth_;
        window.weights_channel = call_.taps[0] * taps * kLanes;
        window.channels = sees ? call_.channels : 0;
        for (Index tile = 0; tile < tiles; ++tile) {
            const Range range = Share{tile, tiles}.of(dst_.width);
            const Index to = target + range.begin * dst_.column;
            const Target own{at.bias == nullptr || !sees ? nullptr : at.bias + first,
                             at.other == nullptr ? nullptr : at.other + to,
                             at.dst + to,
                             &lanes_[vectors.begin],
                             dst_.column,
                             ending_};
            tile_of(window, range, kernels_.of[count - 1][range.end - range.begin - 1], own);
        }
    }

    void tile_of(Window window, Range tile, Kernel kernel, const Target &target) const {
        const Index step = call_.strides[1], left = tile.begin * step - call_.begin[1];
        const Index wide = (tile.end - tile.begin - 1) * step + call_.taps[1];
        if (left >= 0 && left + wide <= src_.width) {
            window.src += left;
            return kernel(window, target);
        }
        // At the edge: a copy with zeros around it.
        std::array<float, kPatch> patch;
        const Index begin = std::max<Index>(left, 0), end = std::min(left + wide, src_.width);
        float *to = patch.data();
        for (Index channel = 0; channel < window.channels; ++channel) {
            const float *from = window.src + channel * window.channel;
            for (Index row = 0; row < window.rows; ++row, from += window.row, to += wide) {
                std::fill(to, to + (begin - left), 0.0F);
                std::copy(from + begin, from + end, to + (begin - left));
                std::fill(to + (end - left), to + wide, 0.0F);
            }
        }
        window.src = patch.data();
        window.channel = window.rows * wide;
        window.row = wide;
        kernel(window, target);
    }

    Direct call_;
    const Kernels &kernels_;
    Ending ending_;
    Image src_, dst_;
    std::vector<Lanes> lanes_;
    Index filled_, depth_, work_;
};

}  // namespace

Step *direct(const Direct &call) {
    validate(call);
    return new Broadcasting(call);
}

}  // namespace vtensor::winograd
