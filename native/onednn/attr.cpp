// native/onednn/attr.cpp: fused followers of a primitive and its arithmetic mode, as a value.
#include "attr.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <sstream>

#include "check.h"
#include "names.h"

namespace vtensor::onednn {

namespace {

constexpr std::size_t kMostPostOps = 32, kBoundsPostOps = 3;
constexpr std::array kComparisons{"ge", "gt", "le", "lt", "eq", "ne"};

template <typename... Cases>
struct Overloaded : Cases... {
    using Cases::operator()...;
};

// Appends bounds that keep NaN, and are as fast as oneDNN's own relu and clip, which make a bound
// of NaN. x * min(max(x * steep, 0), 1) is x from 2^-126 up, -0 below 0, and NaN for NaN; between 0
// and 2^-126 it is off by less than 2^-126. For -inf it gives NaN: making -inf finite first takes a
// bound, which loses NaN, or an exponential, which costs time. The upper bound makes -inf of NaN,
// which the product makes NaN again.
void append_bounds(dnnl_post_ops_t chain, float high, const std::string &what) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (high < kInfinity)
        check(dnnl_post_ops_append_eltwise(chain, dnnl_eltwise_clip, -kInfinity, high), what);
    check(dnnl_post_ops_append_eltwise(chain, dnnl_eltwise_hardswish, kSteep, 0), what);
}

// Appends the bounds as operands of one element. The constants of a function are in a table next to
// its code; every kernel's code then differs, and oneDNN keeps each one of a convolution until the
// process ends. max(x, -inf), then min(x, high) are the upper bound; a slope of 0 below 0 makes -0
// of negative numbers and NaN of -inf.
std::vector<Constant> append_prelu_bounds(dnnl_post_ops_t chain, int rank, float high,
                                          const std::string &what) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const Desc::Dims ones(static_cast<std::size_t>(rank), 1);
    const Desc one = Desc::strided(ones, "f32", ones);
    std::vector<Constant> constants;
    const auto next = [chain] { return DNNL_ARG_ATTR_MULTIPLE_POST_OP(dnnl_post_ops_len(chain)); };
    const auto append = [&](dnnl_alg_kind_t alg, float value) {
        constants.push_back({next() | DNNL_ARG_SRC_1, value});
        check(dnnl_post_ops_append_binary(chain, alg, one.get()), what);
    };
    if (high < kInfinity) {
        append(dnnl_binary_max, -kInfinity);
        append(dnnl_binary_min, high);
    }
    constants.push_back({next() | DNNL_ARG_WEIGHTS, 0});
    check(dnnl_post_ops_append_prelu(chain, 0), what);
    return constants;
}

bool is_bounds(const PostOp &op) { return std::holds_alternative<BoundsPostOp>(op); }

std::string bits(float value) { return std::to_string(std::bit_cast<std::uint32_t>(value)); }

}  // namespace

Attr::Attr(const std::string &fpmath) : fpmath_(fpmath) { fpmath_mode(fpmath); }

Attr Attr::with(PostOp op) const {
    if (ending() != nullptr)
        refuse("Attr: nothing can follow ", is_bounds(*ending()) ? "bounds" : "gelu");
    if (post_ops_.size() + (is_bounds(op) ? kBoundsPostOps : 1) > kMostPostOps)
        refuse("Attr: more than ", kMostPostOps, " followers");
    Attr longer = *this;
    longer.post_ops_.push_back(std::move(op));
    return longer;
}

Attr Attr::sum(double scale) const {
    return with(SumPostOp{checked_float("Attr.sum", "scale", scale)});
}

Attr Attr::eltwise(const std::string &alg, double alpha, double beta) const {
    algorithm(eltwise_algorithms(), alg, "Attr.eltwise");
    return with(EltwisePostOp{alg, checked_float("Attr.eltwise", "alpha", alpha, false),
                              checked_float("Attr.eltwise", "beta", beta, false)});
}

Attr Attr::binary(const std::string &alg, const Desc &src1) const {
    algorithm(binary_algorithms(), alg, "Attr.binary");
    if (std::ranges::find(kComparisons, alg) != kComparisons.end())
        refuse("Attr.binary: ", alg, " cannot follow: kernels read past the end of its operand");
    check_operand("Attr.binary", "src1", src1);
    return with(BinaryPostOp{alg, src1});
}

// The exact ending may run the primitive again, which must not read dst.
Attr Attr::bounds(double high) const {
    const float bound = checked_float("Attr.bounds", "high", high, false);
    if (bound < 0) refuse("Attr.bounds: high must be at least 0, not ", high);
    if (reads_dst()) refuse("Attr.bounds: cannot follow a sum");
    return with(BoundsPostOp{bound});
}

