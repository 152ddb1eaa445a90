// native/onednn/executable.cpp: a compiled primitive as a step of vtensor/step.h.
#include "executable.h"

#include <oneapi/dnnl/dnnl.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <system_error>
#include <thread>

#include "names.h"

namespace vtensor::onednn {

namespace {

// Whether the thread can generate no more code: after a failure to generate a kernel, oneDNN leaves
// the error in the thread's state, and later kernels fail or end the process.
thread_local bool spoilt = false;

// Does work that may generate code, on another thread if this one is spoilt.
template <typename Work>
dnnl_status_t generating(const Work &work) {
    if (!spoilt) {
        const dnnl_status_t status = work();
        spoilt = status != dnnl_success;
        return status;
    }
    dnnl_status_t status = dnnl_runtime_error;
    try {
        std::thread([&] { status = work(); }).join();
    } catch (const std::system_error &) {  // without a thread the kernel is not made
    }
    return status;
}

dnnl_primitive_t compile(const_dnnl_primitive_desc_t pd, int threads, const std::string &what) {
    dnnl_primitive_t primitive = nullptr;
    const dnnl_status_t status = generating([&] {
        const ThreadScope scope(threads);
        return dnnl_primitive_create(&primitive, pd);
    });
    check(status, what);
    return primitive;
}

}  // namespace

Executable::Executable(const_dnnl_primitive_desc_t pd, std::string kernel, int threads,
                       std::vector<Argument> arguments, const std::vector<Desc> &descs,
                       std::vector<Constant> constants, Afterwards afterwards)
    : kernel_(std::move(kernel)),
      threads_(threads),
      arguments_(std::move(arguments)),
      descs_(descs),
      constants_(std::move(constants)),
      afterwards_(std::move(afterwards)) {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
        // Kernels take any address that is aligned for an element; they align scratch themselves.
        const auto alignment = static_cast<std::uint32_t>(item_bytes(descs_[i].type()));
        slots_.push_back({.bytes = descs_[i].bytes(),
                          .access = arguments_[i].access,
                          .alignment = alignment,
                          .name = arguments_[i].name.c_str(),
                          .planes = 1,
                          .further_bytes = nullptr});
    }
    // Some kernels divide by the sizes of an empty tensor; without a result there is no work.
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
        if ((arguments_[i].access & VTENSOR_WRITE) != 0 && descs_[i].empty()) nothing_to_do_ = true;
    }
    if (!nothing_to_do_) primitive_.reset(compile(pd, threads_, "compiling " + kernel_));
    step_.abi = VTENSOR_STEP_ABI;
    step_.struct_bytes = sizeof step_;
    step_.slot_count = static_cast<std::uint32_t>(slots_.size());
    step_.slots = slots_.data();
    step_.kernel = kernel_.c_str();
    step_.context = this;
    step_.run = &run_step;
    step_.retain = [](void *context) { static_cast<Executable *>(context)->retain(); };
    step_.release = [](void *context) { static_cast<Executable *>(context)->release(); };
}

void Executable::retain() { owners_.fetch_add(1, std::memory_order_relaxed); }

void Executable::release() {
    if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

std::unique_ptr<Executable::CallArguments> Executable::make_call() const {
    static const Desc &number = *new Desc(Desc::strided({1}, "f32", {1}));
    auto call = std::make_unique<CallArguments>();
    const auto add = [&](const Desc &desc, int index, void *address) {
        dnnl_memory_t memory = nullptr;
        check(dnnl_memory_create(&memory, desc.get(), engine(), address), "describing memory");
        call->memories.emplace_back(memory);
        if (index != kNoArgument) call->pairs.push_back({index, memory});
    };
    for (std::size_t i = 0; i < arguments_.size(); ++i)
        add(descs_[i], arguments_[i].index, DNNL_MEMORY_NONE);
    // oneDNN takes read-only memory by a non-const address.
    for (const Constant &constant : constants_)
        add(number, constant.index, const_cast<float *>(&constant.value));
    return call;
}

std::unique_ptr<Executable::CallArguments> Executable::take_call() {
    {
        const std::unique_lock lock(idle_guard_, std::try_to_lock);
        if (lock && !idle_.empty()) {
            auto call = std::move(idle_.back());
            idle_.pop_back();
            return call;
        }
    }
    return make_call();
}

void Executable::give_back(std::unique_ptr<CallArguments> call) {
    const std::unique_lock lock(idle_guard_, std::try_to_lock);
    if (lock) idle_.push_back(std::move(call));
}

void Executable::run(void *const *slots, std::uint32_t *doubt) {
    if (nothing_to_do_) return;
    auto call = take_call();
    for (std::size_t i = 0; i < arguments_.size(); ++i)
        check(dnnl_memory_set_data_handle(call->memories[i].get(), slots[i]), "naming memory");
    const auto execute = [&] {
        const ThreadScope scope(threads_);
        const dnnl_status_t status = dnnl_primitive_execute(
            primitive_.get(), stream(), static_cast<int>(call->pairs.size()), call->pairs.data());
        return status == dnnl_success ? dnnl_stream_wait(stream()) : status;
    };
    const bool first = !ran_.load(std::memory_order_relaxed);  // some kernels generate code then
    check(first ? generating(execute) : execute(), "running");
    if (first) ran_.store(true, std::memory_order_relaxed);
    give_back(std::move(call));
    if (afterwards_) afterwards_(descs_, slots, doubt);
}

int Executable::run_step(void *context, void *const *slots, const vtensor_run *run) {
    try {
        constexpr std::size_t told = offsetof(vtensor_run, doubt) + sizeof run->doubt;
        std::uint32_t *const doubt = run->struct_bytes < told ? nullptr : run->doubt;
        static_cast<Executable *>(context)->run(slots, doubt);
        return 0;
    } catch (const std::exception &failure) {
        std::snprintf(run->error, run->error_bytes, "%s", failure.what());
    } catch (...) {
        std::snprintf(run->error, run->error_bytes, "unknown failure");
    }
    return 1;
}

}  // namespace vtensor::onednn
