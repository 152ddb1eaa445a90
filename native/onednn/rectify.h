// native/onednn/rectify.h: exact bounds and gelu after a primitive.
#pragma once

#include <cstdint>
#include <string>

#include "primitive.h"

namespace vtensor::onednn {

// Returns the work after each run of a primitive whose attribute ends in bounds or gelu; nothing
// for an integer dst. oneDNN's kernels compute bounds that make NaN of -inf, and a gelu that makes
// NaN of inf and inf of the largest finite numbers (see Attr::build). Such an operation raises the
// flag "invalid" or "overflow" of its thread, like almost every operation that makes a NaN. Without
// a flag in the team nothing more is done; if the run checks flags at its end, the work only adds
// these flags to its doubts (see vtensor_run.doubt). With a flag dst is searched, and if it may
// hold wrong numbers, the primitive runs again without its ending, which is then applied to the
// result. Throws std::invalid_argument for gelu of integers.
Afterwards exact_ending(const Spec &spec, const std::string &kernel, int threads,
                        const std::vector<Argument> &arguments, const std::vector<Desc> &descs);

struct BoundsInfo {
    // Number of searches of dst because of a flag, and of repeated runs.
    std::uint64_t searches, repeats;
};

// Returns the counts of this process so far.
BoundsInfo bounds_info();

}  // namespace vtensor::onednn
