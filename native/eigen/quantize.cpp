// native/eigen/quantize.cpp: dynamic quantization: the scale follows from the values.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>

#include "boxes.h"
#include "check.h"
#include "kernels.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

constexpr float kMost = 255.0F;

class DynamicQuantize final : public Step {
public:
    DynamicQuantize(Index size, const std::vector<Box> &pads)
        : Step("dynamic_quantize"), size_(size) {
        add_slot("src", VTENSOR_READ, size);
        add_slot("dst", VTENSOR_WRITE, size, 1);
        add_slot("scale", VTENSOR_WRITE, 1);
        add_slot("zero", VTENSOR_WRITE, 1, 1);
        for (const Box &box : pads) {
            demand(box.source < 0, "a pad is filled, not copied");
            if (product(box.shape) > 0) pads_.push_back(arranged(box, 0, size));
        }
    }

private:
    using Values = Eigen::Map<const Eigen::ArrayXf>;
    using Steps = Eigen::Map<Eigen::Array<std::uint8_t, Eigen::Dynamic, 1>>;

    void run(void *const *slots) const override {
        const float *src = input(slots, 0);
        auto *dst = static_cast<std::uint8_t *>(slots[1]);
        float low = 0, high = 0;
        std::mutex guard;
        parallel(size_, size_, [&](Index begin, Index end) {
            const Values part(src + begin, end - begin);
            const float least = part.minCoeff<Eigen::PropagateNumbers>();
            const float most = part.maxCoeff<Eigen::PropagateNumbers>();
            const std::scoped_lock lock(guard);
            low = std::min(low, least);
            high = std::max(high, most);
        });
        const float scale = (high > low ? high - low : 1.0F) / kMost;
        // fmin and fmax give a code of 0 to 255 also if `scale` is infinite or NaN.
        const float zero = std::fmin(std::fmax(std::nearbyint(-low / scale), 0.0F), kMost);
        *output(slots, 2) = scale;
        *static_cast<std::uint8_t *>(slots[3]) = static_cast<std::uint8_t>(zero);
        parallel(size_, size_, [&](Index begin, Index end) {
            const Values part(src + begin, end - begin);
            Steps(dst + begin, end - begin) = ((part / scale).rint() + zero)
                                                  .max<Eigen::PropagateNumbers>(0.0F)
                                                  .min(kMost)
                                                  .cast<std::int32_t>()
                                                  .cast<std::uint8_t>();
        });
        for (const Box &box : pads_) move(box, 1, nullptr, dst);
    }

    Index size_;
    std::vector<Box> pads_;
};

}  // namespace

Step *dynamic_quantize(Index size, const std::vector<Box> &pads) {
    return new DynamicQuantize(size, pads);
}

}  // namespace vtensor::eigen
