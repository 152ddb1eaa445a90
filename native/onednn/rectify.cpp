// native/onednn/rectify.cpp: exact bounds and gelu after a primitive.
#include "rectify.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <numbers>
#include <vector>

#include "cache.h"
#include "floats.h"
#include "names.h"
#include "places.h"
#include "vtensor/float_flags.h"
#include "vtensor/forks.h"

namespace vtensor::onednn {

namespace {

std::atomic<std::uint64_t> searches{0}, repeats{0};

// Returns the bits of a number of at least 0 in a type, rounded to even.
template <typename F>
typename F::Type bits_of(float value) {
    using Bits = typename F::Type;
    constexpr int kExponentBits = 8 * sizeof(Bits) - 1 - F::kFraction;
    constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
    if (std::isinf(value)) return F::kInfinity;
    // numbers below the least normal one all have its exponent
    const int exponent = value == 0 ? 1 - kBias : std::max(std::ilogb(value), 1 - kBias);
    const auto fraction = static_cast<std::int64_t>(
        std::nearbyint(std::scalbn(static_cast<double>(value), F::kFraction - exponent)));
    // a leading bit raises the exponent by one
    const std::int64_t below = static_cast<std::int64_t>(exponent + kBias - 1) << F::kFraction;
    return static_cast<Bits>(std::min<std::int64_t>(below + fraction, F::kInfinity));
}

template <typename F>
typename F::Type bounded(typename F::Type bits, typename F::Type high) {
    if (F::is_nan(bits)) return bits;
    return (bits & F::kSign) != 0 ? typename F::Type{0} : std::min(bits, high);
}

// Applies a function to every element; pads and memory between rows stay unchanged.
template <typename T, typename Function>
void apply(const Desc &desc, void *memory, const Function &function) {
    auto *const values = static_cast<T *>(memory) + desc.offset();
    std::vector<Ints> along;
    std::int64_t rows = 1;
    for (int d = 0; d < desc.rank(); ++d) along.push_back(places(desc, d));
    const Ints row = std::move(along.back());
    along.pop_back();
    for (const Ints &dim : along) rows *= static_cast<std::int64_t>(dim.size());
#pragma omp parallel for
    for (std::int64_t r = 0; r < rows; ++r) {
        auto *start = values;
        auto rest = static_cast<std::size_t>(r);
        for (auto dim = along.rbegin(); dim != along.rend(); ++dim) {
            start += (*dim)[rest % dim->size()];
            rest /= dim->size();
        }
        for (const dnnl_dim_t place : row) start[place] = function(start[place]);
    }
}

template <typename F>
void apply_bounds(const Desc &desc, void *memory, float bound) {
    const auto high = bits_of<F>(bound);
    apply<typename F::Type>(desc, memory,
                            [high](typename F::Type bits) { return bounded<F>(bits, high); });
}

template <typename F>
double number_of(typename F::Type bits) {
    constexpr int kExponentBits = 8 * sizeof(bits) - 1 - F::kFraction;
    constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
    if (F::is_nan(bits)) return std::numeric_limits<double>::quiet_NaN();
    const auto size = static_cast<typename F::Type>(bits & ~F::kSign);
    const int exponent = size >> F::kFraction, least = std::max(exponent, 1);
    const std::int64_t leading = exponent > 0 ? std::int64_t{1} << F::kFraction : 0;
    const std::int64_t fraction = size & ((std::int64_t{1} << F::kFraction) - 1);
    const double number = size == F::kInfinity
                              ? std::numeric_limits<double>::infinity()
                              : std::ldexp(static_cast<double>(leading + fraction),
                                           least - kBias - F::kFraction);
    return (bits & F::kSign) != 0 ? -number : number;
}

template <typename F>
void apply_gelu(const Desc &desc, void *memory) {
    using Bits = typename F::Type;
    apply<Bits>(desc, memory, [](Bits bits) -> Bits {
        const double x = number_of<F>(bits);
        const double y = x * ((1 + std::erf(x * std::numbers::sqrt2 / 2)) / 2);
        if (std::isnan(y)) return F::kNaN;
        const Bits size = bits_of<F>(static_cast<float>(std::abs(y)));
        return std::signbit(y) ? static_cast<Bits>(size | F::kSign) : size;
    });
}

// Returns whether there is a NaN or an infinity, which gelu may have made of another number.
template <typename F>
bool holds_no_number(const Desc &desc, const void *memory) {
    const auto count = static_cast<std::int64_t>(desc.bytes() / sizeof(typename F::Type));
    const auto *values = static_cast<const typename F::Type *>(memory);
    int found = 0;
#pragma omp parallel for reduction(| : found) if (count > kBlock)
    for (std::int64_t i = 0; i < count; ++i)
        found |= static_cast<int>((values[i] & F::kInfinity) == F::kInfinity);
    return found != 0;
}

template <typename F>
bool holds_odd(const Desc &desc, const void *memory) {
    const auto count = static_cast<std::int64_t>(desc.bytes() / sizeof(typename F::Type));
    return !odd_blocks<F>(static_cast<const typename F::Type *>(memory), count).empty();
}

struct FloatFunctions {
    bool (*holds_odd)(const Desc &desc, const void *memory);
    bool (*holds_no_number)(const Desc &desc, const void *memory);
    void (*apply_bounds)(const Desc &desc, void *memory, float bound);
    void (*apply_gelu)(const Desc &desc, void *memory);
};

template <typename F>
constexpr FloatFunctions kFunctions{&holds_odd<F>, &holds_no_number<F>, &apply_bounds<F>,
                                    &apply_gelu<F>};

// Returns the functions for a type; null for a type without NaN.
const FloatFunctions *functions_of(dnnl_data_type_t type) {
    if (type == dnnl_f32) return &kFunctions<F32>;
    if (type == dnnl_bf16) return &kFunctions<Bf16>;
    if (type == dnnl_f16) return &kFunctions<F16>;
    return nullptr;
}

// A primitive without its ending, on the same memory; made at its first run, since it is rarely
// needed.
class Shortened {
public:
    // count: the number of arguments, without scratch.
    Shortened(const Spec &spec, std::string kernel, int threads, const std::vector<Desc> &descs,
              std::size_t count)
        : spec_(spec), kernel_(std::move(kernel)), threads_(threads), count_(count) {
        spec_.attr = spec.attr.without_ending();
        descs_.assign(descs.begin(), descs.begin() + static_cast<std::ptrdiff_t>(count));
    }
    ~Shortened() {
        if (step_ != nullptr) step_->release(step_->context);
    }
    Shortened(const Shortened &) = delete;
    Shortened &operator=(const Shortened &) = delete;

