// native/winograd/tiles.h: the tiles of an image, their input and their results.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "convolution.h"
#include "ending.h"
#include "image.h"
#include "operands.h"
#include "transform.h"

namespace vtensor::winograd {

template <class Down, class Across>
class Tiles {
public:
    static constexpr int kProducts = Down::kProducts * Across::kProducts;

    static std::string name() {
        return "F(" + std::to_string(Down::kResults) + "," + std::to_string(Down::kTaps) + ")x(" +
               std::to_string(Across::kResults) + "," + std::to_string(Across::kTaps) + ")";
    }

    struct Place {
        Index image, row, column;
    };

    explicit Tiles(const Convolution &call)
        : src(call.images, call.channels, call.src, call.src_block),
          dst(call.images, call.outputs, call.dst, call.dst_block),
          src_lanes(src.vectors(src.channels)),
          dst_lanes(dst.vectors(dst.lanes())),
          across(up(call.dst[1], Across::kResults) / Across::kResults),
          down_(up(call.dst[0], Down::kResults) / Down::kResults),
          begin_{call.begin[0], call.begin[1]},
          ending_{call.low, call.high} {
        count = eigen::times(call.images, eigen::times(down_, across));
    }

    // Returns the place of the first of a tile's results.
    Place place(Index tile) const {
        const Index line = tile / across;
        return {line / down_, line % down_ * Down::kResults, tile % across * Across::kResults};
    }

    // Transforms the chunk-th vector of channels into products `step` floats apart.
    void read(const float *from, const Place &where, Index chunk, float *to, Index step) const {
        const Lanes &own = src_lanes[static_cast<std::size_t>(chunk)];
        const Index row = where.row - begin_[0], column = where.column - begin_[1];
        from += where.image * src.image + own.at;
        const bool inside = row >= 0 && column >= 0 && row + Down::kProducts <= src.height &&
                            column + Across::kProducts <= src.width;
        if (inside && own.stored == kLanes) {
            source_tile<Down, Across>(from + row * src.row + column * src.column, src.row,
                                      src.column, to, step);
        } else {
            read_edge(from, row, column, own.stored, to, step);
        }
    }

    // Transforms sums `step` floats apart into the chunk-th vector of results.
    void write(const float *sums, Index step, const Place &where, Index chunk,
               const Operands &to) const {
        Vector results[Down::kResults * Across::kResults];
        result_tile<Down, Across>(sums, step, results);
        const Lanes &own = dst_lanes[static_cast<std::size_t>(chunk)];
        const Index target =
            where.image * dst.image + own.at + where.row * dst.row + where.column * dst.column;
        const Index rows = dst.height - where.row, columns = dst.width - where.column;
        Vector bias{};
        if (to.bias != nullptr) bias = some(to.bias + chunk * kLanes, own.there);
        const auto end = [&](Index i, Index j, const Vector &sum, Index there, Index stored)
                             __attribute__((always_inline)) {
            const Index pixel = target + i * dst.row + j * dst.column;
            ending_(sum + bias, to.other == nullptr ? nullptr : to.other + pixel, to.dst + pixel,
                    there, stored);
        };
        if (rows >= Down::kResults && columns >= Across::kResults && own.there == kLanes) {
            each<Down::kResults>([&](auto i) __attribute__((always_inline)) {
                each<Across::kResults>([&](auto j) __attribute__((always_inline)) {
                    end(i, j, results[i * Across::kResults + j], kLanes, kLanes);
                });
            });
            return;
        }
        for (Index i = 0; i < std::min<Index>(Down::kResults, rows); ++i) {
            for (Index j = 0; j < std::min<Index>(Across::kResults, columns); ++j)
                end(i, j, results[i * Across::kResults + j], own.there, own.stored);
        }
    }

    Image src, dst;
    std::vector<Lanes> src_lanes, dst_lanes;
    Index across;  // tiles per row
    Index count;

private:
    // Transforms a tile that lacks pixels or channels, with zeros in their place.
    void read_edge(const float *from, Index row, Index column, Index lanes, float *to,
                   Index step) const {
        alignas(64) float pixels[kProducts * kLanes] = {};
        for (Index i = std::max<Index>(-row, 0);
             i < std::min<Index>(Down::kProducts, src.height - row); ++i) {
            for (Index j = std::max<Index>(-column, 0);
                 j < std::min<Index>(Across::kProducts, src.width - column); ++j) {
                const Index pixel = (row + i) * src.row + (column + j) * src.column;
                std::memcpy(pixels + (i * Across::kProducts + j) * kLanes, from + pixel,
                            static_cast<std::size_t>(lanes) * sizeof(float));
            }
        }
        source_tile<Down, Across>(pixels, Across::kProducts * kLanes, kLanes, to, step);
    }

    Index down_;
    Index begin_[2];
    Ending ending_;
};

}  // namespace vtensor::winograd
