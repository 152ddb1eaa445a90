// native/onednn/planes.cpp: products and reorders of f32 values as sums of two bf16, "planes".
#include "planes.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <stdexcept>
#include <utility>
#include <variant>

#include "floats.h"

namespace vtensor::onednn {

namespace {

// Planes begin at multiples of a cache line: ALIGNMENT of ptensor/encoding.py.
constexpr std::size_t kLine = 64;

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// The bf16 nearest to a number, ties to even; infinity stays.
[[gnu::always_inline]] inline std::uint32_t nearest(std::uint32_t bits) {
    return (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
}

// Returns the bits of the bf16 nearest to a number without its sign; NaN is the quiet one. kFinite:
// of a finite number too large for bf16, the largest bf16, in place of infinity.
template <bool kFinite>
[[gnu::always_inline]] inline std::uint32_t rounded(std::uint32_t magnitude) {
    std::uint32_t bits = nearest(magnitude);
    if (kFinite) {
        bits = std::min<std::uint32_t>(bits, Bf16::kInfinity - 1);
        bits = magnitude == F32::kInfinity ? Bf16::kInfinity : bits;
    }
    return magnitude > F32::kInfinity ? Bf16::kNaN : bits;
}

// Writes the planes of a block of f32; without kPlanes, the block rounded to bf16 in `hi`.
template <bool kPlanes>
[[gnu::always_inline]] inline void split_block(const std::uint32_t *values, std::uint16_t *hi,
                                               std::uint16_t *lo, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t bits = values[i], sign = bits & F32::kSign;
        const std::uint32_t magnitude = bits ^ sign, high = rounded<kPlanes>(magnitude);
        hi[i] = static_cast<std::uint16_t>(sign >> 16 | high);
        if (kPlanes) {
            const float rest = std::bit_cast<float>(bits) - std::bit_cast<float>(sign | high << 16);
            const auto left = std::bit_cast<std::uint32_t>(rest);
            const bool none = magnitude >= F32::kInfinity || (left & ~F32::kSign) == 0;
            lo[i] = static_cast<std::uint16_t>(none ? sign >> 16 : nearest(left));
        }
    }
}

template <bool kPlanes>
void split_baseline(const std::uint32_t *values, std::uint16_t *hi, std::uint16_t *lo,
                    std::int64_t count) {
    split_block<kPlanes>(values, hi, lo, count);
}

#if defined(__x86_64__)
template <bool kPlanes>
[[gnu::target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")]] void split_avx512(
    const std::uint32_t *values, std::uint16_t *hi, std::uint16_t *lo, std::int64_t count) {
    split_block<kPlanes>(values, hi, lo, count);
}

template <bool kPlanes>
auto splitter() {
    const bool has = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return has ? &split_avx512<kPlanes> : &split_baseline<kPlanes>;
}
#else
template <bool kPlanes>
auto splitter() {
    return &split_baseline<kPlanes>;
}
#endif

void require(bool holds, const char *what) {
    if (!holds) throw std::invalid_argument(what);
}

std::size_t place_of(const Primitive &primitive, const std::string &name) {
    const auto &arguments = primitive.arguments();
    const auto at = std::ranges::find(arguments, name, &Argument::name);
    require(at != arguments.end(), "a primitive in planes lacks an operand");
    return static_cast<std::size_t>(at - arguments.begin());
}

const Desc &desc_of(const Primitive &primitive, const std::string &name) {
    return primitive.descs()[place_of(primitive, name)];
}

// Checks that a primitive computes f32 from bf16, on the memory of `like`.
void check_product(const Primitive &primitive, const Primitive &like) {
    require(primitive.kind() == like.kind() && primitive.threads() == like.threads(),
            "a product in planes: primitives of several kinds");
    for (const char *name : {"src", "weights", "dst"}) {
        const Desc &desc = desc_of(primitive, name);
        require(desc == desc_of(like, name) && desc.kind() == Desc::Kind::blocked,
                "a product in planes: several layouts");
        require(desc.type() == (name[0] == 'd' ? dnnl_f32 : dnnl_bf16),
                "a product in planes: computes f32 from bf16");
    }
}

}  // namespace

void split(const std::uint32_t *values, std::uint16_t *hi, std::uint16_t *lo, std::int64_t count,
           int threads) {
    const auto work = lo != nullptr ? splitter<true>() : splitter<false>();
    const std::int64_t blocks = (count + kBlock - 1) / kBlock;
#pragma omp parallel for num_threads(threads) if (blocks > 1)
    for (std::int64_t b = 0; b < blocks; ++b)
        work(values + b * kBlock, hi + b * kBlock, lo != nullptr ? lo + b * kBlock : nullptr,
             std::min(kBlock, count - b * kBlock));
}

void InPlanes::add_slot(const std::string &name, std::size_t bytes, std::uint32_t access) {
    names_.push_back(name);
    slots_.push_back({.bytes = bytes,
                      .access = access,
                      .alignment = static_cast<std::uint32_t>(sizeof(float)),
                      .name = nullptr,
                      .planes = 1,
                      .further_bytes = nullptr});
}

std::size_t InPlanes::add_scratch(std::size_t bytes) {
    return std::exchange(scratch_, scratch_ + aligned(bytes));
}

void InPlanes::finish() {
    if (scratch_ > 0) add_slot("scratch", scratch_, VTENSOR_SCRATCH);
    for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].name = names_[i].c_str();
}

std::shared_ptr<InPlanes> InPlanes::product(std::vector<PrimitivePtr> primitives) {
    require(primitives.size() == 2 || primitives.size() == 3,
            "a product in planes: two primitives or three");
    const std::size_t weights_planes = primitives.size() - 1;
    // The planes of src and weights in each product, small products first; 0 is hi, 1 is lo.
    std::vector<std::pair<std::size_t, std::size_t>> factors{{1, 0}, {0, 1}, {0, 0}};
    if (weights_planes == 1) factors.erase(factors.begin() + 1);
    for (const auto &primitive : primitives) {
        require(primitive != nullptr, "a product in planes: no primitive");
        check_product(*primitive, *primitives.front());
    }
    const PrimitivePtr first = primitives.front(), last = primitives.back();
    const auto plain = [](const Primitive &one, std::size_t posts) {
        const auto is_bias = [](const Argument &argument) { return argument.name == "bias"; };
        return one.attr().post_ops().size() == posts &&
               std::ranges::none_of(one.arguments(), is_bias);
    };
    require(plain(*first, 0), "a product in planes: followers of the first primitive");
    const auto is_sum = [](const PostOp &op) {
        const auto *sum = std::get_if<SumPostOp>(&op);
        return sum != nullptr && sum->scale == 1;
    };
    for (std::size_t i = 1; i + 1 < primitives.size(); ++i)
        require(plain(*primitives[i], 1) && is_sum(primitives[i]->attr().post_ops()[0]),
                "a product in planes: the second primitive adds to its dst, and no more");
    const Desc &src = desc_of(*first, "src"), &weights = desc_of(*first, "weights");
    const Desc &dst = desc_of(*first, "dst");
    const auto &posts = last->attr().post_ops();
    const auto *added = posts.empty() ? nullptr : std::get_if<BinaryPostOp>(&posts[0]);
    require(added != nullptr && added->alg == "add" && !last->attr().reads_dst() &&
                desc_of(*last, "post0_src1") == dst,
            "a product in planes: the last primitive first adds an operand like dst");

    std::shared_ptr<InPlanes> made(new InPlanes(*last));
    made->kernel_ = "bf16x" + std::to_string(factors.size()) + ":" + last->kernel();
    made->elements_ = src.bytes() / sizeof(std::uint16_t);
    std::vector<std::size_t> own;  // the slot of each argument of `last`
    for (std::size_t i = 0; i < last->arguments().size(); ++i) {
        const Argument &argument = last->arguments()[i];
        const Desc &desc = last->descs()[i];
        own.push_back(made->slots_.size());
        if (argument.name == "scratch" || argument.name == "post0_src1") continue;
        std::string name = argument.name;
        if (const auto *post = argument.name.c_str(); name.starts_with("post"))
            name = "post" + std::to_string(std::stoi(post + 4) - 1) + "_src1";
        std::size_t bytes = desc.bytes();
        if (name == "src") bytes = made->elements_ * sizeof(float);
        if (name == "weights" && weights_planes == 2) bytes += aligned(bytes);
        made->descs_.push_back(desc);
        made->add_slot(name, bytes, argument.access);
    }
    const std::size_t scratch = made->slots_.size();
    const std::size_t hi = made->add_scratch(src.bytes()), lo = made->add_scratch(src.bytes());
    made->halves_ = {{scratch, hi}, {scratch, lo}};
    const std::size_t sum = made->add_scratch(dst.bytes());
    std::size_t most = 0;
    for (const auto &primitive : primitives) most = std::max(most, primitive->scratch_bytes());
    const std::size_t working = made->add_scratch(most);
    for (std::size_t i = 0; i < primitives.size(); ++i) {
        const PrimitivePtr &primitive = primitives[i];
        const auto [half, plane] = factors[i];
        Call call{primitive, {}};
        for (const Argument &argument : primitive->arguments()) {
            const std::size_t slot = own[place_of(*last, argument.name)];
            if (argument.name == "src") {
                call.places.push_back(made->halves_[half]);
            } else if (argument.name == "weights") {
                call.places.push_back({slot, plane * aligned(weights.bytes())});
            } else if (argument.name == "scratch") {
                call.places.push_back({scratch, working});
            } else if (primitive == last && argument.name != "post0_src1") {
                call.places.push_back({slot, 0});
            } else {  // dst of all but the last
                call.places.push_back({scratch, sum});
            }
        }
        made->calls_.push_back(std::move(call));
    }
    made->finish();
    return made;
}

std::shared_ptr<InPlanes> InPlanes::reorder(PrimitivePtr whole, int planes) {
    require(whole->kind() == "reorder" && whole->attr().post_ops().empty(),
            "a reorder to planes: not of a reorder");
    require(planes == 1 || planes == 2, "a reorder to planes: to one plane or two");
    const Desc &src = desc_of(*whole, "src"), &dst = desc_of(*whole, "dst");
    require(src.type() == dnnl_f32 && dst.type() == dnnl_f32,
            "a reorder to planes: from f32 to f32");
    std::shared_ptr<InPlanes> made(new InPlanes(*whole));
    made->kernel_ = planes == 1 ? "bf16:" : "bf16x2:";
    made->kernel_ += src == dst ? "split" : whole->kernel();
    made->elements_ = dst.bytes() / sizeof(float);
    made->descs_ = {src, dst};
    const std::size_t plane = made->elements_ * sizeof(std::uint16_t), begin = aligned(plane);
    made->add_slot("src", src.bytes(), VTENSOR_READ);
    made->add_slot("dst", planes == 1 ? plane : begin + plane, VTENSOR_WRITE);
    made->halves_ = {{1, 0}, {1, begin}};
    made->halves_.resize(static_cast<std::size_t>(planes));
    if (!(src == dst)) {
        made->source_ = {2, made->add_scratch(dst.bytes())};
        const std::size_t working = made->add_scratch(whole->scratch_bytes());
        Call call{whole, {}};
        for (const Argument &argument : whole->arguments())
            call.places.push_back(argument.name == "src"   ? Place{0, 0}
                                  : argument.name == "dst" ? made->source_
                                                           : Place{2, working});
        made->before_ = 1;
        made->calls_.push_back(std::move(call));
    }
    made->finish();
    return made;
}

InPlanes::~InPlanes() {
    for (const Call &call : calls_)
        if (call.step != nullptr) call.step->release(call.step->context);
}

void InPlanes::compile() {
    for (Call &call : calls_) call.step = call.primitive->retained_step();
}

int InPlanes::run(void *const *slots, const vtensor_run *run) const {
    const auto at = [&](Place place) {
        return static_cast<void *>(static_cast<std::byte *>(slots[place.slot]) + place.offset);
    };
    if (elements_ == 0) return 0;
    std::vector<void *> memory;
    for (std::size_t i = 0; i <= calls_.size(); ++i) {
        if (i == before_)
            onednn::split(static_cast<const std::uint32_t *>(at(source_)),
                          static_cast<std::uint16_t *>(at(halves_.front())),
                          halves_.size() < 2 ? nullptr
                                             : static_cast<std::uint16_t *>(at(halves_.back())),
                          static_cast<std::int64_t>(elements_), threads_);
        if (i == calls_.size()) break;
        memory.clear();
        for (const Place place : calls_[i].places) memory.push_back(at(place));
        const vtensor_step *step = calls_[i].step;
        if (const int failed = step->run(step->context, memory.data(), run); failed != 0)
            return failed;
    }
    return 0;
}

const vtensor_step *InPlanes::retained_step() {
    struct Step {
        std::shared_ptr<InPlanes> planes;
        std::atomic<std::size_t> owners{1};
        vtensor_step step{};
    };
    std::call_once(compiled_, [this] { compile(); });
    auto *const made = new Step{shared_from_this()};
    made->step.abi = VTENSOR_STEP_ABI;
    made->step.struct_bytes = sizeof made->step;
    made->step.slot_count = static_cast<std::uint32_t>(slots_.size());
    made->step.slots = slots_.data();
    made->step.kernel = kernel_.c_str();
    made->step.context = made;
    made->step.run = [](void *context, void *const *slots, const vtensor_run *run) {
        return static_cast<Step *>(context)->planes->run(slots, run);
    };
    made->step.retain = [](void *context) { ++static_cast<Step *>(context)->owners; };
    made->step.release = [](void *context) {
        auto *const one = static_cast<Step *>(context);
        if (--one->owners == 0) delete one;
    };
    return &made->step;
}

}  // namespace vtensor::onednn
