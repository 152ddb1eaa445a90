// native/winograd/convolution.cpp: convolutions by Winograd's algorithm.
//
// A block of tiles at a time: their input is transformed, each of a tile's products is a product of
// matrices over all tiles of the block, and the sums are transformed back. The block is as large as
// caches hold it. Each thread does all three for tiles of its own, for what another core has just
// written takes long to fetch; where tiles are few, threads share those, and all three stages.
#include "convolution.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <tuple>
#include <vector>

#include "eigen/check.h"
#include "ending.h"
#include "grid.h"
#include "image.h"
#include "phases.h"
#include "pointwise.h"
#include "product.h"
#include "transform.h"

namespace vtensor::winograd {

namespace {

using eigen::demand;
using eigen::plus;
using eigen::times;

constexpr Index kLine = 64 / sizeof(float);
// To begin and end products that are no deeper takes as long as they do. Weights of them up to this
// size are near: they are read again for each few tiles, whose sums are near as well.
constexpr Index kShallow = 16;
constexpr Index kNearBytes = 1 << 18;
// What a block's products may take, input and sums together: they stay in the cache of a core.
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
    // one channel after another is a block of one, of which phases are gathered
    const Index own = call.src_block == 1 && call.step > 1 ? 0 : call.src_block;
    for (const Index block : {own, call.dst_block})
        demand(block == 0 || (block > 0 && block % kLanes == 0), "a block is no whole vectors");
    demand(call.low <= call.high, "bounds that hold nothing");
}

// Sums as they are, in rows so many floats apart.
struct Rows {
    float *to;
    Index step;

    Rows column(Index row, Index column) const { return {to + row * step + column, step}; }

    [[gnu::always_inline]] void operator()(int row, const Vector &sum) const {
        store(to + row * step, sum);
    }
};

// A filter that steps by kStep is kStep * kStep filters that step by 1, each on a phase of the
// image: pixels so many rows and columns apart. Their products are one, as deep as channels times
// phases.
template <class Down, class Across, int kStep>
class Tiled final : public Step {
public:
    static constexpr int kProducts = Down::kProducts * Across::kProducts;
    static constexpr int kPhases = kStep * kStep;

    explicit Tiled(const Convolution &call)
        : Step(name()),
          call_(call),
          ending_{call.low, call.high},
          src_(call.images, call.channels, call.src, call.src_block),
          dst_(call.images, call.outputs, call.dst, call.dst_block),
          src_lanes_(src_.vectors(src_.channels)),
          dst_lanes_(dst_.vectors(dst_.lanes())),
          down_(up(call.dst[0], Down::kResults) / Down::kResults),
          across_(up(call.dst[1], Across::kResults) / Across::kResults),
          tiles_(times(call.images, times(down_, across_))),
          panels_(up(call.outputs, kPanel) / kPanel),
          grid_(Grid::of(omp_get_max_threads(), tiles_)),
          depth_(times(call.channels, kPhases)),
          // a line more than all channels: tiles do not meet in the same lines of a cache
          left_(up(depth_, kLine) + kLine),
          sums_(panels_ * kPanel + kLine),
          near_(depth_ <= kShallow &&
                times(kProducts, panels_) <= kNearBytes / (depth_ * kPanelBytes)) {
        const Index most = grid_.across * kBlockFloats / times(kProducts, plus(left_, sums_));
        const Index mine = up(tiles_, grid_.down) / grid_.down;
        const Index blocks = up(mine, std::max<Index>(most, 1)) / std::max<Index>(most, 1);
        block_ = std::max(up(mine, blocks) / blocks, std::min<Index>(mine, 2 * kMostRows));
        if (near_) block_ = std::min<Index>(mine, kMostRows);
        left_step_ = plus(times(block_, left_), kLine);
        sums_step_ = plus(times(block_, sums_), kLine);
        part_ = times(kProducts, plus(left_step_, sums_step_));
        add_slot("src", VTENSOR_READ, src_.elements);
        add_slot("weights", VTENSOR_READ,
                 times(kProducts, times(panels_ * kPanel, depth_)));
        if (call.bias) add_slot("bias", VTENSOR_READ, call.outputs);
        if (call.other) add_slot("other", VTENSOR_READ, dst_.elements);
        add_slot("dst", VTENSOR_WRITE, dst_.elements);
        add_scratch(times(grid_.down, part_));
    }

private:
    struct Memory {
        const float *src, *weights, *bias, *other;
        float *dst, *left, *sums;
    };
    struct Place {
        Index image, row, column;
    };

