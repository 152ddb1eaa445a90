// native/winograd/image.h: positions of pixels in memory.
#pragma once

#include <algorithm>
#include <vector>

#include "eigen/check.h"
#include "vector.h"

namespace vtensor::winograd {

inline Index up(Index size, Index unit) { return eigen::plus(size, unit - 1) / unit * unit; }

// The offset of a vector of channels in a pixel, the number of its valid lanes, and of its stored
// lanes. Precomputed, since dividing by a block's size is slow next to few channels.
struct Lanes {
    Index at, there, stored;
};

// Strides in floats. `block` as in Convolution: 0 is channels last, 1 is channels first.
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
    // Return the numbers of valid and of stored lanes of the vector that begins at a channel.
    Index there(Index channel) const { return std::clamp<Index>(channels - channel, 0, kLanes); }
    Index stored(Index channel) const {
        return block == 0 ? there(channel) : std::min<Index>(kLanes, lanes() - channel);
    }
    // Returns the lanes of all channels with the padding of blocks, in whole vectors.
    Index lanes() const { return up(channels, std::max<Index>(block, kLanes)); }
    // Returns the vectors of this many channels.
    std::vector<Lanes> vectors(Index count) const {
        std::vector<Lanes> found;
        for (Index channel = 0; channel < count; channel += kLanes)
            found.push_back({of(channel), there(channel), stored(channel)});
        return found;
    }

    Index channels, height, width, block, column, row, part, image, elements;
};

}  // namespace vtensor::winograd
