// native/onednn/places.cpp: positions of elements in memory.
#include "places.h"

namespace vtensor::onednn {

dnnl_dim_t place(const Desc &desc, int dim, dnnl_dim_t index) {
    dnnl_dim_t place = 0, inside = 1;
    for (std::size_t b = desc.blocks().size(); b-- > 0;) {
        const auto &[size, blocked] = desc.blocks()[b];
        if (blocked == dim) {
            place += index % size * inside;
            index /= size;
        }
        inside *= size;
    }
    return place + index * desc.strides()[static_cast<std::size_t>(dim)];
}

Ints places(const Desc &desc, int dim) {
    Ints found;
    for (dnnl_dim_t i = 0; i < desc.dims()[static_cast<std::size_t>(dim)]; ++i)
        found.push_back(place(desc, dim, i));
    return found;
}

}  // namespace vtensor::onednn
