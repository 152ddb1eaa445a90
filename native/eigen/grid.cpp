// native/eigen/grid.cpp: an image sampled between its elements, at places that a grid says.
#include <algorithm>
#include <array>
#include <cmath>

#include "check.h"
#include "moves.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

enum class Mode { kNearest, kLinear, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

// Neighbours along one dim: which element, and what it counts.
struct Near {
    Index at;
    float weight;
};

// R. Keys, Cubic convolution interpolation for digital image processing, equation 4, a = -0.75.
float cubic(float distance) {
    constexpr float a = -0.75F;
    const float d = std::fabs(distance);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    return d >= 2 ? 0 : d;  // NaN stays
}

float linear(float distance) {
    const float weight = 1 - std::fabs(distance);
    return weight < 0 ? 0 : weight;
}

class GridSample final : public Step {
public:
    GridSample(const Sampled &image, Mode mode, Padding padding, bool corners)
        : Step("grid_sample"), image_(image), mode_(mode), padding_(padding), corners_(corners) {
        demand(image.src.size() == 3 && image.dst.size() == 3, "three spatial dims");
        demand(image.rank >= 1 && image.rank <= 3, "one to three spatial dims");
        for (Index dim = 0; dim < 3 - image.rank; ++dim)
            demand(image.src[dim] == 1 && image.dst[dim] == 1, "a dim that is none");
        pixels_ = product(image.src);
        places_ = product(image.dst);
        demand(pixels_ > 0, "there are no elements to sample");
        const Index layers = product({image.images, image.channels});
        add_slot("src", VTENSOR_READ, times(layers, pixels_));
        add_slot("grid", VTENSOR_READ, product({image.images, places_, image.rank}));
        add_slot("dst", VTENSOR_WRITE, times(layers, places_));
        taps_ = mode == Mode::kNearest ? 1 : mode == Mode::kLinear ? 2 : 4;
        for (Index dim = 0; dim < image.rank; ++dim) all_taps_ *= taps_;
    }

private:
    static constexpr Index kChunk = 32, kMostTaps = 64;

    // For a chunk of places: of each tap the offset in a layer, and what it counts.
    struct Taps {
        std::array<std::array<Index, kChunk>, kMostTaps> offsets;
        std::array<std::array<float, kChunk>, kMostTaps> weights;
    };

    void run(void *const *slots) const override {
        const Index chunks = (places_ + kChunk - 1) / kChunk;
        const Index work = image_.images * places_ * all_taps_ * (image_.channels + 4);
        parallel(image_.images * chunks, work, [&](Index begin, Index end) {
            Taps taps;
            for (Index piece = begin; piece < end; ++piece) {
                const Index n = piece / chunks, first = piece % chunks * kChunk;
                const Index count = std::min(kChunk, places_ - first);
                const float *grid = input(slots, 1) + (n * places_ + first) * image_.rank;
                for (Index p = 0; p < count; ++p) find(grid + p * image_.rank, taps, p);
                for (Index c = 0; c < image_.channels; ++c) {
                    const Index layer = n * image_.channels + c;
                    sum(input(slots, 0) + layer * pixels_,
                        output(slots, 2) + layer * places_ + first, taps, count);
                }
            }
        });
    }

    void sum(const float *src, float *dst, const Taps &taps, Index count) const {
        std::fill_n(dst, count, 0.0F);
        for (Index tap = 0; tap < all_taps_; ++tap)
            for (Index p = 0; p < count; ++p)
                dst[p] += src[taps.offsets[tap][p]] * taps.weights[tap][p];
    }

    // The neighbours of one place; the grid says its place along the last dim first.
    void find(const float *place, Taps &taps, Index p) const {
        Index count = 1, stride = 1;
        taps.offsets[0][p] = 0;
        taps.weights[0][p] = 1;
        for (Index dim = 0; dim < image_.rank; ++dim) {
            const Index size = image_.src[2 - dim];
            std::array<Near, 4> near;
            along(place[dim], size, near);
            for (Index t = taps_; t-- > 0;)
                for (Index k = 0; k < count; ++k) {
                    taps.offsets[t * count + k][p] = taps.offsets[k][p] + near[t].at * stride;
                    taps.weights[t * count + k][p] = taps.weights[k][p] * near[t].weight;
                }
            count *= taps_;
            stride *= size;
        }
    }

    void along(float given, Index size, std::array<Near, 4> &near) const {
        const auto length = static_cast<float>(size);
        float place = corners_ ? (given + 1) / 2 * (length - 1) : ((given + 1) * length - 1) / 2;
        if (mode_ == Mode::kNearest) place = std::nearbyint(place);
        const float low = std::floor(place) - (mode_ == Mode::kCubic ? 1.0F : 0.0F);
        for (Index t = 0; t < taps_; ++t) {
            const float at = low + static_cast<float>(t);
            float weight = mode_ == Mode::kCubic ? cubic(at - place) : linear(at - place);
            if (padding_ == Padding::kZeros && (at < 0 || at >= length)) weight *= 0;
            near[t] = {element(padding_ == Padding::kReflection ? reflected(at, length) : at, size),
                       weight};
        }
    }

    // The nearest element that is there; the first for NaN.
    static Index element(float at, Index size) {
        if (!(at > 0)) return 0;
        const Index last = size - 1;
        return at >= static_cast<float>(last) ? last : static_cast<Index>(at);
    }

    // A place beyond the border as one before it, as often as it takes.
    float reflected(float at, float length) const {
        const float low = corners_ ? 0.0F : -0.5F, span = corners_ ? length - 1 : length;
        if (span == 0) return 0;
        const float there = std::fmod(std::fabs(at - low), 2 * span);
        return low + std::min(there, 2 * span - there);
    }

    Sampled image_;
    Mode mode_;
    Padding padding_;
    bool corners_;
    Index pixels_ = 0, places_ = 0, taps_ = 1, all_taps_ = 1;
};

// The index of a name among some.
template <class Enum>
Enum named(const std::string &name, std::initializer_list<const char *> names) {
    Index at = 0;
    for (const char *one : names) {
        if (name == one) return static_cast<Enum>(at);
        ++at;
    }
    refuse("no such way to sample: " + name);
}

}  // namespace

Step *grid_sample(const Sampled &image, const std::string &mode, const std::string &padding,
                  bool corners) {
    return new GridSample(image, named<Mode>(mode, {"nearest", "linear", "cubic"}),
                          named<Padding>(padding, {"zeros", "border", "reflection"}), corners);
}

}  // namespace vtensor::eigen
