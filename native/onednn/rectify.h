// native/onednn/rectify.h: what makes a primitive's bounds exact.
#pragma once

#include <cstdint>
#include <string>

#include "primitive.h"

namespace vtensor::onednn {

// What is to be done behind each run of a primitive whose attribute ends in bounds. Its kernel
// computes them as oneDNN can, which makes NaN of -inf (see Attr::build). That raises the flag
// "invalid" of the thread that does it, as almost everything does that makes a NaN. Where no thread
// of the team has it, nothing more is done; else dst is searched, and if it holds a NaN, the
// primitive runs again without its bounds, which are then applied to its result.
// Nothing where dst is of integers.
Afterwards exact_bounds(const Spec &spec, const std::string &kernel, int threads,
                        const std::vector<Argument> &arguments, const std::vector<Desc> &descs);

struct BoundsInfo {
    // How often dst was searched because of a flag, and how often a primitive ran again.
    std::uint64_t searches, repeats;
};

// Of this process so far.
BoundsInfo bounds_info();

}  // namespace vtensor::onednn
