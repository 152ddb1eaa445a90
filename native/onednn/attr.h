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

// dst = min(max(result, 0), high), NaN of NaN; nothing follows it
struct BoundsPostOp {
    float high;
};

// dst = result * (1 + erf(result / sqrt(2))) / 2; nothing follows it
struct GeluPostOp {};

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
    // Equal keys if and only if equal attributes.
    std::string key() const;
    bool operator==(const Attr &other) const { return key() == other.key(); }
    std::string text() const;

    // oneDNN's own object; scratch is always the caller's. Its bounds make NaN of -inf, its
    // gelu NaN of inf.
    AttrHandle build() const;

private:
    Attr with(PostOp op) const;

    std::string fpmath_;
    std::vector<PostOp> post_ops_;
};

}  // namespace vtensor::onednn
