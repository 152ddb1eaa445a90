// native/onednn/attr.h: fused followers of a primitive and its arithmetic mode, as a value.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "desc.h"
#include "handles.h"

namespace vtensor::onednn {

// dst = result + scale * (former dst)
struct SumPostOp {
    float scale;
};

// dst = alg(result, alpha, beta)
struct EltwisePostOp {
    std::string alg;
    float alpha, beta;
};

// dst = alg(result, src1), with src1 broadcast to dst
struct BinaryPostOp {
    std::string alg;
    Desc src1;
};

// Factor with which hardswish is a lower bound of 0 (see append_bounds).
constexpr float kSteep = 0x1p127F;

// dst = min(max(result, 0), high), and NaN for NaN; must come last
struct BoundsPostOp {
    float high;
};

// dst = result * (1 + erf(result / sqrt(2))) / 2; must come last
struct GeluPostOp {};

// A constant that a kernel's post-ops read: oneDNN's index of the argument, and its value.
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
    // All throw std::invalid_argument for an unknown mode or algorithm, a number that is no float,
    // a chain longer than oneDNN's 32, a post-op after bounds or gelu, or one of these after a sum.
    explicit Attr(const std::string &fpmath = "strict");
    Attr sum(double scale) const;
    Attr eltwise(const std::string &alg, double alpha, double beta) const;
    Attr binary(const std::string &alg, const Desc &src1) const;
    Attr bounds(double high) const;
    Attr gelu() const;

    const std::string &fpmath() const { return fpmath_; }
    const std::vector<PostOp> &post_ops() const { return post_ops_; }
    bool reads_dst() const;
    // Returns the bounds or gelu that end the chain; null if neither does.
    const PostOp *ending() const;
    Attr without_ending() const;
    // Returns an attribute with the first `count` post-ops.
    Attr prefix(std::size_t count) const;
    // Returns a key that identifies the attribute: equal keys mean equal attributes, and vice
    // versa.
    std::string key() const;
    bool operator==(const Attr &other) const { return key() == other.key(); }
    std::string text() const;

    // Builds oneDNN's attribute, with scratch supplied by the caller. Its bounds make NaN of -inf,
    // its gelu NaN of inf. rank: of dst. bounds_by_operands: bounds become post-ops that read
    // constants (see append_prelu_bounds).
    BuiltAttr build(int rank, bool bounds_by_operands) const;

private:
    Attr with(PostOp op) const;

    std::string fpmath_;
    std::vector<PostOp> post_ops_;
};

}  // namespace vtensor::onednn
