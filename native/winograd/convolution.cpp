// native/winograd/convolution.cpp: convolutions by Winograd's algorithm.
//
// A block of tiles at a time: its input is transformed, each of a tile's products is a product of
// matrices over all tiles of the block, and the sums are transformed back. A block is as large as
// fits into caches. Each thread does all three stages for tiles of its own, since data that another
// core has just written is slow to fetch; if there are few tiles, threads share them and all three
// stages.
#include "convolution.h"

#include <omp.h>

#include <algorithm>
#include <string>

#include "eigen/check.h"
#include "grid.h"
#include "grouped.h"
#include "phases.h"
#include "pointwise.h"
#include "product.h"
#include "tiles.h"

namespace vtensor::winograd {

namespace {

using eigen::demand;
using eigen::plus;
using eigen::times;

constexpr Index kLine = 64 / sizeof(float);
// Depth up to which the overhead of a product takes as long as the product itself. If the weights
// of such products have at most kNearBytes, they stay in a cache and are read again for each few
// tiles; the sums of these tiles then stay in a cache as well.
constexpr Index kShallow = 16;
constexpr Index kNearBytes = 1 << 18;
// Floats of a block's products, input and sums together, which stay in a core's cache.
constexpr Index kBlockFloats = (3 << 18) / sizeof(float);

void validate(const Convolution &call) {
    for (const Ints *pair : {&call.src, &call.dst, &call.begin, &call.taps, &call.results})
        demand(pair->size() == 2, "two spatial dims");
    demand(call.images > 0 && call.channels > 0 && call.outputs > 0, "a size is not above 0");
    for (const int i : {0, 1}) {
        demand(call.src[i] > 0 && call.dst[i] > 0, "a size is not above 0");
        demand(call.begin[i] >= 0, "a pad is negative");
        plus(plus(call.dst[i], call.begin[i]), plus(call.src[i], 1 << 10));
    }
    demand(call.step == 1 || call.step == 2, "steps are 1 or 2");
    for (const int i : {0, 1}) times(plus(call.dst[i], 1 << 10), call.step);
    // blocks of one are channels first, which only a convolution with phases reads
    const Index own = call.src_block == 1 && call.step > 1 ? 0 : call.src_block;
    for (const Index block : {own, call.dst_block})
        demand(block == 0 || (block > 0 && block % kLanes == 0), "a block is no whole vectors");
    demand(call.low <= call.high, "bounds that hold nothing");
}

// Stores sums unchanged, in rows `step` floats apart.
struct Rows {
    float *to;
    Index step;

    Rows column(Index row, Index column) const { return {to + row * step + column, step}; }

    [[gnu::always_inline]] void operator()(int row, const Vector &sum) const {
        store(to + row * step, sum);
    }
};

// A convolution in tiles. A filter of stride kStep is kStep * kStep filters of stride 1, each on a
// phase of the image: every kStep-th row and column. Their products are one product, as deep as
// channels times phases.
template <class Down, class Across, int kStep>
class Tiled final : public Convolving {
public:
    static constexpr int kProducts = Down::kProducts * Across::kProducts;
    static constexpr int kPhases = kStep * kStep;

    explicit Tiled(const Convolution &call)
        : Convolving(Tiles<Down, Across>::name() +
                         (kStep > 1 ? "/" + std::to_string(kStep) : std::string()),
                     call),
          call_(call),
          tiles_(call),
          panels_(up(call.outputs, kPanel) / kPanel),
          grid_(Grid::of(omp_get_max_threads(), tiles_.count)),
          depth_(times(call.channels, kPhases)),
          // padded by a line, so that tiles do not share cache sets
          left_(up(depth_, kLine) + kLine),
          sums_(panels_ * kPanel + kLine),
          near_(depth_ <= kShallow &&
                times(kProducts, panels_) <= kNearBytes / (depth_ * kPanelBytes)) {
        const Index most = grid_.across * kBlockFloats / times(kProducts, plus(left_, sums_));
        const Index mine = up(tiles_.count, grid_.down) / grid_.down;
        const Index blocks = up(mine, std::max<Index>(most, 1)) / std::max<Index>(most, 1);
        block_ = std::max(up(mine, blocks) / blocks, std::min<Index>(mine, 2 * kMostRows));
        if (near_) block_ = std::min<Index>(mine, kMostRows);
        left_step_ = plus(times(block_, left_), kLine);
        sums_step_ = plus(times(block_, sums_), kLine);
        part_ = times(kProducts, plus(left_step_, sums_step_));
        add_operands(tiles_.src.elements, times(kProducts, times(panels_ * kPanel, depth_)),
                     call.outputs, tiles_.dst.elements);
        add_scratch(times(grid_.down, part_));
    }

private:
    struct Memory : Operands {
        float *left, *sums;
    };

