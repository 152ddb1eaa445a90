// native/narrow/recurrent.cpp: an LSTM whose products are of bytes.
//
// x is quantized by one scale. Its part of the gates is a product for many steps, whose rows are in
// the order of the steps. In each step the hidden states are quantized by one scale; each thread
// then computes all gates of its units, so that threads wait for one another once a step.
#include "recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "eigen/parallel.h"
#include "eigen/recurrence.h"
#include "sums.h"

namespace vtensor::narrow {

namespace {

using eigen::Cell;
using eigen::input;
using eigen::Network;
using eigen::parallel;
using eigen::plus;
using eigen::product;
using eigen::times;

constexpr Index kGates = 4;
constexpr Index kChunkElements = Index{1} << 18;
constexpr Index kLine = 64;  // bytes by which parts of scratch are aligned
constexpr float kMost = 255.0F;

Index up(Index size, Index unit) { return plus(size, unit - 1) / unit * unit; }

// The scale and the zero point of numbers, as of DynamicQuantizeLinear: a NaN does not count.
struct Grid {
    float scale, zero;

    static Grid of(const float *x, Index n) {
        float low = 0, high = 0;
#pragma omp simd reduction(min : low) reduction(max : high)
        for (Index i = 0; i < n; ++i) {
            low = x[i] < low ? x[i] : low;
            high = high < x[i] ? x[i] : high;
        }
        const float scale = (high > low ? high - low : 1.0F) / kMost;
        return {scale, std::fmin(std::fmax(std::nearbyint(-low / scale), 0.0F), kMost)};
    }
};

// Stores n quantized numbers minus `less`, and returns their sum. In one loop, GCC would branch on
// the bounds, and so make no loop of vectors.
template <class Item>
std::int32_t quantize(const float *x, Index n, const Grid &grid, float less, std::byte *to) {
    constexpr Index kTile = 256;
    auto *items = reinterpret_cast<Item *>(to);
    const float scale = grid.scale, zero = grid.zero;
    std::int32_t sum = 0;
    for (Index first = 0; first < n; first += kTile) {
        const Index count = std::min(kTile, n - first);
        alignas(kLine) float codes[kTile];
        for (Index i = 0; i < count; ++i) {
            const float step = std::nearbyint(x[first + i] / scale) + zero;
            const float above = step > 0.0F ? step : 0.0F;  // 0 for NaN
            codes[i] = (above < kMost ? above : kMost) - less;
        }
        for (Index i = 0; i < count; ++i) {
            const auto code = static_cast<std::int32_t>(codes[i]);
            items[first + i] = static_cast<Item>(code);
            sum += code;
        }
    }
    return sum;
}

// Rows of quantized numbers, as a kind of instructions reads them.
struct Codes {
    const Kind *kind;
    Index depth;   // elements of a row
    Index stride;  // bytes from row to row
    std::byte *rows = nullptr;
    std::int32_t *sums = nullptr;  // of the stored elements of each row

    Codes(const Kind &of, Index elements)
        : kind(&of), depth(elements), stride(times(up(elements, of.depth), of.item())) {}

    // What is subtracted from stored elements.
    Index zero(const Grid &grid) const {
        return kind->form == Form::words ? 0 : static_cast<Index>(grid.zero);
    }

