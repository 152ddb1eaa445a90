// native/onednn/rectify.h: what makes the bounds or the gelu behind a primitive exact.
#pragma once

#include <cstdint>
#include <string>

#include "primitive.h"

namespace vtensor::onednn {

// What is to be done behind each run of a primitive whose attribute ends in bounds or in gelu. Its
// kernel computes them as oneDNN can: bounds make NaN of -inf, gelu NaN of inf and inf of the
// largest finite numbers (see Attr::build). That raises the flag "invalid" or "overflow" of the
// thread that does it, as almost everything does that makes a NaN. Where no thread of the team has
// it, nothing more is done, and a run that looks at the flags itself is told which (see
// vtensor_run.doubt); else dst is searched, and if it holds what may be wrong, the primitive
// runs again without its ending, which is then applied to its result.
// Nothing where dst is of integers. Throws std::invalid_argument for gelu of integers.
Afterwards exact_ending(const Spec &spec, const std::string &kernel, int threads,
                        const std::vector<Argument> &arguments, const std::vector<Desc> &descs);

struct BoundsInfo {
    // How often dst was searched because of a flag, and how often a primitive ran again.
    std::uint64_t searches, repeats;
};

// Of this process so far.
BoundsInfo bounds_info();

}  // namespace vtensor::onednn