    void compute(const Operands &at) const override {
#pragma omp parallel
        {
            const Index team = omp_get_num_threads(), mine = omp_get_thread_num();
            const Grid grid = team == grid_.threads() ? grid_ : Grid{1, team};
            const Range tiles = grid.rows(mine, tiles_.count);
            const Share share = grid.share(mine);
            float *left = at.scratch + grid.range(mine) * part_;
            const Memory own{at, left, left + kProducts * left_step_};
            const Index most = up(tiles_.count, grid.down) / grid.down;
            // as often in each thread: all have to meet the barriers
            for (Index done = 0; done < most; done += block_) {
                const Index first = tiles.begin + done;
                const Index count = std::clamp<Index>(tiles.end - first, 0, block_);
                if constexpr (kStep == 1) {
                    transform(own, first, count, share);
                } else {
                    transform_phases(own, first, count, share);
                }
                if (grid.across > 1) {
#pragma omp barrier
                }
                multiply(own, count, share);
                if (grid.across > 1) {
#pragma omp barrier
                }
                finish(own, first, count, share);
            }
        }
    }

    // Calls body(tile, its place, vector of channels) for this thread's share.
    template <class Body>
    void each_vector(Index first, Index count, const Share &share, std::size_t vectors,
                     const Body &body) const {
        const Index chunks = static_cast<Index>(vectors);
        const auto [begin, end] = share.of(count * chunks);
        if (begin == end) return;
        Index tile = begin / chunks, chunk = begin % chunks;
        auto where = tiles_.place(first + tile);
        for (Index piece = begin; piece < end; ++piece) {
            body(tile, where, chunk);
            if (++chunk == chunks) {
                chunk = 0;
                where = tiles_.place(first + ++tile);
            }
        }
    }

    void transform(const Memory &at, Index first, Index count, const Share &share) const {
        each_vector(first, count, share, tiles_.src_lanes.size(),
                    [&](Index tile, const auto &where, Index chunk) {
                        tiles_.read(at.src, where, chunk, at.left + tile * left_ + chunk * kLanes,
                                    left_step_);
                    });
    }

    // Transforms several neighbouring tiles at a time, for as many channels as a vector holds with
    // all their phases.
    void transform_phases(const Memory &at, Index first, Index count, const Share &share) const {
        constexpr Index most = 8, channels = kLanes / kPhases;
        constexpr Index row = ((most - 1) * Across::kResults + Across::kProducts) * kLanes;
        alignas(64) float pixels[Down::kProducts * row] = {};
        const auto [begin, end] = share.of(count);
        for (Index tile = begin, next = 0; tile < end; tile = next) {
            next = std::min({end, tile + most, tile + tiles_.across - (first + tile) % tiles_.across});
            const auto where = tiles_.place(first + tile);
            const Phases<kStep> phases{tiles_.src, where.row * kStep - call_.begin[0],
                                       where.column * kStep - call_.begin[1], Down::kProducts,
                                       (next - tile - 1) * Across::kResults + Across::kProducts};
            for (Index channel = 0; channel < call_.channels; channel += channels) {
                const Index there = std::min(channels, call_.channels - channel);
                for (Index one = 0; one < there; ++one)
                    phases.gather(at.src + tiles_.src.at(where.image, channel + one),
                                  pixels + one * kPhases, row);
                for (Index one = tile; one < next; ++one)
                    source_tile<Down, Across>(
                        pixels + (one - tile) * Across::kResults * kLanes, row, kLanes,
                        at.left + one * left_ + channel * kPhases, left_step_);
            }
        }
    }