Attr Attr::gelu() const {
    if (reads_dst()) refuse("Attr.gelu: cannot follow a sum");
    return with(GeluPostOp{});
}

const PostOp *Attr::ending() const {
    if (post_ops_.empty()) return nullptr;
    const PostOp &last = post_ops_.back();
    return is_bounds(last) || std::holds_alternative<GeluPostOp>(last) ? &last : nullptr;
}

Attr Attr::without_ending() const {
    return prefix(post_ops_.size() - (ending() != nullptr ? 1 : 0));
}

Attr Attr::prefix(std::size_t count) const {
    Attr shorter = *this;
    shorter.post_ops_.erase(shorter.post_ops_.begin() + static_cast<std::ptrdiff_t>(count),
                            shorter.post_ops_.end());
    return shorter;
}

bool Attr::reads_dst() const {
    return std::ranges::any_of(
        post_ops_, [](const PostOp &op) { return std::holds_alternative<SumPostOp>(op); });
}

std::string Attr::key() const {
    std::string key = fpmath_;
    const Overloaded part{
        [](const SumPostOp &op) { return "sum " + bits(op.scale); },
        [](const EltwisePostOp &op) { return op.alg + ' ' + bits(op.alpha) + ' ' + bits(op.beta); },
        [](const BinaryPostOp &op) { return "binary " + op.alg + ' ' + op.src1.key(); },
        [](const BoundsPostOp &op) { return "bounds " + bits(op.high); },
        [](const GeluPostOp &) { return std::string("gelu"); },
    };
    for (const PostOp &op : post_ops_) {
        const std::string text = std::visit(part, op);
        key += '|' + std::to_string(text.size()) + ':' + text;
    }
    return key;
}

std::string Attr::text() const {
    std::ostringstream out;
    out << "Attr(" << fpmath_;
    const Overloaded part{
        [&](const SumPostOp &op) { out << ", sum " << op.scale; },
        [&](const EltwisePostOp &op) {
            out << ", " << op.alg << ' ' << op.alpha << ' ' << op.beta;
        },
        [&](const BinaryPostOp &op) { out << ", " << op.alg << ' ' << op.src1.text(); },
        [&](const BoundsPostOp &op) { out << ", bounds " << op.high; },
        [&](const GeluPostOp &) { out << ", gelu"; },
    };
    for (const PostOp &op : post_ops_) std::visit(part, op);
    out << ')';
    return out.str();
}

BuiltAttr Attr::build(int rank, bool bounds_by_operands) const {
    const std::string what = "setting attributes";
    std::vector<Constant> constants;
    dnnl_post_ops_t raw_chain = nullptr;
    check(dnnl_post_ops_create(&raw_chain), what);
    const PostOpsHandle chain(raw_chain);
    const Overloaded append{
        [&](const SumPostOp &op) {
            check(dnnl_post_ops_append_sum(chain.get(), op.scale, 0, dnnl_data_type_undef), what);
        },
        [&](const EltwisePostOp &op) {
            const auto alg = algorithm(eltwise_algorithms(), op.alg, what);
            check(dnnl_post_ops_append_eltwise(chain.get(), alg, op.alpha, op.beta), what);
        },
        [&](const BinaryPostOp &op) {
            const auto alg = algorithm(binary_algorithms(), op.alg, what);
            check(dnnl_post_ops_append_binary(chain.get(), alg, op.src1.get()), what);
        },
        [&](const BoundsPostOp &op) {
            if (bounds_by_operands)
                constants = append_prelu_bounds(chain.get(), rank, op.high, what);
            else
                append_bounds(chain.get(), op.high, what);
        },
        [&](const GeluPostOp &) {
            check(dnnl_post_ops_append_eltwise(chain.get(), dnnl_eltwise_gelu_erf, 0, 0), what);
        },
    };
    for (const PostOp &op : post_ops_) std::visit(append, op);

    dnnl_primitive_attr_t raw = nullptr;
    check(dnnl_primitive_attr_create(&raw), what);
    AttrHandle attr(raw);
    check(dnnl_primitive_attr_set_scratchpad_mode(raw, dnnl_scratchpad_mode_user), what);
    check(dnnl_primitive_attr_set_fpmath_mode(raw, fpmath_mode(fpmath_)), what);
    check(dnnl_primitive_attr_set_post_ops(raw, chain.get()), what);
    return {std::move(attr), std::move(constants)};
}

}  // namespace vtensor::onednn
