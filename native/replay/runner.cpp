// native/replay/runner.cpp: checking steps and buffers, and running a step. No Python in here.
#include "runner.h"

#include <bit>
#include <cstdint>
#include <exception>
#include <vector>

#include "thread.h"

namespace vtensor::replay {

namespace {

[[noreturn]] void fail(const std::string &message) { throw std::invalid_argument(message); }

bool known_access(std::uint32_t access) {
    constexpr std::uint32_t transfer = VTENSOR_READ | VTENSOR_WRITE;
    return access == VTENSOR_SCRATCH || (access != 0 && (access & ~transfer) == 0);
}

// Why a function of a step failed (empty if it did not), and its status. An exception, which the
// contract forbids, becomes a reason as well.
struct Failure {
    std::string reason;
    int status = VTENSOR_FAILED;
};

Failure failure(char *error, std::size_t error_bytes, const auto &call) {
    error[0] = '\0';
    int status = 0;
    try {
        status = call();
    } catch (const std::exception &thrown) {
        return {std::string("threw an exception: ") + thrown.what()};
    } catch (...) {
        return {"threw something that is no exception"};
    }
    if (status == 0) return {};
    error[error_bytes - 1] = '\0';
    if (error[0] != '\0') return {error, status};
    return {"status " + std::to_string(status) + ", without a reason", status};
}

void check_slot(const vtensor_step &step, std::size_t index) {
    const vtensor_slot &slot = step.slots[index];
    const std::string label = slot_label(step, index);
    if (!known_access(slot.access))
        fail(label + " has unknown access " + std::to_string(slot.access));
    if (!std::has_single_bit(slot.alignment))
        fail(label + " has alignment " + std::to_string(slot.alignment) +
             ", which is no power of two");
    if (slot.planes < 1 || slot.planes > VTENSOR_MAX_PLANES)
        fail(label + " has " + std::to_string(slot.planes) + " planes, not 1 to " +
             std::to_string(VTENSOR_MAX_PLANES));
    if (slot.planes > 1 && slot.further_bytes == nullptr)
        fail(label + " has " + std::to_string(slot.planes) + " planes and describes one");
}

std::string shown(std::span<const std::int64_t> sizes) {
    std::string text;
    for (const std::int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
    return "(" + text + ")";
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
             ", this build takes version " + std::to_string(VTENSOR_STEP_ABI) +
             ": rebuild its library with the vtensor/step.h of vtensor.get_include()");
    if (step.struct_bytes < sizeof(vtensor_step))
        fail("the step's struct has " + std::to_string(step.struct_bytes) + " bytes, not the " +
             std::to_string(sizeof(vtensor_step)) + " of its ABI version");
    if (step.run == nullptr) fail("the step has no function");
    if (step.kernel == nullptr) fail("the step has no kernel name");
    if (step.slot_count > 0 && step.slots == nullptr) fail("the step describes none of its slots");
    if (step.size_count > 0 && step.bytes_for == nullptr)
        fail("the step takes sizes and has no function that says their bytes");
    for (std::size_t i = 0; i < step.slot_count; ++i) check_slot(step, i);
}

void Release::operator()(const vtensor_step *step) const {
    if (step->release != nullptr) step->release(step->context);
}

OwnedStep own(const vtensor_step &step) {
    if (step.retain != nullptr) step.retain(step.context);
    return OwnedStep(&step);
}

std::vector<Plane> planes_of(const vtensor_step &step) {
    std::vector<Plane> found;
    for (std::size_t slot = 0; slot < step.slot_count; ++slot) {
        const vtensor_slot &of = step.slots[slot];
        found.push_back({slot, 0, of.bytes});
        for (std::size_t number = 1; number < of.planes; ++number)
            found.push_back({slot, number, of.further_bytes[number - 1]});
    }
    return found;
}

std::vector<std::size_t> bytes_for(const vtensor_step &step,
                                   std::span<const std::int64_t> sizes) {
    const std::vector<Plane> planes = planes_of(step);
    std::vector<std::size_t> bytes;
    for (const Plane &plane : planes) bytes.push_back(plane.bytes);
    if (sizes.empty()) return bytes;
    const std::string what = std::string(step.kernel) + " with sizes " + shown(sizes);
    for (const std::int64_t size : sizes)
        if (size < 0) fail(what + ": none may be negative");
    bytes.assign(planes.size(), SIZE_MAX);  // what the step leaves unset is refused as too much
    char error[512];
    const auto [reason, status] = failure(error, sizeof error, [&] {
        return step.bytes_for(step.context, sizes.data(), bytes.data(), error, sizeof error);
    });
    if (!reason.empty()) fail(what + ": " + reason);
    for (std::size_t i = 0; i < planes.size(); ++i)
        if (bytes[i] > planes[i].bytes)
            fail(what + ": " + plane_label(step, planes[i]) + " needs " + std::to_string(bytes[i]) +
                 " bytes, and said " + std::to_string(planes[i].bytes) + " at most");
    return bytes;
}

void check_plane_count(const vtensor_step &step, std::size_t given) {
    const std::size_t planes = planes_of(step).size();
    if (given == planes) return;
    const bool several = planes != step.slot_count;
    fail("the step has " + std::to_string(step.slot_count) + " slots" +
         (several ? " with " + std::to_string(planes) + " planes in all, " : ", ") +
         std::to_string(given) + " buffers were given");
}

void check_size_count(const vtensor_step &step, std::size_t given) {
    if (given != step.size_count)
        fail("the step takes " + std::to_string(step.size_count) + " sizes, " +
             std::to_string(given) + " were given");
}

void check_alignment(const vtensor_step &step, const Plane &plane, std::uintptr_t offset) {
    const std::uint32_t alignment = step.slots[plane.slot].alignment;
    if (offset % alignment != 0)
        fail(plane_label(step, plane) + " must start at a multiple of " +
             std::to_string(alignment) + " bytes");
}

void check_scratch(const vtensor_step &step, std::span<const Place> places,
                   std::span<const std::size_t> bytes) {
    const std::vector<Plane> planes = planes_of(step);
    for (std::size_t scratch = 0; scratch < places.size(); ++scratch) {
        if (step.slots[planes[scratch].slot].access != VTENSOR_SCRATCH) continue;
        for (std::size_t other = 0; other < places.size(); ++other)
            if (other != scratch &&
                overlap(places[scratch], bytes[scratch], places[other], bytes[other]))
                fail(plane_label(step, planes[scratch]) + " is scratch and overlaps " +
                     plane_label(step, planes[other]));
    }
}

void check_queue(const vtensor_step &step, const void *queue) {
    if (step.device != nullptr && queue == nullptr)
        fail(std::string(step.kernel) + " works in a queue of " + step.device +
             ", and none was given");
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

std::string plane_label(const vtensor_step &step, const Plane &plane) {
    const std::string label = slot_label(step, plane.slot);
    if (step.slots[plane.slot].planes == 1) return label;
    return label + ", plane " + std::to_string(plane.number);
}

void Runner::run(const vtensor_step &step, void *const *addresses, const std::int64_t *sizes) {
    told_.queue = step.device == nullptr ? nullptr : queue_;
    told_.sizes = step.size_count == 0 ? nullptr : sizes;
    const auto [reason, status] = failure(error_, sizeof error_, [&] {
        return step.run(step.context, addresses, &told_);
    });
    if (!reason.empty())
        throw StepFailed{std::string(step.kernel) + ": " + reason, status == VTENSOR_BAD_INPUT};
}

void run_once(const vtensor_step &step, const Given &given, int threads) {
    check_plane_count(step, given.memory.size());
    check_size_count(step, given.sizes.size());
    check_queue(step, given.queue);
    const std::vector<Plane> planes = planes_of(step);
    const std::vector<std::size_t> bytes = bytes_for(step, given.sizes);
    std::vector<Place> places;
    std::vector<void *> addresses;
    for (std::size_t i = 0; i < planes.size(); ++i) {
        const Memory &memory = given.memory[i];
        if (memory.bytes < bytes[i])
            fail(plane_label(step, planes[i]) + " needs " + std::to_string(bytes[i]) +
                 " bytes, its buffer has " + std::to_string(memory.bytes));
        places.push_back(absolute(memory.address));
        addresses.push_back(memory.address);
        if (bytes[i] != 0) check_alignment(step, planes[i], places[i].offset);
    }
    check_scratch(step, places, bytes);
    const ThreadScope scope(threads);
    Runner(given.queue).run(step, addresses.data(), given.sizes.data());
}

}  // namespace vtensor::replay