    void multiply(const Memory &at, Index count, const Share &share) const {
        const auto [begin, end] = share.of(kProducts * panels_);
        if (near_) {
            by_near_panels({at.left, left_, left_step_, at.weights, depth_, panels_, at.sums, sums_,
                            sums_step_},
                           count, begin, end);
            return;
        }
        for (Index piece = begin; piece < end; ++piece) {
            const Index number = piece / panels_, panel = piece % panels_;
            by_panel({at.left + number * left_step_, left_, depth_, 0},
                     at.weights + piece * depth_ * kPanel, count, depth_,
                     Rows{at.sums + number * sums_step_ + panel * kPanel, sums_});
        }
    }

    void finish(const Memory &at, Index first, Index count, const Share &share) const {
        each_vector(first, count, share, tiles_.dst_lanes.size(),
                    [&](Index tile, const auto &where, Index chunk) {
                        tiles_.write(at.sums + tile * sums_ + chunk * kLanes, sums_step_, where,
                                     chunk, at);
                    });
    }

    Convolution call_;
    Tiles<Down, Across> tiles_;
    Index panels_;
    Grid grid_;
    Index depth_;                  // of the products
    Index left_, sums_;            // floats from one tile to the next
    Index left_step_, sums_step_;  // from one of a tile's products to the next
    Index part_;                   // from one range of tiles' products to the next
    bool near_;
    Index block_;
};

using Maker = Step *(*)(const Convolution &);

template <class Down, class Across, int kStep>
Step *made(const Convolution &call) {
    return new Tiled<Down, Across, kStep>(call);
}

struct Row {
    Index results[2], taps[2], step;
    Maker make;
};

template <class Down, class Across, int kStep = 1>
constexpr Row kRow = {{Down::kResults, Across::kResults}, {Down::kTaps, Across::kTaps}, kStep,
                      &made<Down, Across, kStep>};

using One = Form<1, 1>;

template <class F>
constexpr Row kDown = kRow<F, One>;
template <class F>
constexpr Row kAcross = kRow<One, F>;
template <class F>
constexpr Row kByTwo = kRow<F, F, 2>;

constexpr Row kRows[] = {
    kRow<Form<2, 3>, Form<2, 3>>, kRow<Form<4, 3>, Form<4, 3>>, kRow<Form<6, 3>, Form<6, 3>>,
    kDown<Form<2, 3>>,            kDown<Form<4, 3>>,            kDown<Form<6, 3>>,
    kDown<Form<2, 7>>,            kDown<Form<4, 7>>,            kAcross<Form<2, 3>>,
    kAcross<Form<4, 3>>,          kAcross<Form<6, 3>>,          kAcross<Form<2, 7>>,
    kAcross<Form<4, 7>>,          kByTwo<Form<2, 3>>,           kByTwo<Form<4, 3>>,
    kByTwo<Form<6, 3>>,           kByTwo<Form<3, 4>>,           kByTwo<Form<5, 4>>,
};

}  // namespace

Step *convolution(const Convolution &call) {
    validate(call);
    if (call.groups != 1) return grouped(call);
    if (call.taps == Ints{1, 1} && call.results == Ints{1, 1} && call.step == 1)
        return pointwise(call);
    for (const Row &row : kRows) {
        if (std::equal(row.results, row.results + 2, call.results.begin()) &&
            std::equal(row.taps, row.taps + 2, call.taps.begin()) && row.step == call.step)
            return row.make(call);
    }
    eigen::refuse("no such form");
}

Index lanes() { return kLanes; }

}  // namespace vtensor::winograd
