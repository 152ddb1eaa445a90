// native/onednn/apart.cpp: convolutions whose code oneDNN never frees, and their replacements.
#include "apart.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "cache.h"
#include "operators.h"

namespace vtensor::onednn {

namespace {

// The limit of convolutions with code that oneDNN never frees (those of a few networks, about 20 MB
// at most), and their number so far.
std::atomic<std::size_t> limit{256}, taken{0};

bool is_function(const PostOp &op) {
    return std::holds_alternative<EltwisePostOp>(op) || std::holds_alternative<GeluPostOp>(op);
}

// A kernel that changes dst in place, and the slots of its arguments among those of the whole
// primitive.
class Function {
public:
    Function(const PrimitivePtr &primitive, std::vector<std::size_t> slots)
        : step_(primitive->retained_step()), slots_(std::move(slots)) {}
    ~Function() { step_->release(step_->context); }
    Function(const Function &) = delete;
    Function &operator=(const Function &) = delete;

    void run(void *const *slots) const {
        std::vector<void *> own;
        for (const std::size_t slot : slots_) own.push_back(slots[slot]);
        std::array<char, 256> error{};
        const vtensor_run told{sizeof told, nullptr, nullptr, error.data(), error.size(),
                               nullptr};
        if (step_->run(step_->context, own.data(), &told) != 0)
            throw std::runtime_error(error.data());
    }

private:
    const vtensor_step *step_;
    std::vector<std::size_t> slots_;
};

struct Kernel {
    PrimitivePtr primitive;
    std::vector<std::size_t> slots;
};

std::size_t slot_of(const std::vector<Argument> &arguments, const std::string &name) {
    const auto at = std::ranges::find(arguments, name, &Argument::name);
    return static_cast<std::size_t>(at - arguments.begin());
}

bool of_blocks(const Primitive &primitive) {
    const std::string &kernel = primitive.kernel();
    return kernel.starts_with("brgconv") || kernel.starts_with("brg_conv") ||
           kernel.find("+brg_fwd") != std::string::npos;  // another kind that runs as a convolution
}

std::string post_operand(std::size_t place) { return "post" + std::to_string(place) + "_src1"; }

// Returns the kernels of the post-ops from `first` on, in order. Throws Unimplemented.
std::vector<Kernel> kernels_from(std::size_t first, const Primitive &whole) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const auto &ops = whole.attr().post_ops();
    const std::size_t out = slot_of(whole.arguments(), "dst");
    const Desc &dst = whole.descs()[out];
    std::vector<Kernel> kernels;
    const auto add = [&](const std::string &alg, float alpha, float beta) {
        kernels.push_back({eltwise(alg, dst, dst, alpha, beta, Attr()), {out, out}});
    };
    for (std::size_t i = first; i < ops.size(); ++i) {
        if (const auto *function = std::get_if<EltwisePostOp>(&ops[i])) {
            add(function->alg, function->alpha, function->beta);
        } else if (const auto *other = std::get_if<BinaryPostOp>(&ops[i])) {
            const std::size_t in = slot_of(whole.arguments(), post_operand(i));
            kernels.push_back(
                {binary(other->alg, dst, whole.descs()[in], dst, Attr()), {out, in, out}});
        } else if (const auto *bounds = std::get_if<BoundsPostOp>(&ops[i])) {
            if (bounds->high < kInfinity) add("clip", -kInfinity, bounds->high);
            add("hardswish", kSteep, 0);
        } else {
            add("gelu_erf", 0, 0);
        }
    }
    return kernels;
}

// Returns the primitive without its post-ops from `first` on, on the same memory and by the same
// kernel; null if oneDNN does not offer it.
PrimitivePtr head_of(std::size_t first, const Primitive &whole,
                     const std::vector<Argument> &arguments) {
    Spec spec = whole.spec();
    spec.attr = spec.attr.prefix(first);
    spec.afterwards = {};
    for (int rank = 0;; ++rank) {
        const PrimitivePtr offered = find_or_make(spec, rank, whole.threads());
        if (offered == nullptr) return nullptr;
        if (offered->kernel() != whole.kernel()) continue;
        const bool fits = std::ranges::all_of(offered->arguments(), [&](const Argument &own) {
            if (own.name == "scratch") return offered->scratch_bytes() <= whole.scratch_bytes();
            return offered->descs()[slot_of(offered->arguments(), own.name)] ==
                   whole.descs()[slot_of(arguments, own.name)];
        });
        return fits ? offered : nullptr;
    }
}

}  // namespace