    void write(Index row, const float *x, const Grid &grid) const {
        std::byte *to = rows + row * stride;
        sums[row] = kind->form == Form::words
                        ? quantize<std::int16_t>(x, depth, grid, grid.zero, to)
                        : quantize<std::uint8_t>(x, depth, grid, 0, to);
    }
};

using Floats = float __attribute__((vector_size(kPanel * 4)));
using Signed = std::int32_t __attribute__((vector_size(kPanel * 4)));
using Unsigned = std::uint32_t __attribute__((vector_size(kPanel * 4)));

template <class To>
[[gnu::always_inline]] inline To load(const void *from) {
    To value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// What belongs to the 16 columns of a panel. Columns that do not count have zeros.
struct Columns {
    alignas(kLine) std::uint32_t sums[kPanel];  // of the elements, each minus its zero point
    alignas(kLine) std::uint32_t zeros[kPanel];
    alignas(kLine) float scales[kPanel];
};

// The weights of one direction, by which x or the state is multiplied. The panels of a gate, then
// those of the next.
struct Weights {
    const std::int8_t *panels;
    Columns *columns;  // of each panel
    Index units, depth;

    Index blocks() const { return up(units, kPanel) / kPanel; }
    Index panel_bytes() const { return up(depth, kGroup) * kPanel; }

    // Computes the products of rows and of 16 units of two gates.
    void multiply(const Kind &kind, const std::byte *left, Index stride, Index rows, Index block,
                  Index gate, std::int32_t *to) const {
        const Index next = blocks() * panel_bytes();  // bytes to the same units of the next gate
        kind.multiply({left, stride, panels + block * panel_bytes() + gate * next, next,
                       up(depth, kGroup) / kGroup, rows, 2, false, to});
    }

    // Sets the columns of 16 units of all gates. `ones`: a row that has 1 in place of elements.
    void describe(const Kind &kind, const std::byte *ones, Index block, const float *scales,
                  const std::int8_t *zeros) const {
        alignas(kLine) std::int32_t all[kRows * kColumns];
        for (Index gate = 0; gate < kGates; ++gate) {
            if (gate % 2 == 0) multiply(kind, ones, 0, 1, block, gate, all);
            Columns &own = columns[gate * blocks() + block];
            const Index first = block * kPanel, at = gate * units + first;
            for (Index i = 0; i < std::min(kPanel, units - first); ++i) {
                own.scales[i] = scales[at + i];
                own.zeros[i] = static_cast<std::uint32_t>(zeros[at + i]);
                own.sums[i] = static_cast<std::uint32_t>(all[gate % 2 * kPanel + i]) -
                              static_cast<std::uint32_t>(depth) * own.zeros[i];
            }
        }
    }

    // Writes the products of some rows and of 16 units of all gates, scaled, or adds them.
    template <bool kAdds>
    void scaled(const Codes &codes, const Grid &grid, Index first, Index rows, Index block,
                float *gates) const {
        alignas(kLine) std::int32_t all[kRows * kColumns];
        const Index begin = block * kPanel, count = std::min(kPanel, units - begin);
        const auto zero = static_cast<std::uint32_t>(codes.zero(grid));
        for (Index gate = 0; gate < kGates; ++gate) {
            if (gate % 2 == 0)
                multiply(*codes.kind, codes.rows + first * codes.stride, codes.stride, rows, block,
                         gate, all);
            const Columns &own = columns[gate * blocks() + block];
            const Unsigned shift = load<Unsigned>(own.sums) * zero, zeros = load<Unsigned>(own.zeros);
            const Floats scale = load<Floats>(own.scales) * grid.scale;
            float *to = gates + first * kGates * units + gate * units + begin;
            for (Index row = 0; row < rows; ++row, to += kGates * units) {
                const auto sum = static_cast<std::uint32_t>(codes.sums[first + row]);
                const std::int32_t *from = all + row * kColumns + gate % 2 * kPanel;
                const Unsigned exact = load<Unsigned>(from) - shift - zeros * sum;
                const Floats part =
                    __builtin_convertvector(reinterpret_cast<const Signed &>(exact), Floats) * scale;
                if (count == kPanel) {
                    const Floats result = kAdds ? load<Floats>(to) + part : part;
                    std::memcpy(to, &result, sizeof result);
                } else {
                    for (Index i = 0; i < count; ++i) to[i] = kAdds ? to[i] + part[i] : part[i];
                }
            }
        }
    }
};

// Lets the calling thread use a kind of instructions.
class Using {
public:
    explicit Using(const Kind &kind) : kind_(kind) {
        if (kind.begin != nullptr) kind.begin();
    }
    Using(const Using &) = delete;
    Using &operator=(const Using &) = delete;
    ~Using() {
        if (kind_.end != nullptr) kind_.end();
    }

private:
    const Kind &kind_;
};

class DynamicLstm final : public eigen::Recurrence {
public:
    DynamicLstm(const Network &network, const std::vector<std::string> &given, Index length_bytes,
                const std::string &instructions)
        : Recurrence("dynamic_lstm " + instructions, network, length_bytes),
          chunk_(std::clamp<Index>(kChunkElements / std::max<Index>(times(network.batch, width_), 1),
                                   1, std::max<Index>(network.times, 1))),
          x_(kind_for(instructions, times(chunk_, network.batch)), network.features),
          h_(kind_for(instructions, network.batch), network.units) {
        eigen::demand(lstm_, "only an LSTM has such a kernel");
        const Index rows = product({directions_, kGates, network.units});
        const Index padded = product({directions_, kGates, up(network.units, kPanel)});
        add_slot("x", VTENSOR_READ, product({network.times, network.batch, network.features}));
        add_slot("w", VTENSOR_READ, times(padded, up(network.features, kGroup)), 1);
        add_slot("r", VTENSOR_READ, times(padded, up(network.units, kGroup)), 1);
        add_slot("w scale", VTENSOR_READ, rows);
        add_slot("r scale", VTENSOR_READ, rows);
        add_slot("w zero", VTENSOR_READ, rows, 1);
        add_slot("r zero", VTENSOR_READ, rows, 1);
        add_states(given, 7);
        for (const Index bytes : parts()) scratch_ = plus(scratch_, up(bytes, kLine));
        add_scratch(scratch_ / static_cast<Index>(sizeof(float)));
    }

private:
    // The scratch memory of a run.
    struct Room {
        Codes x, h;
        std::byte *ones;
        Columns *w_columns, *r_columns;
        float *gates, *state;
    };

    // A direction of the network.
    struct Direction {
        Weights w, r;
        Cell cell;
        float *hidden, *memory;
        Index number;
        bool backwards;
    };

    // The panels of the weights of one direction.
    Index panels() const { return kGates * (up(network_.units, kPanel) / kPanel); }

    // The bytes of the parts of `Room`, in order. Rows are read up to a multiple of kRows.
    std::vector<Index> parts() const {
        const Index rows = up(times(chunk_, network_.batch), kRows), few = up(network_.batch, kRows);
        const Index item = sizeof(float);
        return {times(rows, x_.stride),
                times(rows, item),
                times(few, h_.stride),
                times(few, item),
                up(std::max(network_.features, network_.units), kUnit) * 2,
                times(panels(), sizeof(Columns)),
                times(panels(), sizeof(Columns)),
                times(rows, times(width_, item)),
                times(states_, item)};
    }

    Room room(void *const *slots) const {
        auto *memory = reinterpret_cast<std::byte *>(scratch(slots));
        std::vector<std::byte *> at;
        for (const Index bytes : parts()) {
            at.push_back(memory);
            memory += up(bytes, kLine);
        }
        const auto integers = [&](std::size_t i) { return reinterpret_cast<std::int32_t *>(at[i]); };
        const auto floats = [&](std::size_t i) { return reinterpret_cast<float *>(at[i]); };
        const auto columns = [&](std::size_t i) { return reinterpret_cast<Columns *>(at[i]); };
        std::fill(at[0], at[7], std::byte{0});  // for what rows and columns are rounded up by
        Room room{x_, h_, at[4], columns(5), columns(6), floats(7), floats(8)};
        room.x.rows = at[0];
        room.x.sums = integers(1);
        room.h.rows = at[2];
        room.h.sums = integers(3);
        return room;
    }

    Weights weights(void *const *slots, Index d, std::size_t side, const Codes &codes,
                    const Room &room) const {
        const auto *panels = static_cast<const std::int8_t *>(slots[1 + side]);
        Weights found{.panels = panels,
                      .columns = side == 0 ? room.w_columns : room.r_columns,
                      .units = network_.units,
                      .depth = codes.depth};
        found.panels += d * this->panels() * found.panel_bytes();
        const float *scales = input(slots, 3 + side) + d * width_;
        const auto *zeros = static_cast<const std::int8_t *>(slots[5 + side]) + d * width_;
        const Kind &kind = *codes.kind;
        std::fill_n(room.ones, up(codes.depth, kind.depth) * kind.item(), std::byte{0});
        for (Index i = 0; i < codes.depth; ++i) room.ones[i * kind.item()] = std::byte{1};
        parallel(found.blocks(), width_ * codes.depth, [&](Index begin, Index end) {
            const Using instructions(kind);
            for (Index block = begin; block < end; ++block)
                found.describe(kind, room.ones, block, scales, zeros);
        });
        return found;
    }

    void run(void *const *slots) const override {
        if (states_ == 0) return;
        const Index batch = network_.batch;
        const void *given = find(slots, "lengths");
        std::vector<Index> lengths(static_cast<std::size_t>(batch), network_.times);
        for (Index n = 0; n < batch && given != nullptr; ++n)
            lengths[n] = std::clamp<Index>(length(given, n), 0, network_.times);
        const Index longest = *std::max_element(lengths.begin(), lengths.end());
        const Room room = this->room(slots);
        const Grid grid = Grid::of(input(slots, 0), longest * batch * network_.features);
        if (given != nullptr) std::fill_n(y(slots), network_.times * directions_ * states_, 0.0F);
        for (Index d = 0; d < directions_; ++d) {
            const Direction own{.w = weights(slots, d, 0, room.x, room),
                                .r = weights(slots, d, 1, room.h, room),
                                .cell = cell_of(slots, d),
                                .hidden = begin(slots, d, "hidden"),
                                .memory = begin(slots, d, "cell"),
                                .number = d,
                                .backwards = backwards(d)};
            std::copy_n(own.hidden, states_, room.state);
            for (Index done = 0; done < longest; done += chunk_)
                advance(own, room, grid, slots, lengths, done, std::min(chunk_, longest - done));
        }
    }

    // Advances all sequences by `count` steps; `done` steps were made before.
    void advance(const Direction &own, const Room &room, const Grid &grid, void *const *slots,
                 const std::vector<Index> &lengths, Index done, Index count) const {
        const Index batch = network_.batch, features = network_.features;
        const auto time = [&](Index step, Index n) {  // below 0 after the end of a sequence
            return step >= lengths[n] ? -1 : own.backwards ? lengths[n] - 1 - step : step;
        };
        parallel(count * batch, count * batch * features * 8, [&](Index begin, Index end) {
            for (Index row = begin; row < end; ++row) {
                const Index n = row % batch, at = time(done + row / batch, n);
                if (at >= 0) room.x.write(row, input(slots, 0) + (at * batch + n) * features, grid);
            }
        });
        const Index work = count * batch * width_ * features;
        parallel(own.w.blocks(), work, [&](Index begin, Index end) {
            const Using instructions(*room.x.kind);
            for (Index first = 0; first < count * batch; first += kRows)
                for (Index block = begin; block < end; ++block)
                    own.w.scaled<false>(room.x, grid, first,
                                        std::min(kRows, count * batch - first), block, room.gates);
        });
        for (Index step = 0; step < count; ++step) {
            float *gates = room.gates + step * batch * width_;
            const Grid of_state = Grid::of(room.state, states_);
            for (Index n = 0; n < batch; ++n)
                room.h.write(n, room.state + n * network_.units, of_state);
            parallel(own.r.blocks(), states_ * width_, [&](Index begin, Index end) {
                {
                    const Using instructions(*room.h.kind);
                    for (Index first = 0; first < batch; first += kRows)
                        for (Index block = begin; block < end; ++block)
                            own.r.scaled<true>(room.h, of_state, first,
                                               std::min(kRows, batch - first), block, gates);
                }
                const Index from = begin * kPanel, to = std::min(end * kPanel, network_.units);
                for (Index n = 0; n < batch; ++n)
                    remember(own, room, slots, gates, n, time(done + step, n), from, to);
            });
        }
    }

    // Computes some units of a sequence after one step at `time`, which is below 0 after its end.
    void remember(const Direction &own, const Room &room, void *const *slots, float *gates, Index n,
                  Index time, Index begin, Index end) const {
        const Index units = network_.units;
        float *state = room.state + n * units, *hidden = own.hidden + n * units;
        if (time < 0) {
            std::fill(state + begin, state + end, 0.0F);
            return;
        }
        own.cell.remember(gates + n * width_, begin, end, own.memory + n * units, hidden);
        float *result = y(slots) + ((time * directions_ + own.number) * network_.batch + n) * units;
        std::copy(hidden + begin, hidden + end, state + begin);
        std::copy(hidden + begin, hidden + end, result + begin);
    }

    Index chunk_;  // steps for which x is multiplied at once
    Codes x_, h_;
    Index scratch_ = 0;  // bytes
};

}  // namespace

eigen::Step *dynamic_lstm(const Network &network, const std::vector<std::string> &given,
                          Index length_bytes, const std::string &instructions) {
    return new DynamicLstm(network, given, length_bytes, instructions);
}

}  // namespace vtensor::narrow
