// native/winograd/pointwise.cpp: convolution with a filter of one element: pixels times weights.
#include "pointwise.h"

#include <omp.h>

#include <vector>

#include "eigen/check.h"
#include "eigen/parallel.h"
#include "ending.h"
#include "grid.h"
#include "image.h"
#include "operands.h"
#include "product.h"

namespace vtensor::winograd {

namespace {

using eigen::demand;
using eigen::times;

// Size up to which weights stay in a core's cache while all pixels pass. Of larger weights a panel
// is used at a time, and the pixels pass again for each panel.
constexpr Index kKeptBytes = Index{3} << 17;

// A vector of outputs of pixels `step` floats apart; kWhole if every lane has an output.
template <bool kWhole>
struct Column {
    const float *bias, *other;  // null where there is none
    float *dst;
    Index step, there, stored;
    Ending ending;

    [[gnu::always_inline]] void operator()(int row, Vector sum) const {
        const Index own = kWhole ? kLanes : there, lanes = kWhole ? kLanes : stored;
        if (lanes <= 0) return;
        if (bias != nullptr) sum += some(bias, own);
        const Index at = row * step;
        ending(sum, other == nullptr ? nullptr : other + at, dst + at, own, lanes);
    }
};

// The destination of the sums of a panel.
template <bool kWhole>
struct Results {
    const Lanes *lanes;         // of the panel
    Index step;                 // floats from one pixel to the next
    const float *bias, *other;  // of the panel, and of the first pixel; null where there is none
    float *dst;
    Ending ending;

    Column<kWhole> column(Index row, Index number) const {
        const Lanes &own = lanes[number / kLanes];
        const Index at = row * step + own.at;
        return {bias == nullptr ? nullptr : bias + number,
                other == nullptr ? nullptr : other + at,
                dst + at,
                step,
                own.there,
                own.stored,
                ending};
    }
};

class Pointwise final : public Convolving {
public:
    explicit Pointwise(const Convolution &call)
        : Convolving("F(1,1)x(1,1)", call),
          src_(call.images, call.channels, call.src, call.src_block),
          dst_(call.images, call.outputs, call.dst, call.dst_block),
          panels_(up(call.outputs, kPanel) / kPanel),
          lanes_(dst_.vectors(panels_ * kPanel)),
          images_(call.images),
          pixels_(src_.height * src_.width),
          ending_{call.low, call.high} {
        demand(call.src == call.dst && call.begin == eigen::Ints{0, 0},
               "the image of a filter of one element changes its size");
        if (call.src_block == 0 && call.dst_block == 0) {  // pixels of all images follow each other
            pixels_ = times(pixels_, images_);
            images_ = 1;
        }
        add_operands(src_.elements, times(times(panels_, kPanel), call.channels), call.outputs,
                     dst_.elements);
    }

private:
    void compute(const Operands &at) const override {
        const bool worth = pixels_ * dst_.channels >= eigen::kWorthATeam / src_.channels;
#pragma omp parallel if (worth)
        for (Index image = 0; image < images_; ++image) {
            Operands own = at;
            own.src += image * src_.image;
            own.dst += image * dst_.image;
            if (own.other != nullptr) own.other += image * dst_.image;
            multiply_image(own);
        }
    }

    // With more weights than pixels, each thread reads a part of the weights, which come from
    // memory, and all pixels.
    Grid grid_of(Index threads) const {
        const bool even = panels_ % threads == 0 || panels_ >= 8 * threads;
        if (even && panels_ * kPanel > pixels_) return {1, threads};
        return Grid::of(threads, pixels_);
    }

    void multiply_image(const Operands &at) const {
        const Grid grid = grid_of(omp_get_num_threads());
        const Range rows = grid.rows(omp_get_thread_num(), pixels_);
        const Range panels = grid.share(omp_get_thread_num()).of(panels_);
        const bool kept = panels_ * src_.channels <= kKeptBytes / kPanelBytes;
        const Index step = kept ? kMostRows : std::max<Index>(rows.end - rows.begin, 1);
        for (Index row = rows.begin; row < rows.end; row += step) {
            for (Index panel = panels.begin; panel < panels.end; ++panel) {
                const bool whole = dst_.channels - panel * kPanel >= kPanel;
                const Index count = std::min(step, rows.end - row);
                if (whole) {
                    multiply<true>(at, row, count, panel);
                } else {
                    multiply<false>(at, row, count, panel);
                }
            }
        }
    }

    template <bool kWhole>
    void multiply(const Operands &at, Index first, Index rows, Index panel) const {
        const Index begin = first * dst_.column;
        const Results<kWhole> results{lanes_.data() + panel * (kPanel / kLanes),
                                      dst_.column,
                                      at.bias == nullptr ? nullptr : at.bias + panel * kPanel,
                                      at.other == nullptr ? nullptr : at.other + begin,
                                      at.dst + begin,
                                      ending_};
        const Index part = src_.block == 0 ? src_.channels : src_.block;
        by_panel({at.src + first * src_.column, src_.column, part, src_.part},
                 at.weights + panel * kPanel * src_.channels, rows, src_.channels, results);
    }

    Image src_, dst_;
    Index panels_;
    std::vector<Lanes> lanes_;
    Index images_, pixels_;
    Ending ending_;
};

}  // namespace

Step *pointwise(const Convolution &call) { return new Pointwise(call); }

}  // namespace vtensor::winograd