bool would_keep_code_without_functions(const Primitive &primitive) {
    if (!of_blocks(primitive)) return false;
    const auto is_scaled = [](const PostOp &op) {
        const auto *sum = std::get_if<SumPostOp>(&op);
        return sum != nullptr && sum->scale != 1;
    };
    if (std::ranges::any_of(primitive.attr().post_ops(), is_scaled)) return true;
    constexpr dnnl_dim_t kBlock = 8;
    const auto &descs = primitive.descs();
    const Desc &weights = descs[slot_of(primitive.arguments(), "weights")];
    const std::size_t outputs = weights.rank() > descs.front().rank() ? 1 : 0;
    return primitive.kernel().find(":avx2") != std::string::npos &&
           weights.dims()[outputs] % kBlock != 0;
}

bool would_keep_code(const Primitive &primitive) {
    return would_keep_code_without_functions(primitive) ||
           (of_blocks(primitive) &&
            std::ranges::any_of(primitive.attr().post_ops(), is_function));
}

bool take_place() {
    std::size_t now = taken.load();
    while (now < limit.load()) {
        if (taken.compare_exchange_weak(now, now + 1)) return true;
    }
    return false;
}

void give_place_back() { --taken; }

void set_kept_code_limit(std::size_t places) { limit = places; }

std::optional<Apart> set_apart(const Primitive &whole) {
    std::vector<Argument> arguments = whole.arguments();
    const std::size_t out = slot_of(arguments, "dst");
    const auto &ops = whole.attr().post_ops();
    const auto begin = std::ranges::find_if(ops, is_function);
    const auto first = static_cast<std::size_t>(begin - ops.begin());
    const auto is_sum = [](const PostOp &op) { return std::holds_alternative<SumPostOp>(op); };
    if (would_keep_code_without_functions(whole) || whole.descs()[out].type() != dnnl_f32 ||
        std::any_of(begin, ops.end(), is_sum))
        return std::nullopt;
    const ThreadScope scope(whole.threads());
    std::vector<Kernel> kernels;
    PrimitivePtr head;
    try {
        kernels = kernels_from(first, whole);
        head = head_of(first, whole, arguments);
    } catch (const Unimplemented &) {
        return std::nullopt;
    }
    const auto is_slow = [](const Kernel &kernel) {
        return kernel.primitive->kernel().starts_with("ref") ||
               kernel.primitive->scratch_bytes() > 0;
    };
    if (head == nullptr || std::ranges::any_of(kernels, is_slow)) return std::nullopt;

    for (std::size_t i = first; i < ops.size(); ++i) {
        if (std::holds_alternative<BinaryPostOp>(ops[i]))
            arguments[slot_of(arguments, post_operand(i))].index = kNoArgument;
    }
    std::string name = head->kernel();
    std::vector<std::shared_ptr<const Function>> functions;
    for (const Kernel &kernel : kernels) {
        name += '+' + kernel.primitive->kernel();
        functions.push_back(std::make_shared<Function>(kernel.primitive, kernel.slots));
    }
    const auto run = [functions](const std::vector<Desc> &, void *const *slots, std::uint32_t *) {
        for (const auto &function : functions) function->run(slots);
    };
    return Apart{head, std::move(name), std::move(arguments), run};
}

Afterwards both(Afterwards first, Afterwards second) {
    if (!first) return second;
    if (!second) return first;
    return [first = std::move(first), second = std::move(second)](
               const std::vector<Desc> &descs, void *const *slots, std::uint32_t *doubt) {
        first(descs, slots, doubt);
        second(descs, slots, doubt);
    };
}

}  // namespace vtensor::onednn
