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
#include <tuple>

#include "eigen/check.h"
#include "ending.h"
#include "grid.h"
#include "grouped.h"
#include "image.h"
#include "pointwise.h"
#include "product.h"
#include "transform.h"

namespace vtensor::winograd {

namespace {

using eigen::demand;
using eigen::plus;
using eigen::times;

constexpr Index kLine = 64 / sizeof(float);
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
    for (const Index block : {call.src_block, call.dst_block})
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

template <class Down, class Across>
class Tiled final : public Step {
public:
    static constexpr int kProducts = Down::kProducts * Across::kProducts;

    explicit Tiled(const Convolution &call)
        : Step(name()),
          call_(call),
          ending_{call.low, call.high},
          src_(call.images, call.channels, call.src, call.src_block),
          dst_(call.images, call.outputs, call.dst, call.dst_block),
          down_(up(call.dst[0], Down::kResults) / Down::kResults),
          across_(up(call.dst[1], Across::kResults) / Across::kResults),
          tiles_(times(call.images, times(down_, across_))),
          panels_(up(call.outputs, kPanel) / kPanel),
          grid_(Grid::of(omp_get_max_threads(), tiles_)),
          // a line more than all channels: tiles do not meet in the same lines of a cache
          left_(up(call.channels, kLine) + kLine),
          sums_(panels_ * kPanel + kLine) {
        const Index most = grid_.across * kBlockFloats / times(kProducts, plus(left_, sums_));
        const Index mine = up(tiles_, grid_.down) / grid_.down;
        const Index blocks = up(mine, std::max<Index>(most, 1)) / std::max<Index>(most, 1);
        block_ = std::max(up(mine, blocks) / blocks, std::min<Index>(mine, 2 * kMostRows));
        left_step_ = plus(times(block_, left_), kLine);
        sums_step_ = plus(times(block_, sums_), kLine);
        part_ = times(kProducts, plus(left_step_, sums_step_));
        add_slot("src", VTENSOR_READ, src_.elements);
        add_slot("weights", VTENSOR_READ,
                 times(kProducts, times(panels_ * kPanel, call.channels)));
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
        const auto along = [](int results, int taps) {
            return std::to_string(results) + "," + std::to_string(taps);
        };
        return "F(" + along(Down::kResults, Down::kTaps) + ")x(" +
               along(Across::kResults, Across::kTaps) + ")";
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
                transform(own, first, count, share);
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

    void transform(const Memory &at, Index first, Index count, const Share &share) const {
        const Index chunks = up(src_.channels, kLanes) / kLanes;
        const auto [begin, end] = share.of(count * chunks);
        for (Index piece = begin; piece < end; ++piece) {
            const Index tile = piece / chunks, channel = piece % chunks * kLanes;
            const Place where = place(first + tile);
            const Index row = where.row - call_.begin[0], column = where.column - call_.begin[1];
            const float *from = at.src + src_.at(where.image, channel);
            float *to = at.left + tile * left_ + channel;
            const bool inside = row >= 0 && column >= 0 && row + Down::kProducts <= src_.height &&
                                column + Across::kProducts <= src_.width;
            if (inside && src_.stored(channel) == kLanes) {
                source_tile<Down, Across>(from + row * src_.row + column * src_.column, src_.row,
                                          src_.column, to, left_step_);
            } else {
                transform_edge(from, row, column, src_.stored(channel), to);
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
        for (Index piece = begin; piece < end; ++piece) {
            const Index number = piece / panels_, panel = piece % panels_;
            by_panel({at.left + number * left_step_, left_, call_.channels, 0},
                     at.weights + piece * call_.channels * kPanel, count, call_.channels,
                     Rows{at.sums + number * sums_step_ + panel * kPanel, sums_});
        }
    }

    void finish(const Memory &at, Index first, Index count, const Share &share) const {
        const Index chunks = dst_.lanes() / kLanes;
        const auto [begin, end] = share.of(count * chunks);
        for (Index piece = begin; piece < end; ++piece) {
            const Index tile = piece / chunks, channel = piece % chunks * kLanes;
            const Place where = place(first + tile);
            Vector results[Down::kResults * Across::kResults];
            result_tile<Down, Across>(at.sums + tile * sums_ + channel, sums_step_, results);
            const Index target = dst_.at(where.image, channel) + where.row * dst_.row +
                                 where.column * dst_.column;
            const Index rows = std::min<Index>(Down::kResults, dst_.height - where.row);
            const Index columns = std::min<Index>(Across::kResults, dst_.width - where.column);
            const Index there = dst_.there(channel), stored = dst_.stored(channel);
            Vector bias{};
            if (at.bias != nullptr) bias = some(at.bias + channel, there);
            for (Index i = 0; i < rows; ++i) {
                for (Index j = 0; j < columns; ++j) {
                    const Index pixel = target + i * dst_.row + j * dst_.column;
                    ending_(results[i * Across::kResults + j] + bias,
                            at.other == nullptr ? nullptr : at.other + pixel, at.dst + pixel,
                            there, stored);
                }
            }
        }
    }

    Convolution call_;
    Ending ending_;
    Image src_, dst_;
    Index down_, across_, tiles_, panels_;
    Grid grid_;
    Index left_, sums_;            // floats from one tile to the next
    Index left_step_, sums_step_;  // from one of a tile's products to the next
    Index part_;                   // from one range of tiles' products to the next
    Index block_;
};

using Maker = Step *(*)(const Convolution &);

template <class Down, class Across>
Step *made(const Convolution &call) {
    return new Tiled<Down, Across>(call);
}

struct Row {
    Index results[2], taps[2];
    Maker make;
};

template <class Down, class Across>
constexpr Row kRow = {{Down::kResults, Across::kResults}, {Down::kTaps, Across::kTaps},
                      &made<Down, Across>};

using One = Form<1, 1>;

template <class F>
constexpr Row kDown = kRow<F, One>;
template <class F>
constexpr Row kAcross = kRow<One, F>;

constexpr Row kRows[] = {
    kRow<Form<2, 3>, Form<2, 3>>, kRow<Form<4, 3>, Form<4, 3>>, kRow<Form<6, 3>, Form<6, 3>>,
    kDown<Form<2, 3>>,            kDown<Form<4, 3>>,            kDown<Form<6, 3>>,
    kDown<Form<2, 7>>,            kDown<Form<4, 7>>,            kAcross<Form<2, 3>>,
    kAcross<Form<4, 3>>,          kAcross<Form<6, 3>>,          kAcross<Form<2, 7>>,
    kAcross<Form<4, 7>>,
};

}  // namespace

Step *convolution(const Convolution &call) {
    validate(call);
    if (call.groups != 1) return grouped(call);
    if (call.taps == Ints{1, 1} && call.results == Ints{1, 1}) return pointwise(call);
    for (const Row &row : kRows) {
        if (std::equal(row.results, row.results + 2, call.results.begin()) &&
            std::equal(row.taps, row.taps + 2, call.taps.begin()))
            return row.make(call);
    }
    eigen::refuse("no such form");
}

}  // namespace vtensor::winograd
