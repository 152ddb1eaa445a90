// native/winograd/image.h: where the pixels of an image lie.
#pragma once

#include <algorithm>
#include <vector>

#include "eigen/check.h"
#include "vector.h"

namespace vtensor::winograd {

inline Index up(Index size, Index unit) { return eigen::plus(size, unit - 1) / unit * unit; }

// Where a vector of channels lies in a pixel, and how many of its lanes are there, and are stored.
// Known ahead: to divide by a block's size takes long beside few channels.
struct Lanes {
    Index at, there, stored;
};

// In floats. A block of 0: channels last; of 1: one channel after another.
struct Image {
    Image(Index images, Index channels_, const eigen::Ints &size, Index block_)
        : channels(channels_), height(size[0]), width(size[1]), block(block_) {
        const Index lanes = block == 0 ? channels : block;
        const Index blocks = block == 0 ? 1 : up(channels, block) / block;
        column = lanes;
        row = eigen::times(width, column);
        part = eigen::times(height, row);
        image = eigen::times(blocks, part);
        elements = eigen::times(images, image);
    }

    Index at(Index number, Index channel) const { return number * image + of(channel); }
    Index of(Index channel) const {
        return block == 0 ? channel : channel / block * part + channel % block;
    }
    // How many of a vector's channels are there, and how many lanes are stored for them.
    Index there(Index channel) const { return std::clamp<Index>(channels - channel, 0, kLanes); }
    Index stored(Index channel) const {
        return block == 0 ? there(channel) : std::min<Index>(kLanes, lanes() - channel);
    }
    // The lanes of all channels, those included that pad a block; in whole vectors.
    Index lanes() const { return up(channels, std::max<Index>(block, kLanes)); }
    // The vectors of so many channels.
    std::vector<Lanes> vectors(Index count) const {
        std::vector<Lanes> found;
        for (Index channel = 0; channel < count; channel += kLanes)
            found.push_back({of(channel), there(channel), stored(channel)});
        return found;
    }

    Index channels, height, width, block, column, row, part, image, elements;
};

}  // namespace vtensor::winograd
