// native/eigen/copy.cpp: boxes of elements to where they belong, as a step.
#include "boxes.h"
#include "check.h"
#include "kernels.h"

namespace vtensor::eigen {

namespace {

class Copy final : public Step {
public:
    Copy(const Ints &sizes, const std::vector<Box> &boxes) : Step("copy") {
        demand(!sizes.empty(), "no dst");
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            demand(sizes[i] >= 0, "a size is negative");
            const bool last = i + 1 == sizes.size();
            add_slot(last ? "dst" : "src", last ? VTENSOR_WRITE : VTENSOR_READ, sizes[i]);
        }
        const auto dst = static_cast<Index>(sizes.size()) - 1;
        for (const Box &box : boxes) {
            demand(box.source >= -1 && box.source < dst, "a box of no source");
            const Index size = box.source < 0 ? 0 : sizes[static_cast<std::size_t>(box.source)];
            const Box made = arranged(box, size, sizes.back());
            if (product(box.shape) > 0) boxes_.push_back(made);
        }
    }

private:
    void run(void *const *slots) const override {
        float *dst = output(slots, step()->slot_count - 1);
        for (const Box &box : boxes_) {
            const bool fills = box.source < 0;
            move(box, fills ? nullptr : input(slots, static_cast<std::size_t>(box.source)), dst);
        }
    }

    std::vector<Box> boxes_;
};

}  // namespace

Step *copy(const Ints &sizes, const std::vector<Box> &boxes) { return new Copy(sizes, boxes); }

}  // namespace vtensor::eigen
