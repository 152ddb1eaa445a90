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

using PostOp = std::variant<SumPostOp, EltwisePostOp, BinaryPostOp>;

class Attr {
public:
    // Throws std::invalid_argument for an unknown mode, an unknown algorithm, a number that is no
    // float, or a chain longer than oneDNN's 32.
    explicit Attr(const std::string &fpmath = "strict");
    Attr sum(double scale) const;
    Attr eltwise(const std::string &alg, double alpha, double beta) const;
    Attr binary(const std::string &alg, const Desc &src1) const;

    const std::string &fpmath() const { return fpmath_; }
    const std::vector<PostOp> &post_ops() const { return post_ops_; }
    bool reads_dst() const;
    // Equal keys if and only if equal attributes.
    std::string key() const;
    bool operator==(const Attr &other) const { return key() == other.key(); }
    std::string text() const;

    // oneDNN's own object; scratch is always the caller's.
    AttrHandle build() const;

private:
    Attr with(PostOp op) const;

    std::string fpmath_;
    std::vector<PostOp> post_ops_;
};

}  // namespace vtensor::onednn
