// native/replay/runner.cpp: checking steps and buffers, and running a step. No Python in here.
#include "runner.h"

#include <omp.h>

#include <bit>
#include <cstdint>
#include <exception>
#include <vector>

namespace vtensor::replay {

namespace {

[[noreturn]] void fail(const std::string &message) { throw std::invalid_argument(message); }

bool known_access(std::uint32_t access) {
    constexpr std::uint32_t transfer = VTENSOR_READ | VTENSOR_WRITE;
    return access == VTENSOR_SCRATCH || (access != 0 && (access & ~transfer) == 0);
}

// Sets the calling thread's number of OpenMP threads for a scope.
class ThreadScope {
public:
    explicit ThreadScope(int threads) : before_(omp_get_max_threads()) {
        if (threads > 0 && threads != before_) omp_set_num_threads(threads);
    }
    ~ThreadScope() {
        if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
    }
    ThreadScope(const ThreadScope &) = delete;
    ThreadScope &operator=(const ThreadScope &) = delete;

private:
    int before_;
};

[[noreturn]] void failed(const vtensor_step &step, const std::string &reason) {
    throw StepFailed{std::string(step.kernel) + ": " + reason};
}

}  // namespace

bool overlap(const Place &a, std::size_t a_bytes, const Place &b, std::size_t b_bytes) {
    if (a.region != b.region || a_bytes == 0 || b_bytes == 0) return false;
    return a.offset < b.offset + b_bytes && b.offset < a.offset + a_bytes;
}

Place absolute(const void *address) { return {0, reinterpret_cast<std::uintptr_t>(address)}; }

void check_step(const vtensor_step &step) {
    if (step.abi != VTENSOR_STEP_ABI)
        fail("the step has ABI version " + std::to_string(step.abi) +
             ", this build takes version " + std::to_string(VTENSOR_STEP_ABI));
    if (step.run == nullptr) fail("the step has no function");
    if (step.kernel == nullptr) fail("the step has no kernel name");
    if (step.slot_count > 0 && step.slots == nullptr) fail("the step describes none of its slots");
    for (std::size_t i = 0; i < step.slot_count; ++i) {
        if (!known_access(step.slots[i].access))
            fail(slot_label(step, i) + " has unknown access " +
                 std::to_string(step.slots[i].access));
        if (!std::has_single_bit(step.slots[i].alignment))
            fail(slot_label(step, i) + " has alignment " +
                 std::to_string(step.slots[i].alignment) + ", which is no power of two");
    }
}

void Release::operator()(const vtensor_step *step) const {
    if (step->release != nullptr) step->release(step->context);
}

OwnedStep own(const vtensor_step &step) {
    if (step.retain != nullptr) step.retain(step.context);
    return OwnedStep(&step);
}

void check_slot_count(const vtensor_step &step, std::size_t given) {
    if (given != step.slot_count)
        fail("the step has " + std::to_string(step.slot_count) + " slots, " +
             std::to_string(given) + " buffers were given");
}

void check_alignment(const vtensor_step &step, std::size_t slot, std::uintptr_t offset) {
    if (offset % step.slots[slot].alignment != 0)
        fail(slot_label(step, slot) + " must start at a multiple of " +
             std::to_string(step.slots[slot].alignment) + " bytes");
}

void check_scratch(const vtensor_step &step, std::span<const Place> places) {
    for (std::size_t scratch = 0; scratch < places.size(); ++scratch) {
        if (step.slots[scratch].access != VTENSOR_SCRATCH) continue;
        for (std::size_t other = 0; other < places.size(); ++other)
            if (other != scratch && overlap(places[scratch], step.slots[scratch].bytes,
                                            places[other], step.slots[other].bytes))
                fail(slot_label(step, scratch) + " is scratch and overlaps " +
                     slot_label(step, other));
    }
}

void check_threads(int threads) {
    if (threads < 1 || threads > kMaxThreads)
        fail("threads must be 1 to " + std::to_string(kMaxThreads) + ", not " +
             std::to_string(threads));
}

std::string slot_label(const vtensor_step &step, std::size_t index) {
    std::string label = "slot " + std::to_string(index);
    const char *name = step.slots[index].name;
    if (name != nullptr) label += std::string(" (") + name + ")";
    return label;
}

void run_step(const vtensor_step &step, void *const *addresses) {
    char error[512];
    error[0] = '\0';
    int status = 0;
    try {
        status = step.run(step.context, addresses, error, sizeof error);
    } catch (const std::exception &thrown) {  // against the contract; all the same no end of us
        failed(step, std::string("threw an exception: ") + thrown.what());
    } catch (...) {
        failed(step, "threw something that is no exception");
    }
    if (status == 0) return;
    error[sizeof error - 1] = '\0';
    failed(step, error[0] != '\0' ? error
                                  : "status " + std::to_string(status) + ", without a reason");
}

void run_once(const vtensor_step &step, std::span<const Memory> memory, int threads) {
    check_slot_count(step, memory.size());
    std::vector<Place> places;
    std::vector<void *> addresses;
    for (std::size_t i = 0; i < memory.size(); ++i) {
        const std::size_t needed = step.slots[i].bytes;
        if (memory[i].bytes < needed)
            fail(slot_label(step, i) + " needs " + std::to_string(needed) +
                 " bytes, its buffer has " + std::to_string(memory[i].bytes));
        places.push_back(absolute(memory[i].address));
        addresses.push_back(memory[i].address);
        if (needed != 0) check_alignment(step, i, places[i].offset);
    }
    check_scratch(step, places);
    const ThreadScope scope(threads);
    run_step(step, addresses.data());
}

}  // namespace vtensor::replay
