// native/eigen/grid.cpp: GridSample: an image sampled between its elements, at the positions in a
// grid.
#include <algorithm>
#include <array>
#include <cmath>

#include "check.h"
#include "elements.h"
#include "moves.h"
#include "parallel.h"
#include "taps.h"

namespace vtensor::eigen {

namespace {

enum class Mode { kNearest, kLinear, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

// R. Keys, Cubic convolution interpolation for digital image processing, equation 4, a = -0.75.
float cubic(double distance) {
    constexpr double a = -0.75;
    const double d = std::fabs(distance);
    if (d <= 1) return static_cast<float>(((a + 2) * d - (a + 3)) * d * d + 1);
    if (d < 2) return static_cast<float>(((a * d - 5 * a) * d + 8 * a) * d - 4 * a);
    return d >= 2 ? 0 : static_cast<float>(d);  // keeps NaN
}

template <class Element, class Number>
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
        add_slot("src", VTENSOR_READ, times(layers, pixels_), sizeof(Element));
        add_slot("grid", VTENSOR_READ, product({image.images, places_, image.rank}),
                 sizeof(Number));
        add_slot("dst", VTENSOR_WRITE, times(layers, places_), sizeof(Element));
        taps_ = mode == Mode::kNearest ? 1 : mode == Mode::kLinear ? 2 : 4;
        for (Index dim = 0; dim < image.rank; ++dim) all_taps_ *= taps_;
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        const auto *grid = static_cast<const Number *>(slots[1]);
        auto *dst = static_cast<Element *>(slots[2]);
        const Index chunks = (places_ + Taps::kChunk - 1) / Taps::kChunk;
        const Index work = image_.images * places_ * all_taps_ * (image_.channels + 4);
        parallel(image_.images * chunks, work, [&](Index begin, Index end) {
            Taps taps;
            for (Index piece = begin; piece < end; ++piece) {
                const Index n = piece / chunks, first = piece % chunks * Taps::kChunk;
                const Index count = std::min(Taps::kChunk, places_ - first);
                const Number *places = grid + (n * places_ + first) * image_.rank;
                for (Index p = 0; p < count; ++p) find(places + p * image_.rank, taps, p);
                for (Index c = 0; c < image_.channels; ++c) {
                    const Index layer = n * image_.channels + c;
                    taps.sum(src + layer * pixels_, all_taps_, dst + layer * places_ + first,
                             count);
                }
            }
        });
    }

    // Finds the neighbours of one position; the grid has the position along the last dim first.
    void find(const Number *place, Taps &taps, Index p) const {
        Index count = 1, stride = 1;
        taps.begin(p);
        for (Index dim = 0; dim < image_.rank; ++dim) {
            const Index size = image_.src[2 - dim];
            std::array<Near, 4> near;
            along(static_cast<float>(place[dim]), size, near);
            taps.spread(p, count, near.data(), taps_, stride);
            count *= taps_;
            stride *= size;
        }
    }

    void along(double given, Index size, std::array<Near, 4> &near) const {
        const auto length = static_cast<double>(size);
        double place = corners_ ? (given + 1) / 2 * (length - 1) : ((given + 1) * length - 1) / 2;
        if (mode_ == Mode::kNearest) place = std::nearbyint(place);
        const double low = std::floor(place) - (mode_ == Mode::kCubic ? 1 : 0);
        for (Index t = 0; t < taps_; ++t) {
            const double at = low + static_cast<double>(t);
            float weight = mode_ == Mode::kCubic ? cubic(at - place) : linear(at - place);
            if (padding_ == Padding::kZeros && (at < 0 || at >= length)) weight *= 0;
            near[t] = {nearest(padding_ == Padding::kReflection ? reflected(at, length) : at, size),
                       weight};
        }
    }

    // Reflects a position beyond the border, as often as needed.
    double reflected(double at, double length) const {
        const double low = corners_ ? 0 : -0.5, span = corners_ ? length - 1 : length;
        if (span == 0) return 0;
        const double there = std::fmod(std::fabs(at - low), 2 * span);
        return low + std::min(there, 2 * span - there);
    }

    Sampled image_;
    Mode mode_;
    Padding padding_;
    bool corners_;
    Index pixels_ = 0, places_ = 0, taps_ = 1, all_taps_ = 1;
};

// Returns the enumerator with the index that a name has in a list.
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

Step *grid_sample(const std::string &dtype, const std::string &grid_dtype, const Sampled &image,
                  const std::string &mode, const std::string &padding, bool corners) {
    const Mode way = named<Mode>(mode, {"nearest", "linear", "cubic"});
    const Padding beyond = named<Padding>(padding, {"zeros", "border", "reflection"});
    return with_fraction(dtype, [&]<class T>(Type<T>) {
        return with_fraction(grid_dtype, [&]<class N>(Type<N>) -> Step * {
            return new GridSample<T, N>(image, way, beyond, corners);
        });
    });
}

}  // namespace vtensor::eigen
