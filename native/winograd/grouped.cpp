// native/winograd/grouped.cpp: grouped convolutions by Winograd's algorithm.
//
// A vector of results reads the channels of its own groups only. If several groups share a vector,
// each lane takes the channels of its group from a vector of pixels, so that no product is by zero.
// All work of a group is done at once, some tiles at a time, while its data is in the L1 cache.
#include "grouped.h"

#include <omp.h>

#include <algorithm>

#include "eigen/check.h"
#include "eigen/parallel.h"
#include "tiles.h"

namespace vtensor::winograd {

namespace {

using eigen::demand;
using eigen::times;

// Tiles whose sums are in registers at once.
constexpr int kAtOnce = kLanes == 4 ? 4 : kMostRows / 2 + 1;
// Floats of the products of some tiles, input and sums together.
constexpr Index kNearFloats = (3 << 14) / sizeof(float);

using Places = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

// Returns the offset of each lane's group in its vector.
Places groups_of(Index width) {
    Places places{};
    for (int lane = 0; lane < kLanes; ++lane)
        places[lane] = static_cast<std::int32_t>(lane / width * width);
    return places;
}

// Multiplies pixels of kTiles tiles by the weights of a vector of results, whose lanes are of one
// group or, with kParts, of several.
template <int kTiles, bool kParts>
void by_group(const float *left, Index step, const float *weights, Index width, Places groups,
              float *to) {
    Vector sums[kTiles] = {};
    Vector pixels[kTiles];
    if constexpr (kParts)
        each<kTiles>([&](auto tile) { pixels[tile] = load(left + tile * step); });
    for (Index channel = 0; channel < width; ++channel, ++groups, weights += kLanes) {
        const Vector factor = load(weights);
        each<kTiles>([&](auto tile) {
            if constexpr (kParts) {
                sums[tile] += __builtin_shuffle(pixels[tile], groups) * factor;
            } else {
                sums[tile] += all(left[tile * step + channel]) * factor;
            }
        });
    }
    each<kTiles>([&](auto tile) { store(to + tile * step, sums[tile]); });
}

using Kernel = void (*)(const float *, Index, const float *, Index, Places, float *);

struct Kernels {
    Kernel of[kAtOnce];
};

template <bool kParts>
constexpr Kernels kKernels = []<int... kTiles>(std::integer_sequence<int, kTiles...>) {
    return Kernels{{&by_group<kTiles + 1, kParts>...}};
}(std::make_integer_sequence<int, kAtOnce>{});

template <class Down, class Across>
class Grouped final : public Convolving {
public:
    static constexpr int kProducts = Tiles<Down, Across>::kProducts;

    explicit Grouped(const Convolution &call)
        : Convolving(std::to_string(call.groups) + " of " + Tiles<Down, Across>::name(), call),
          call_(call),
          tiles_(call),
          width_(call.channels / call.groups),
          unit_(std::max<Index>(width_, kLanes)),
          groups_(groups_of(width_)),
          kernels_(width_ < kLanes ? kKernels<true> : kKernels<false>) {
        const Index most = std::max<Index>(kNearFloats / times(2 * kProducts, unit_), kAtOnce);
        blocks_ = up(tiles_.count, most) / most;
        block_ = up(tiles_.count, blocks_) / blocks_;
        part_ = times(2 * kProducts, times(block_, unit_));
        work_ = times(tiles_.count, times(call.channels, kProducts));
        add_operands(tiles_.src.elements, times(kProducts, times(call.channels, width_)),
                     call.outputs, tiles_.dst.elements);
        threads_ = omp_get_max_threads();
        add_scratch(times(threads_, part_));
    }

private:
    void compute(const Operands &at) const override {
        const Index pieces = call_.channels / unit_ * blocks_;
        const Index threads = std::min<Index>(threads_, omp_get_max_threads());
#pragma omp parallel num_threads(threads) if (work_ >= eigen::kWorthATeam)
        {
            const Index all = omp_get_num_threads(), mine = omp_get_thread_num();
            float *own = at.scratch + mine * part_;
            for (Index piece = pieces * mine / all; piece < pieces * (mine + 1) / all; ++piece)
                compute_piece(at, piece / blocks_ * unit_, piece % blocks_, own);
        }
    }

    // Computes some tiles of the channels that are computed together.
    void compute_piece(const Operands &at, Index channel, Index block, float *left) const {
        const Index first = tiles_.count * block / blocks_;
        const Index count = tiles_.count * (block + 1) / blocks_ - first;
        const Index step = block_ * unit_;  // from one product to the next
        float *sums = left + kProducts * step;
        for (Index tile = 0; tile < count; ++tile) {
            const auto where = tiles_.place(first + tile);
            for (Index more = 0; more < unit_; more += kLanes)
                tiles_.read(at.src, where, (channel + more) / kLanes, left + tile * unit_ + more,
                            step);
        }
        for (Index number = 0; number < kProducts; ++number)
            for (Index more = 0; more < unit_; more += kLanes)
                multiply(left + number * step,
                         at.weights + (number * call_.channels + channel + more) * width_, count,
                         sums + number * step + more);
        // Lanes after the last channel may be padding of a block.
        const bool last = channel + unit_ == call_.channels;
        const Index end = last ? tiles_.dst.lanes() - channel : unit_;
        for (Index tile = 0; tile < count; ++tile) {
            const auto where = tiles_.place(first + tile);
            for (Index more = 0; more < end; more += kLanes)
                tiles_.write(sums + tile * unit_ + (more < unit_ ? more : 0), step, where,
                             (channel + more) / kLanes, at);
        }
    }

    void multiply(const float *left, const float *weights, Index count, float *to) const {
        const Index passes = up(count, kAtOnce) / kAtOnce;  // all of nearly the same number
        for (Index pass = 0, begin = 0, end = 0; pass < passes; ++pass, begin = end) {
            end = count * (pass + 1) / passes;
            kernels_.of[end - begin - 1](left + begin * unit_, unit_, weights, width_, groups_,
                                         to + begin * unit_);
        }
    }

    Convolution call_;
    Tiles<Down, Across> tiles_;
    Index width_, unit_;  // channels of a group, and of those that are computed together
    Places groups_;
    const Kernels &kernels_;
    Index blocks_ = 0, block_ = 0, part_ = 0, work_ = 0, threads_ = 0;
};

using Three2 = Form<2, 3>;
using Three4 = Form<4, 3>;
using Three6 = Form<6, 3>;

}  // namespace

Step *grouped(const Convolution &call) {
    demand(call.groups > 0 && call.channels == call.outputs && call.channels % call.groups == 0,
           "groups have as many outputs as channels");
    const Index width = call.channels / call.groups;
    demand(width > 0 && call.channels % kLanes == 0 &&
               (kLanes % width == 0 || width % kLanes == 0),
           "groups are no whole vectors, and no whole parts of one");
    if (call.taps == Ints{3, 3} && call.step == 1) {
        if (call.results == Ints{2, 2}) return new Grouped<Three2, Three2>(call);
        if (call.results == Ints{4, 4}) return new Grouped<Three4, Three4>(call);
        if (call.results == Ints{6, 6}) return new Grouped<Three6, Three6>(call);
    }
    eigen::refuse("no such form of groups");
}

}  // namespace vtensor::winograd
