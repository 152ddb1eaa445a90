// native/eigen/copy.cpp: the step that copies and fills boxes of elements.
#include "boxes.h"
#include "check.h"
#include "kernels.h"

namespace vtensor::eigen {

namespace {

class Copy final : public Step {
public:
    Copy(const Ints &sizes, const std::vector<Box> &boxes, Index item_bytes)
        : Step("copy"), item_bytes_(static_cast<std::uint32_t>(item_bytes)) {
        demand(!sizes.empty(), "no dst");
        demand(item_bytes == 1 || item_bytes == 2 || item_bytes == 4 || item_bytes == 8,
               "elements of 1, 2, 4 or 8 bytes only");
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const bool last = i + 1 == sizes.size();
            add_slot(last ? "dst" : "src", last ? VTENSOR_WRITE : VTENSOR_READ, sizes[i],
                     item_bytes_);
        }
        const auto dst = static_cast<Index>(sizes.size()) - 1;
        for (const Box &box : boxes) {
            demand(box.source >= -1 && box.source < dst, "a box of no source");
            const Index size = box.source < 0 ? 0 : sizes[static_cast<std::size_t>(box.source)];
            if (product(box.shape) > 0) boxes_.push_back(arranged(box, size, sizes.back()));
        }
    }

private:
    void run(void *const *slots) const override {
        void *dst = slots[step()->slot_count - 1];
        for (const Box &box : boxes_)
            move(box, item_bytes_, box.source < 0 ? nullptr : slots[box.source], dst);
    }

    std::uint32_t item_bytes_;
    std::vector<Box> boxes_;
};

}  // namespace

Step *copy(const Ints &sizes, const std::vector<Box> &boxes, Index item_bytes) {
    return new Copy(sizes, boxes, item_bytes);
}

}  // namespace vtensor::eigen