    void run(void *const *slots) {
        {
            const Unforked whole;
            std::call_once(made_, [this] { make(); });
        }
        std::vector<void *> all(slots, slots + count_);
        const std::unique_ptr<void, Freeing> scratch(
            scratch_bytes_ == 0 ? nullptr : ::operator new(scratch_bytes_, kAlignment));
        if (scratch != nullptr) all.push_back(scratch.get());
        std::array<char, 256> error{};
        const vtensor_run told{sizeof told, nullptr, nullptr, error.data(), error.size(),
                               nullptr};
        if (step_->run(step_->context, all.data(), &told) != 0)
            throw std::runtime_error(error.data());
    }

private:
    static constexpr std::align_val_t kAlignment{64};
    struct Freeing {
        void operator()(void *memory) const { ::operator delete(memory, kAlignment); }
    };

    // Makes the primitive: with the same kernel if oneDNN offers it, else with any that works on
    // the same memory.
    void make() {
        std::shared_ptr<Primitive> found;
        for (int rank = 0;; ++rank) {
            const auto offered = find_or_make(spec_, rank, threads_);
            if (offered == nullptr) break;
            if (!std::equal(descs_.begin(), descs_.end(), offered->descs().begin())) continue;
            if (found == nullptr || offered->kernel() == kernel_) found = offered;
            if (found->kernel() == kernel_) break;
        }
        if (found == nullptr)
            throw std::runtime_error(spec_.kind + ": no kernel without what it ends in");
        scratch_bytes_ = found->scratch_bytes();
        step_ = found->retained_step();
    }

    Spec spec_;
    std::string kernel_;
    int threads_;
    std::size_t count_;
    std::vector<Desc> descs_;
    std::once_flag made_;
    std::size_t scratch_bytes_ = 0;
    const vtensor_step *step_ = nullptr;
};

}  // namespace

Afterwards exact_ending(const Spec &spec, const std::string &kernel, int threads,
                        const std::vector<Argument> &arguments, const std::vector<Desc> &descs) {
    const auto at = std::ranges::find(arguments, "dst", &Argument::name) - arguments.begin();
    const auto dst = static_cast<std::size_t>(at);
    const auto *bounds = std::get_if<BoundsPostOp>(spec.attr.ending());
    const FloatFunctions *functions = functions_of(descs[dst].type());
    if (functions == nullptr && bounds == nullptr)
        throw std::invalid_argument("gelu behind a primitive is computed in floats");
    if (functions == nullptr) return {};
    std::uint32_t flags = VTENSOR_INVALID;
    if (bounds == nullptr) flags |= VTENSOR_OVERFLOW;
    const auto doubtful = bounds == nullptr ? functions->holds_no_number : functions->holds_odd;
    const float high = bounds == nullptr ? 0 : bounds->high;
    const bool bounded = bounds != nullptr;
    const auto shortened = std::make_shared<Shortened>(spec, kernel, threads, descs, dst + 1);
    return [=](const std::vector<Desc> &all, void *const *slots, std::uint32_t *doubt) {
        // searching one block is faster than asking the team for its flags
        const bool few = all[dst].bytes() <= kBlock * item_bytes(all[dst].type());
        if (!few && doubt != nullptr) {
            *doubt |= flags;
            return;
        }
        if (!few && !team_takes(flags)) return;
        if (!few) searches.fetch_add(1, std::memory_order_relaxed);
        if (!doubtful(all[dst], slots[dst])) return;
        repeats.fetch_add(1, std::memory_order_relaxed);
        shortened->run(slots);
        if (bounded)
            functions->apply_bounds(all[dst], slots[dst], high);
        else
            functions->apply_gelu(all[dst], slots[dst]);
    };
}

BoundsInfo bounds_info() { return {searches.load(), repeats.load()}; }

}  // namespace vtensor::onednn
