// native/onednn/outrun.cpp: kernels that oneDNN offers before faster ones.
#include "outrun.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>

namespace vtensor::onednn {

namespace {

struct Pair {
    const char *named_first, *faster;
};

// Without AVX-512, batch-reduced products are slower than the kernels written for filters of one
// element and for depthwise filters; only larger filters gain by them.
constexpr std::array<Pair, 2> kPairs{
    {{"brgconv_1x1:avx2", "jit_1x1:avx2"}, {"brdgmm_dw:avx2", "jit_dw:avx2"}}};

// Returns whether both primitives work on the same layouts of src and dst.
bool in_one_layout(const Primitive &a, const Primitive &b) {
    for (std::size_t i = 0; i < a.arguments().size() && i < b.arguments().size(); ++i) {
        const std::string &name = a.arguments()[i].name;
        if ((name == "src" || name == "dst") && a.descs()[i] != b.descs()[i]) return false;
    }
    return true;
}

}  // namespace

bool names_slower_first() {
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    return isa == dnnl_cpu_isa_avx2 || isa == dnnl_cpu_isa_avx2_vnni ||
           isa == dnnl_cpu_isa_avx2_vnni_2;
}

bool may_be_outrun(const std::string &kernel) {
    return std::ranges::any_of(kPairs, [&](const Pair &p) { return kernel == p.named_first; });
}

bool outruns(const Primitive &later, const Primitive &first) {
    const auto are = [&](const Pair &p) {
        return first.kernel() == p.named_first && later.kernel() == p.faster;
    };
    return std::ranges::any_of(kPairs, are) && in_one_layout(first, later);
}

}  // namespace vtensor::onednn
