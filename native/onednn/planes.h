// native/onednn/planes.h: products and reorders of f32 values as sums of two bf16, "planes".
//
// The first plane, hi, is the bf16 nearest to the value; the second, lo, is the bf16 nearest to what
// hi leaves (ptensor/planes.py is the definition). A product of such values is computed as
// lo * hi + hi * lo + hi * hi in f32; lo * lo is below the rounding of the rest. If weights have
// one plane, two products remain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "operators.h"
#include "vtensor/step.h"

namespace vtensor::onednn {

// Writes both planes of `count` elements of f32, on `threads` threads. Without `lo`, writes the
// elements rounded to bf16, as ml_dtypes does: to the nearest, ties to even; subnormal numbers stay,
// and a NaN becomes the quiet NaN of its sign.
void split(const std::uint32_t *values, std::uint16_t *hi, std::uint16_t *lo, std::int64_t count,
           int threads);

// A step that splits its first operand, src, which is f32, and runs primitives before or after.
class InPlanes : public std::enable_shared_from_this<InPlanes> {
public:
    // Returns the product dst = followers(src * weights). src has the layout of the primitives'
    // src, and weights consist of two planes, or of one, each in the layout of their weights.
    // primitives: three if weights have two planes, else two. All compute f32 from bf16. The first
    // has no bias and no post-ops; the second of three adds to the former dst; the first post-op of
    // the last adds an operand in the layout of dst, and its bias and further post-ops are those of
    // the product. Throws std::invalid_argument otherwise.
    static std::shared_ptr<InPlanes> product(std::vector<PrimitivePtr> primitives);
    // Returns the reorder of f32 to 2 planes, or to 1, bf16. whole: the reorder from f32 to f32 in
    // the layout of a plane. Throws std::invalid_argument otherwise.
    static std::shared_ptr<InPlanes> reorder(PrimitivePtr whole, int planes);
    ~InPlanes();
    InPlanes(const InPlanes &) = delete;
    InPlanes &operator=(const InPlanes &) = delete;

    const std::string &kind() const { return kind_; }
    const std::string &kernel() const { return kernel_; }
    int threads() const { return threads_; }
    std::size_t scratch_bytes() const { return scratch_; }
    // The names of the slots; "scratch", if any, is last.
    const std::vector<std::string> &names() const { return names_; }
    // The descriptors of all slots but scratch; of src and weights those of a single plane.
    const std::vector<Desc> &descs() const { return descs_; }

    // Returns the step, compiled at the first call; the caller becomes an owner.
    const vtensor_step *retained_step();

private:
    // The memory of a primitive's argument: a slot, and an offset in it in bytes.
    struct Place {
        std::size_t slot, offset;
    };
    struct Call {
        PrimitivePtr primitive;
        std::vector<Place> places;
        const vtensor_step *step = nullptr;
    };

    explicit InPlanes(const Primitive &like) : kind_(like.kind()), threads_(like.threads()) {}
    void add_slot(const std::string &name, std::size_t bytes, std::uint32_t access);
    // Returns the offset in scratch of further bytes.
    std::size_t add_scratch(std::size_t bytes);
    void finish();
    void compile();
    int run(void *const *slots, const vtensor_run *run) const;

    std::string kind_, kernel_;
    int threads_;
    std::vector<std::string> names_;
    std::vector<Desc> descs_;
    std::vector<vtensor_slot> slots_;
    std::size_t elements_ = 0, scratch_ = 0;
    Place source_{0, 0};         // what is split
    std::vector<Place> halves_;  // where it is split to
    std::size_t before_ = 0;     // the number of calls before the split
    std::vector<Call> calls_;
    std::once_flag compiled_;
};

}  // namespace vtensor::onednn
