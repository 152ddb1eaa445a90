// native/onednn/check.cpp: checks of arguments before oneDNN gets them.
#include "check.h"

#include <cmath>
#include <limits>

namespace vtensor::onednn {

namespace {

constexpr dnnl_dim_t kMostElementsPerDim = std::numeric_limits<std::int32_t>::max();

}  // namespace

std::string shown(const Ints &dims) {
    std::string text;
    for (const dnnl_dim_t dim : dims) text += (text.empty() ? "" : "x") + std::to_string(dim);
    return text;
}

dnnl_dim_t checked_product(dnnl_dim_t a, dnnl_dim_t b, const char *what) {
    dnnl_dim_t result = 0;
    if (__builtin_mul_overflow(a, b, &result)) refuse(what, " does not fit 64 bits");
    return result;
}

dnnl_dim_t checked_sum(dnnl_dim_t a, dnnl_dim_t b, const char *what) {
    dnnl_dim_t result = 0;
    if (__builtin_add_overflow(a, b, &result)) refuse(what, " does not fit 64 bits");
    return result;
}

void check_operand(const std::string &what, const char *role, const Desc &desc, bool opaque) {
    for (const dnnl_dim_t dim : desc.dims()) {
        if (dim > kMostElementsPerDim)
            refuse(what, ": a dim of ", role, " (", shown(desc.dims()), ") exceeds ",
                   kMostElementsPerDim, ", the most that kernels can count");
    }
    if (desc.kind() == Desc::Kind::opaque && !opaque)
        refuse(what, ": ", role, " cannot have an opaque form");
}

void check_written(const std::string &what, const char *role, const Desc &desc, bool opaque) {
    check_operand(what, role, desc, opaque);
    for (std::size_t d = 0; d < desc.strides().size(); ++d) {
        if (desc.strides()[d] == 0 && desc.dims()[d] > 1)
            refuse(what, ": ", role, " is written, and dim ", d, " has stride 0 but ",
                   desc.dims()[d], " elements");
    }
}

void check_rank(const std::string &what, const char *role, const Desc &desc, int least, int most) {
    if (desc.rank() < least || desc.rank() > most)
        refuse(what, ": ", role, " has rank ", desc.rank(), " (", shown(desc.dims()),
               "), it must be ", least, " to ", most);
}

void check_same_dims(const std::string &what, const char *left, const Desc &a, const char *right,
                     const Desc &b) {
    if (a.dims() != b.dims())
        refuse(what, ": ", left, " is ", shown(a.dims()), ", ", right, " is ", shown(b.dims()),
               "; they must be equal");
}

void check_stretches(const std::string &what, const char *role, const Ints &operand,
                     const Ints &target) {
    bool fits = operand.size() == target.size();
    for (std::size_t d = 0; fits && d < operand.size(); ++d)
        fits = operand[d] == target[d] || operand[d] == 1;
    if (!fits)
        refuse(what, ": ", role, " is ", shown(operand), ", which does not stretch to ",
               shown(target));
}

void check_axis(const std::string &what, int axis, int rank) {
    if (axis < 0 || axis >= rank)
        refuse(what, ": axis ", axis, " is outside 0 to ", rank - 1);
}

float checked_float(const std::string &what, const char *name, double value, bool finite) {
    const bool fits = std::isinf(value)
                          ? !finite
                          : std::abs(value) <= std::numeric_limits<float>::max();  // false for NaN
    if (!fits)
        refuse(what, ": ", name, " must be a ", finite ? "finite " : "", "float, not ", value);
    return static_cast<float>(value);
}

void check_not_from_nothing(const std::string &what, const std::vector<const Desc *> &inputs,
                            const Desc &dst) {
    if (dst.empty()) return;
    for (const Desc *input : inputs) {
        if (input->empty())
            throw Unimplemented(what + ": the result has elements (" + shown(dst.dims()) +
                                "), an input has none (" + shown(input->dims()) + ")");
    }
}

}  // namespace vtensor::onednn
