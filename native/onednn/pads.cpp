// native/onednn/pads.cpp: the pads of convolutions' results.
#include "pads.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "names.h"

namespace vtensor::onednn {

namespace {

// Sets the lanes of the last block from the dim's end on to zero, at each index of the other dims.
void clear(const Desc &dst, std::byte *memory) {
    const auto [block, along] = dst.blocks().front();
    const auto &dims = dst.dims();
    const auto &strides = dst.strides();
    const auto item = static_cast<dnnl_dim_t>(item_bytes(dst.type()));
    const dnnl_dim_t used = dims[along] % block;
    const dnnl_dim_t start = dst.offset() + dims[along] / block * strides[along] + used;
    const auto bytes = static_cast<std::size_t>((block - used) * item);
    Desc::Dims at(dims.size(), 0);
    for (;;) {
        dnnl_dim_t place = start;
        for (std::size_t i = 0; i < dims.size(); ++i) place += at[i] * strides[i];
        std::memset(memory + place * item, 0, bytes);
        std::size_t i = dims.size();
        while (i-- > 0) {
            if (static_cast<dnnl_dim_t>(i) == along) continue;
            if (++at[i] < dims[i]) break;
            at[i] = 0;
        }
        if (i == static_cast<std::size_t>(-1)) return;
    }
}

}  // namespace

Afterwards clear_pads(const Primitive &primitive) {
    if (primitive.kind() != "convolution" && primitive.kind() != "deconvolution") return {};
    if (!primitive.kernel().starts_with("jit")) return {};
    const auto &arguments = primitive.arguments();
    const auto found = std::ranges::find(arguments, "dst", &Argument::name);
    const auto slot = static_cast<std::size_t>(found - arguments.begin());
    const Desc &dst = primitive.descs()[slot];
    if (dst.blocks().size() != 1 || dst.dims()[dst.blocks().front().second] %
                                            dst.blocks().front().first == 0)
        return {};
    return [slot](const std::vector<Desc> &descs, void *const *slots, std::uint32_t *) {
        clear(descs[slot], static_cast<std::byte *>(slots[slot]));
    };
}

}  // namespace vtensor::onednn