    static std::string name() {
        std::ostringstream text;
        text << "F(" << Down::kResults << "," << Down::kTaps << ")x(" << Across::kResults << ","
             << Across::kTaps << ")";
        if (kStep > 1) text << "/" << kStep;
        return text.str();
    }

    void run(void *const *slots) const override {
        std::size_t next = 0;
        const auto input = [&](bool there) {
            return there ? static_cast<const float *>(slots[next++]) : nullptr;
        };
        Memory at{};
        at.src = input(true);
        at.weights = input(true);
        at.bias = input(call_.bias);
        at.other = input(call_.other);
        at.dst = static_cast<float *>(slots[next]);
        auto *scratch = static_cast<float *>(slots[next + 1]);
#pragma omp parallel
        {
            const Index team = omp_get_num_threads(), mine = omp_get_thread_num();
            const Grid grid = team == grid_.threads() ? grid_ : Grid{1, team};
            const Range tiles = grid.rows(mine, tiles_);
            const Share share = grid.share(mine);
            Memory own = at;
            own.left = scratch + grid.range(mine) * part_;
            own.sums = own.left + kProducts * left_step_;
            const Index most = up(tiles_, grid.down) / grid.down;
            for (Index done = 0; done < most; done += block_) {  // as often for all: they meet
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

    Place place(Index tile) const {
        const Index line = tile / across_;
        return {line / down_, line % down_ * Down::kResults, tile % across_ * Across::kResults};
    }

    // Calls body(tile, its place, vector of channels, its lanes) for what is this thread's.
    template <class Body>
    void each_vector(Index first, Index count, const Share &share, const std::vector<Lanes> &lanes,
                     const Body &body) const {
        const Index chunks = static_cast<Index>(lanes.size());
        const auto [begin, end] = share.of(count * chunks);
        if (begin == end) return;
        Index tile = begin / chunks, chunk = begin % chunks;
        Place where = place(first + tile);
        for (Index piece = begin; piece < end; ++piece) {
            body(tile, where, chunk, lanes[static_cast<std::size_t>(chunk)]);
            if (++chunk == chunks) {
                chunk = 0;
                where = place(first + ++tile);
            }
        }
    }

    void transform(const Memory &at, Index first, Index count, const Share &share) const {
        each_vector(first, count, share, src_lanes_,
                    [&](Index tile, const Place &where, Index chunk, const Lanes &lanes) {
                        transform_tile(at.src + where.image * src_.image + lanes.at, where,
                                       lanes.stored, at.left + tile * left_ + chunk * kLanes);
                    });
    }

    void transform_tile(const float *from, const Place &where, Index lanes, float *to) const {
        const Index row = where.row - call_.begin[0], column = where.column - call_.begin[1];
        const bool inside = row >= 0 && column >= 0 && row + Down::kProducts <= src_.height &&
                            column + Across::kProducts <= src_.width;
        if (inside && lanes == kLanes) {
            source_tile<Down, Across>(from + row * src_.row + column * src_.column, src_.row,
                                      src_.column, to, left_step_);
        } else {
            transform_edge(from, row, column, lanes, to);
        }
    }

    // Neighbouring tiles at a time, and as many channels as a vector holds all phases of.
    void transform_phases(const Memory &at, Index first, Index count, const Share &share) const {
        constexpr Index most = 8, channels = kLanes / kPhases;
        constexpr Index row = ((most - 1) * Across::kResults + Across::kProducts) * kLanes;
        alignas(64) float pixels[Down::kProducts * row] = {};
        const auto [begin, end] = share.of(count);
        for (Index tile = begin, next = 0; tile < end; tile = next) {
            next = std::min({end, tile + most, tile + across_ - (first + tile) % across_});
            const Place where = place(first + tile);
            const Phases<kStep> phases{src_, where.row * kStep - call_.begin[0],
                                       where.column * kStep - call_.begin[1], Down::kProducts,
                                       (next - tile - 1) * Across::kResults + Across::kProducts};
            for (Index channel = 0; channel < src_.channels; channel += channels) {
                const Index there = std::min(channels, src_.channels - channel);
                for (Index one = 0; one < there; ++one)
                    phases.gather(at.src + src_.at(where.image, channel + one),
                                  pixels + one * kPhases, row);
                for (Index one = tile; one < next; ++one)
                    source_tile<Down, Across>(
                        pixels + (one - tile) * Across::kResults * kLanes, row, kLanes,
                        at.left + one * left_ + channel * kPhases, left_step_);
            }
        }
    }

    // A tile that lacks pixels, or channels: it is copied among zeros.
    void transform_edge(const float *from, Index row, Index column, Index lanes, float *to) const {
        alignas(64) float pixels[kProducts * kLanes] = {};
        for (Index i = std::max<Index>(-row, 0);
             i < std::min<Index>(Down::kProducts, src_.height - row); ++i) {
            for (Index j = std::max<Index>(-column, 0);
                 j < std::min<Index>(Across::kProducts, src_.width - column); ++j) {
                const Index pixel = (row + i) * src_.row + (column + j) * src_.column;
                std::memcpy(pixels + (i * Across::kProducts + j) * kLanes, from + pixel,
                            static_cast<std::size_t>(lanes) * sizeof(float));
            }
        }
        source_tile<Down, Across>(pixels, Across::kProducts * kLanes, kLanes, to, left_step_);
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
        each_vector(first, count, share, dst_lanes_,
                    [&](Index tile, const Place &where, Index chunk, const Lanes &lanes) {
                        finish_tile(at, at.sums + tile * sums_ + chunk * kLanes, where,
                                    chunk * kLanes, lanes);
                    });
    }

    void finish_tile(const Memory &at, const float *sums, const Place &where, Index channel,
                     const Lanes &lanes) const {
        Vector results[Down::kResults * Across::kResults];
        result_tile<Down, Across>(sums, sums_step_, results);
        const Index target =
            where.image * dst_.image + lanes.at + where.row * dst_.row + where.column * dst_.column;
        const Index rows = dst_.height - where.row, columns = dst_.width - where.column;
        Vector bias{};
        if (at.bias != nullptr) bias = some(at.bias + channel, lanes.there);
        const auto end = [&](Index i, Index j, const Vector &sum, Index there, Index stored)
                             __attribute__((always_inline)) {
            const Index pixel = target + i * dst_.row + j * dst_.column;
            ending_(sum + bias, at.other == nullptr ? nullptr : at.other + pixel, at.dst + pixel,
                    there, stored);
        };
        if (rows >= Down::kResults && columns >= Across::kResults && lanes.there == kLanes) {
            each<Down::kResults>([&](auto i) __attribute__((always_inline)) {
                each<Across::kResults>([&](auto j) __attribute__((always_inline)) {
                    end(i, j, results[i * Across::kResults + j], kLanes, kLanes);
                });
            });
            return;
        }
        for (Index i = 0; i < std::min<Index>(Down::kResults, rows); ++i) {
            for (Index j = 0; j < std::min<Index>(Across::kResults, columns); ++j)
                end(i, j, results[i * Across::kResults + j], lanes.there, lanes.stored);
        }
    }

    Convolution call_;
    Ending ending_;
    Image src_, dst_;
    std::vector<Lanes> src_lanes_, dst_lanes_;
    Index down_, across_, tiles_, panels_;
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
    if (call.taps == Ints{1, 1} && call.results == Ints{1, 1} && call.step == 1)
        return pointwise(call);
    for (const Row &row : kRows) {
        if (std::equal(row.results, row.results + 2, call.results.begin()) &&
            std::equal(row.taps, row.taps + 2, call.taps.begin()) && row.step == call.step)
            return row.make(call);
    }
    eigen::refuse("no such form");
}

}  // namespace vtensor::winograd
