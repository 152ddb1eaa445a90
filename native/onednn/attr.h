// native/onednn/attr.h: what follows a primitive and how exactly it computes, as a value.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "desc.h"
#include "handles.h"

namespace vtensor::onednn {

// dst = result + scale * (what dst held)
struct SumPostOp {
    float scale;
};

// dst = alg(result, alpha, beta)
struct EltwisePostOp {
    std::string alg;
    float alpha, beta;
};

// dst = alg(result, src1), src1 stretched to dst
struct BinaryPostOp {
    std::string alg;
    Desc src1;
};

// The factor with which hardswish is a lower bound of 0 (see append_bounds).
constexpr float kSteep = 0x1p127F;

// dst = min(max(result, 0), high), NaN of NaN; nothing follows it
struct BoundsPostOp {
    float high;
};

// dst = result * (1 + erf(result / sqrt(2))) / 2; nothing follows it
struct GeluPostOp {};

// An argument of one element that a kernel's post-ops read: oneDNN's number for it, and its value.
struct Constant {
    int index;
    float value;
};

// oneDNN's attribute and the constants that its post-ops read.
struct BuiltAttr {
    AttrHandle handle;
    std::vector<Constant> constants;
};

using PostOp = std::variant<SumPostOp, EltwisePostOp, BinaryPostOp, BoundsPostOp, GeluPostOp>;

class Attr {
public:
    // Throws std::invalid_argument for an unknown mode, an unknown algorithm, a number that is no
    // float, a chain longer than oneDNN's 32, anything behind bounds or gelu, or these behind a sum.
    explicit Attr(const std::string &fpmath = "strict");
    Attr sum(double scale) const;
    Attr eltwise(const std::string &alg, double alpha, double beta) const;
    Attr binary(const std::string &alg, const Desc &src1) const;
    Attr bounds(double high) const;
    Attr gelu() const;

    const std::string &fpmath() const { return fpmath_; }
    const std::vector<PostOp> &post_ops() const { return post_ops_; }
    bool reads_dst() const;
    // The bounds or the gelu that the chain ends in; null where it does not.
    const PostOp *ending() const;
    Attr without_ending() const;
    // The chain's first `count` post-ops.
    Attr prefix(std::size_t count) const;
    // Equal keys if and only if equal attributes.
    std::string key() const;
    bool operator==(const Attr &other) const { return key() == other.key(); }
    std::string text() const;

    // Build oneDNN's own object; scratch is always the caller's. Its bounds make NaN of -inf, its
    // gelu NaN of inf.
    // rank: of dst.
    // bounds_by_operands: bounds become post-ops that read constants (see append_prelu_bounds).
    BuiltAttr build(int rank, bool bounds_by_operands) const;

private:
    Attr with(PostOp op) const;

    std::string fpmath_;
    std::vector<PostOp> post_ops_;
};

}  // namespace vtensor::onednn
