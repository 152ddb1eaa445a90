// native/onednn/primitive.cpp: a primitive descriptor with names, compiled at first use.
#include "primitive.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <variant>

#include "apart.h"
#include "cache.h"
#include "check.h"
#include "outrun.h"
#include "pads.h"
#include "rectify.h"
#include "sound.h"
#include "vtensor/forks.h"

namespace vtensor::onednn {

KeyWriter &KeyWriter::text(const std::string &value) {
    key_ += std::to_string(value.size()) + ':' + value;
    return *this;
}

KeyWriter &KeyWriter::desc(const Desc *desc) { return text(desc == nullptr ? "" : desc->key()); }

KeyWriter &KeyWriter::ints(const Desc::Dims &values) { return text(shown(values)); }

KeyWriter &KeyWriter::number(double value) {
    return text(std::to_string(std::bit_cast<std::uint64_t>(value)));
}

std::string kernel_of(const_dnnl_primitive_desc_t pd) {
    const char *kernel = nullptr;
    check(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &kernel), "kernel");
    return kernel;
}

std::shared_ptr<Primitive> Primitive::make(const Spec &spec, int rank, int threads) {
    const ThreadScope scope(threads);
    const bool slides = spec.kind == "convolution" || spec.kind == "deconvolution";
    const auto attr = spec.attr.build(static_cast<int>(spec.dst_dims.size()), slides);
    dnnl_primitive_desc_t raw = nullptr;
    check(spec.create(&raw, attr.handle.get()), spec.kind);
    PdHandle first(raw);
    const auto wanted = static_cast<std::size_t>(rank) + 1;
    std::vector<std::shared_ptr<Primitive>> sound, keeping;
    const auto enough = [&] {
        return sound.size() > wanted ||
               (sound.size() == wanted && !may_be_outrun(sound.back()->kernel_));
    };
    const auto take_keeping = [&] {
        sound.insert(sound.end(), keeping.begin(), keeping.end());
        keeping.clear();
    };
    for (;;) {
        dnnl_primitive_desc_t copy = nullptr;
        check(dnnl_primitive_desc_clone(&copy, raw), spec.kind);
        std::shared_ptr<Primitive> found(
            new Primitive(spec, rank, threads, PdHandle(copy), attr.constants));
        if (found->kernel_.starts_with("ref")) take_keeping();
        if (is_sound(*found) && would_keep_code_without_functions(*found)) {
            keeping.push_back(std::move(found));
        } else if (is_sound(*found)) {
            sound.push_back(std::move(found));
            const auto last = sound.end() - 1;
            if (last != sound.begin() && outruns(**last, **(last - 1)))
                std::iter_swap(last - 1, last);
        }
        if (enough()) break;  // describing one more kernel takes as long as describing this one
        const dnnl_status_t status = dnnl_primitive_desc_next_impl(raw);
        if (status == dnnl_last_impl_reached) break;
        check(status, spec.kind);
    }
    take_keeping();
    if (sound.size() >= wanted) return sound[wanted - 1];
    if (rank > 0) return nullptr;
    throw Unimplemented(spec.kind + ": oneDNN has no kernel for it that is known to be sound");
}

Primitive::Primitive(const Spec &spec, int rank, int threads, PdHandle pd,
                     std::vector<Constant> constants)
    : spec_(spec),
      rank_(rank),
      threads_(threads),
      pd_(std::move(pd)),
      arguments_(spec.arguments),
      constants_(std::move(constants)) {
    kernel_ = kernel_of(pd_.get());
    if (kernel_ == "ref") kernel_ = spec_.reference;
    add_post_operands();
    query_descs();
}

Primitive::~Primitive() {
    if (executable_ != nullptr) executable_->release();
}

// Adds the followers' operands between the inputs and dst.
void Primitive::add_post_operands() {
    const auto &post_ops = spec_.attr.post_ops();
    for (std::size_t i = 0; i < post_ops.size(); ++i) {
        if (!std::holds_alternative<BinaryPostOp>(post_ops[i])) continue;
        const int base = DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i));
        arguments_.insert(arguments_.end() - 1, {"post" + std::to_string(i) + "_src1",
                                                 base | DNNL_ARG_SRC_1, VTENSOR_READ});
    }
    if (spec_.attr.reads_dst()) arguments_.back().access |= VTENSOR_READ;
}

void Primitive::query_descs() {
    for (const Argument &argument : arguments_) {
        const_dnnl_memory_desc_t md =
            dnnl_primitive_desc_query_md(pd_.get(), dnnl_query_exec_arg_md, argument.index);
        if (md == nullptr) throw std::logic_error(kind() + ": no descriptor of " + argument.name);
        descs_.emplace_back(md);
    }
    const_dnnl_memory_desc_t scratch =
        dnnl_primitive_desc_query_md(pd_.get(), dnnl_query_scratchpad_md, 0);
    scratch_bytes_ = dnnl_memory_desc_get_size(scratch);
    if (scratch_bytes_ == 0) return;
    arguments_.push_back({"scratch", DNNL_ARG_SCRATCHPAD, VTENSOR_SCRATCH});
    descs_.emplace_back(scratch);
}

std::shared_ptr<Primitive> Primitive::next_kernel() const {
    return find_or_make(spec_, rank_ + 1, threads_);
}

Executable *Primitive::compile() {
    Afterwards afterwards = spec_.afterwards;
    if (spec_.attr.ending() != nullptr)
        afterwards = exact_ending(spec_, kernel_, threads_, arguments_, descs_);
    afterwards = both(std::move(afterwards), clear_pads(*this));
    const bool keeps_code = would_keep_code(*this);  // see apart.h
    const bool counted = keeps_code && take_place();
    if (keeps_code && !counted) {
        if (auto apart = set_apart(*this)) {
            return new Executable(apart->head->pd(), std::move(apart->kernel), threads_,
                                  std::move(apart->arguments), descs_, {},
                                  both(std::move(apart->functions), std::move(afterwards)));
        }
    }
    try {
        auto *made = new Executable(pd_.get(), kernel_, threads_, arguments_, descs_, constants_,
                                    std::move(afterwards));
        if (keeps_code) cache_keep_for_good(shared_from_this());
        return made;
    } catch (...) {
        if (counted) give_place_back();
        throw;
    }
}

const vtensor_step *Primitive::retained_step() {
    const Unforked whole;
    std::call_once(compiled_, [this] { executable_ = compile(); });
    executable_->retain();
    return executable_->step();
}

}  // namespace vtensor::onednn
