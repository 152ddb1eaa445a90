// native/replay/runner.cpp: checking steps and buffers, and running a step. No Python in here.
#include "runner.h"

#include <omp.h>

#include <array>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace vtensor::replay {

namespace {

[[noreturn]] void fail(const std::string &message) { throw std::invalid_argument(message); }

bool known_access(std::uint32_t access) {
    constexpr std::uint32_t transfer = VTENSOR_READ | VTENSOR_WRITE;
    return access == VTENSOR_SCRATCH || (access != 0 && (access & ~transfer) == 0);
}

bool overlap(const Memory &a, const Memory &b) {
    if (a.bytes == 0 || b.bytes == 0) return false;
    const auto first = reinterpret_cast<std::uintptr_t>(a.address);
    const auto second = reinterpret_cast<std::uintptr_t>(b.address);
    return first < second + b.bytes && second < first + a.bytes;
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

void check_scratch(const vtensor_step &step, std::span<const Memory> memory, std::size_t scratch) {
    for (std::size_t other = 0; other < memory.size(); ++other) {
        if (other == scratch) continue;
        const Memory used{memory[scratch].address, step.slots[scratch].bytes};
        const Memory theirs{memory[other].address, step.slots[other].bytes};
        if (overlap(used, theirs))
            fail(slot_label(step, scratch) + " is scratch and overlaps " + slot_label(step, other));
    }
}

}  // namespace

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

void check_memory(const vtensor_step &step, std::span<const Memory> memory) {
    if (memory.size() != step.slot_count)
        fail("the step has " + std::to_string(step.slot_count) + " slots, " +
             std::to_string(memory.size()) + " buffers were given");
    for (std::size_t i = 0; i < memory.size(); ++i) {
        const std::size_t needed = step.slots[i].bytes;
        if (memory[i].bytes < needed)
            fail(slot_label(step, i) + " needs " + std::to_string(needed) +
                 " bytes, its buffer has " + std::to_string(memory[i].bytes));
        if (needed == 0) continue;
        if (reinterpret_cast<std::uintptr_t>(memory[i].address) % step.slots[i].alignment != 0)
            fail(slot_label(step, i) + " must start at a multiple of " +
                 std::to_string(step.slots[i].alignment) + " bytes");
        if (step.slots[i].access == VTENSOR_SCRATCH) check_scratch(step, memory, i);
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

void run_step(const vtensor_step &step, std::span<const Memory> memory, int threads) {
    std::vector<void *> addresses;
    addresses.reserve(memory.size());
    for (const Memory &piece : memory) addresses.push_back(piece.address);
    std::array<char, 512> error{};
    int status = 0;
    {
        const ThreadScope scope(threads);
        status = step.run(step.context, addresses.data(), error.data(), error.size());
    }
    if (status == 0) return;
    error.back() = '\0';
    std::string reason(error.data());
    if (reason.empty()) reason = "status " + std::to_string(status) + ", without a reason";
    throw StepFailed{std::string(step.kernel) + ": " + reason};
}

}  // namespace vtensor::replay
