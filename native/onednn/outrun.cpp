// native/onednn/outrun.cpp: kernels that oneDNN names before faster ones.
#include "outrun.h"

#include <algorithm>
#include <array>

namespace vtensor::onednn {

namespace {

struct Pair {
    const char *named_first, *faster;
};

// Without AVX-512, products of blocks take a sixth longer than the kernels that were written for
// filters of one element, and a third longer than those for a channel each, pixels next to each
// other or channels (Zen 3; networks' sizes). Only larger filters gain by them.
constexpr std::array<Pair, 2> kPairs{
    {{"brgconv_1x1:avx2", "jit_1x1:avx2"}, {"brdgmm_dw:avx2", "jit_dw:avx2"}}};

}  // namespace

bool may_be_outrun(const std::string &kernel) {
    return std::ranges::any_of(kPairs, [&](const Pair &p) { return kernel == p.named_first; });
}

bool outruns(const std::string &later, const std::string &kernel) {
    return std::ranges::any_of(
        kPairs, [&](const Pair &p) { return kernel == p.named_first && later == p.faster; });
}

}  // namespace vtensor::onednn
