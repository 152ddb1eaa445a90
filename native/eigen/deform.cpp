// native/eigen/deform.cpp: deformable convolution: windows sample elements at shifted positions.
//
// The samples of a tile of windows become a matrix in scratch memory, with a column per window, by
// which the kernels are multiplied.
#include <algorithm>
#include <array>

#include "check.h"
#include "matrix.h"
#include "signals.h"
#include "taps.h"
#include "window.h"

namespace vtensor::eigen {

namespace {

// Elements of a tile.
constexpr Index kTileElements = Index{1} << 19;
constexpr Index kFewestColumns = 4 * Taps::kChunk;

class Deformed final : public Step {
public:
    Deformed(const Window &window, const Bends &bends)
        : Step("deformed_convolution"), window_(window), bends_(bends) {
        check(window_);
        const Index groups = bends.groups, parts = bends.parts;
        demand(bends.rank >= 1 && bends.rank <= Index{kSpatial}, "one to three spatial dims");
        for (std::size_t dim = 0; dim < kSpatial - static_cast<std::size_t>(bends.rank); ++dim)
            demand(window.src[dim] == 1 && window.kernel[dim] == 1, "a dim that is none");
        demand(groups > 0 && parts > 0 && window.channels % groups == 0 &&
                   window.channels % parts == 0 && bends.outputs >= 0 &&
                   bends.outputs % groups == 0,
               "the channels do not fall into the groups");
        demand(product(window.src) > 0, "there are no elements to sample");
        taps_ = taps(window_);
        pixels_ = product(window_.src);
        places_ = product(window_.dst);
        depth_ = times(window.channels / groups, taps_);
        const Index bent = product({window.images, parts, taps_, places_});
        add_slot("src", VTENSOR_READ, product({window.images, window.channels, pixels_}));
        add_slot("weights", VTENSOR_READ, times(bends.outputs, depth_));
        add_slot("offset", VTENSOR_READ, times(bent, bends.rank));
        if (bends.masked) add_slot("mask", VTENSOR_READ, bent);
        add_slot("dst", VTENSOR_WRITE, product({window.images, bends.outputs, places_}));
        const Index rows = times(window.channels, taps_);
        const Index full = std::max(kFewestColumns, kTileElements / std::max<Index>(rows, 1));
        columns_ = std::min(places_, full / Taps::kChunk * Taps::kChunk);
        add_scratch(times(rows, columns_));
    }

private:
    // One image of each operand, and the tile.
    struct Image {
        const float *src, *offset, *mask;
        float *tile;
    };

    void run(void *const *slots) const override {
        const std::size_t last = bends_.masked ? 4 : 3;
        const Index bent = bends_.parts * taps_ * places_;
        const Index height = bends_.outputs / bends_.groups;
        for (Index n = 0; n < window_.images; ++n) {
            const Image image{input(slots, 0) + n * window_.channels * pixels_,
                              input(slots, 2) + n * bent * bends_.rank,
                              bends_.masked ? input(slots, 3) + n * bent : nullptr,
                              scratch_bytes() == 0 ? nullptr : output(slots, last + 1)};
            for (Index first = 0; first < places_; first += columns_) {
                const Index count = std::min(columns_, places_ - first);
                take(image, first, count);
                for (Index g = 0; g < bends_.groups; ++g)
                    multiply({input(slots, 1) + g * height * depth_, height, depth_,
                              Eigen::OuterStride<>(depth_)},
                             {image.tile + g * depth_ * columns_, depth_, count,
                              Eigen::OuterStride<>(columns_)},
                             {output(slots, last) +
                                  (n * bends_.outputs + g * height) * places_ + first,
                              height, count, Eigen::OuterStride<>(places_)});
            }
        }
    }

    // Samples the windows first .. first + count: a row per element of a window.
    void take(const Image &image, Index first, Index count) const {
        const Index chunks = (count + Taps::kChunk - 1) / Taps::kChunk;
        const Index channels = window_.channels / bends_.parts;
        const Index near = Index{1} << bends_.rank;
        const Index work = window_.channels * taps_ * count * near;
        parallel(bends_.parts * taps_ * chunks, work, [&](Index begin, Index end) {
            Taps taps;
            for (Index piece = begin; piece < end; ++piece) {
                const Index row = piece / chunks, at = piece % chunks * Taps::kChunk;
                const Index part = row / taps_, tap = row % taps_;
                const Index some = std::min(Taps::kChunk, count - at);
                for (Index p = 0; p < some; ++p) find(image, row, first + at + p, taps, p);
                for (Index c = part * channels; c < (part + 1) * channels; ++c) {
                    float *to = image.tile + (c * taps_ + tap) * columns_ + at;
                    taps.sum(image.src + c * pixels_, near, to, some);
                    if (image.mask == nullptr) continue;
                    const float *mask = image.mask + row * places_ + first + at;
                    for (Index p = 0; p < some; ++p) to[p] *= mask[p];
                }
            }
        });
    }

    // Finds the neighbours of the sample for one element of a window's kernel. Rows count the
    // elements of the kernel, once for each offset group.
    void find(const Image &image, Index row, Index window, Taps &taps, Index p) const {
        const Place where = place(window_, window);
        Index tap = row % taps_, count = 1, stride = 1;
        taps.begin(p);
        for (Index axis = bends_.rank; axis-- > 0;) {
            const std::size_t dim = kSpatial - static_cast<std::size_t>(bends_.rank - axis);
            const Index size = window_.src[dim];
            const Index own = origin(window_, where, dim) +
                              tap % window_.kernel[dim] * window_.dilations[dim];
            const float offset = image.offset[(row * bends_.rank + axis) * places_ + window];
            const double at = static_cast<double>(own) + static_cast<double>(offset);
            std::array<Near, 2> near;
            for (std::size_t t = 0; t < near.size(); ++t) near[t] = beside(at, t, size);
            taps.spread(p, count, near.data(), 2, stride);
            tap /= window_.kernel[dim];
            count *= 2;
            stride *= size;
        }
    }

    // Returns the element before a position or the one after it; elements outside of the image have
    // weight 0.
    static Near beside(double at, std::size_t t, Index size) {
        const double there = std::floor(at) + static_cast<double>(t);
        const float weight = linear(there - at);
        const bool outside = there < 0 || there >= static_cast<double>(size);
        return {nearest(there, size), outside ? 0 * weight : weight};
    }

    Window window_;
    Bends bends_;
    Index taps_ = 0, pixels_ = 0, places_ = 0, depth_ = 0, columns_ = 0;
};

}  // namespace

Step *deformed(const Window &window, const Bends &bends) { return new Deformed(window, bends); }

}  // namespace vtensor::eigen
