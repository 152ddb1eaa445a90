// native/winograd/convolution.cpp: convolutions by Winograd's algorithm.
//
// A block of tiles at a time: their input is transformed, each of a tile's products is a product of
// matrices over all tiles of the block, and the sums are transformed back. The block is as large as
// the caches hold it; the team shares each of the three stages.
#include "convolution.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "eigen/check.h"
#include "product.h"
#include "transform.h"

namespace vtensor::winograd {

namespace {

using eigen::demand;
using eigen::plus;
using eigen::times;

constexpr Index kLine = 64 / sizeof(float);
// What a block's products may take, input and sums together: they stay in the caches of two cores.
constexpr Index kBlockFloats = (3 << 19) / sizeof(float);

Index up(Index size, Index unit) { return plus(size, unit - 1) / unit * unit; }

// Where the pixels of an image lie, in floats.
struct Image {
    Image(Index images, Index channels_, const Ints &size, Index block_)
        : channels(channels_), height(size[0]), width(size[1]), block(block_) {
        const Index lanes = block == 0 ? channels : block;
        const Index blocks = block == 0 ? 1 : up(channels, block) / block;
        column = lanes;
        row = times(width, column);
        part = times(height, row);
        image = times(blocks, part);
        elements = times(images, image);
    }

    Index at(Index number, Index channel) const {
        const Index base = number * image;
        return block == 0 ? base + channel : base + channel / block * part + channel % block;
    }
    // How many of a vector's channels are there, and how many lanes are stored for them.
    Index there(Index channel) const { return std::min<Index>(kLanes, channels - channel); }
    Index stored(Index channel) const { return block == 0 ? there(channel) : Index{kLanes}; }

    Index channels, height, width, block, column, row, part, image, elements;
};

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

template <class Down, class Across>
class Tiled final : public Step {
public:
    static constexpr int kProducts = Down::kProducts * Across::kProducts;

    explicit Tiled(const Convolution &call)
        : Step(name()),
          call_(call),
          src_(call.images, call.channels, call.src, call.src_block),
          dst_(call.images, call.outputs, call.dst, call.dst_block),
          down_(up(call.dst[0], Down::kResults) / Down::kResults),
          across_(up(call.dst[1], Across::kResults) / Across::kResults),
          tiles_(times(call.images, times(down_, across_))),
          panels_(up(call.outputs, kPanel) / kPanel),
          // a line more than all channels: tiles do not meet in the same lines of a cache
          left_(up(call.channels, kLine) + kLine),
          sums_(panels_ * kPanel + kLine) {
        const Index most = kBlockFloats / times(kProducts, plus(left_, sums_));
        block_ = std::min(tiles_, std::max<Index>(most, 2 * kMostRows));
        left_step_ = plus(times(block_, left_), kLine);
        sums_step_ = plus(times(block_, sums_), kLine);
        add_slot("src", VTENSOR_READ, src_.elements);
        add_slot("weights", VTENSOR_READ,
                 times(kProducts, times(panels_ * kPanel, call.channels)));
        if (call.bias) add_slot("bias", VTENSOR_READ, call.outputs);
        if (call.other) add_slot("other", VTENSOR_READ, dst_.elements);
        add_slot("dst", VTENSOR_WRITE, dst_.elements);
        add_scratch(times(kProducts, plus(left_step_, sums_step_)));
    }

private:
    struct Memory {
        const float *src, *weights, *bias, *other;
        float *dst, *left, *sums;
    };
    // A part of the block's tiles' work, counted in pieces.
    struct Share {
        Index mine, all;
        std::pair<Index, Index> of(Index pieces) const {
            return {pieces * mine / all, pieces * (mine + 1) / all};
        }
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
        at.left = static_cast<float *>(slots[next + 1]);
        at.sums = at.left + kProducts * left_step_;
#pragma omp parallel
        {
            const Share share{omp_get_thread_num(), omp_get_num_threads()};
            for (Index first = 0; first < tiles_; first += block_) {
                const Index count = std::min(block_, tiles_ - first);
                transform(at, first, count, share);
#pragma omp barrier
                multiply(at, count, share);
#pragma omp barrier
                finish(at, first, count, share);
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
            by_panel(at.left + number * left_step_, left_,
                     at.weights + piece * call_.channels * kPanel, count, call_.channels,
                     at.sums + number * sums_step_ + panel * kPanel, sums_);
        }
    }

    void finish(const Memory &at, Index first, Index count, const Share &share) const {
        const Index chunks = up(dst_.channels, kLanes) / kLanes;
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
                    Vector value = results[i * Across::kResults + j] + bias;
                    if (at.other != nullptr) value += some(at.other + pixel, stored);
                    value = bounded(value);
                    if (there == kLanes) {
                        store(at.dst + pixel, value);
                    } else {
                        put(at.dst + pixel, value, there, stored);
                    }
                }
            }
        }
    }

    // NaN stays.
    Vector bounded(Vector value) const {
        value = value < call_.low ? all(call_.low) : value;
        return value > call_.high ? all(call_.high) : value;
    }

    // The first lanes from memory, the others 0.
    static Vector some(const float *from, Index lanes) {
        if (lanes == kLanes) return load(from);
        Vector value{};
        std::memcpy(&value, from, static_cast<std::size_t>(lanes) * sizeof(float));
        return value;
    }

    // `stored` lanes, those from `there` on 0.
    static void put(float *to, const Vector &value, Index there, Index stored) {
        Vector whole{};
        std::memcpy(&whole, &value, static_cast<std::size_t>(there) * sizeof(float));
        std::memcpy(to, &whole, static_cast<std::size_t>(stored) * sizeof(float));
    }

    Convolution call_;
    Image src_, dst_;
    Index down_, across_, tiles_, panels_;
    Index left_, sums_;            // floats from one tile to the next
    Index left_step_, sums_step_;  // from one of a tile's products to the next
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
    for (const Row &row : kRows) {
        if (std::equal(row.results, row.results + 2, call.results.begin()) &&
            std::equal(row.taps, row.taps + 2, call.taps.begin()))
            return row.make(call);
    }
    eigen::refuse("no such form");
}

}  // namespace vtensor::winograd
