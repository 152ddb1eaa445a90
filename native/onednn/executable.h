// native/onednn/executable.h: a compiled primitive as a step of vtensor/step.h.
#pragma once

#include <oneapi/dnnl/dnnl_types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attr.h"
#include "desc.h"
#include "handles.h"
#include "vtensor/step.h"

namespace vtensor::onednn {

// An argument: its name in slots and descs, oneDNN's index of it, and a run's access to it.
struct Argument {
    std::string name;
    int index;
    std::uint32_t access;
};

// The index of an argument that the kernel does not have.
constexpr int kNoArgument = 0;

// Work after the kernel, on the addresses of the arguments.
using Afterwards = std::function<void(const std::vector<Desc> &descs, void *const *slots,
                                      std::uint32_t *doubt)>;

// A compiled primitive. Its owners are the Primitive that made it, capsules and plans; it uses no
// Python.
class Executable {
public:
    // Compiles the kernel, which takes up to tens of milliseconds; the caller is the first owner.
    // descs[i] describes arguments[i]; an argument of index kNoArgument is a slot that only
    // `afterwards` reads. constants: further arguments of the post-ops of pd.
    Executable(const_dnnl_primitive_desc_t pd, std::string kernel, int threads,
               std::vector<Argument> arguments, const std::vector<Desc> &descs,
               std::vector<Constant> constants, Afterwards afterwards);
    Executable(const Executable &) = delete;
    Executable &operator=(const Executable &) = delete;

    const vtensor_step *step() const { return &step_; }
    void retain();
    void release();

private:
    // oneDNN's arguments contain the addresses, so that each concurrent run needs a set of its own.
    struct CallArguments {
        std::vector<MemoryHandle> memories;
        std::vector<dnnl_exec_arg_t> pairs;
    };

    ~Executable() = default;
    std::unique_ptr<CallArguments> make_call() const;
    std::unique_ptr<CallArguments> take_call();
    void give_back(std::unique_ptr<CallArguments> call);
    void run(void *const *slots, std::uint32_t *doubt);
    static int run_step(void *context, void *const *slots, const vtensor_run *run);

    std::string kernel_;
    int threads_;
    std::vector<Argument> arguments_;
    std::vector<Desc> descs_;
    std::vector<Constant> constants_;
    Afterwards afterwards_;
    std::vector<vtensor_slot> slots_;
    bool nothing_to_do_ = false;
    std::atomic<bool> ran_ = false;
    PrimitiveHandle primitive_;
    vtensor_step step_{};
    std::atomic<std::size_t> owners_{1};
    std::mutex idle_guard_;  // only tried: in a forked child it may stay locked
    std::vector<std::unique_ptr<CallArguments>> idle_;
};

}  // namespace vtensor::onednn
