// native/replay/program.cpp: recorded steps on regions of memory: checked once, run in one loop.
#include "program.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

namespace vtensor::replay {

namespace {

[[noreturn]] void fail(const std::string &message) { throw std::invalid_argument(message); }

std::size_t size_of(const Source &source) {
    if (const auto *constant = std::get_if<Memory>(&source)) return constant->bytes;
    if (const auto *arena = std::get_if<std::shared_ptr<Arena>>(&source)) return (*arena)->bytes();
    return std::get<std::size_t>(source);
}

std::string label(std::size_t region) { return "region " + std::to_string(region); }

std::int64_t now() {
    using std::chrono::nanoseconds;
    using std::chrono::steady_clock;
    return std::chrono::duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Program::Program(std::vector<Source> sources, std::vector<RecordedStep> steps)
    : steps_(std::move(steps)) {
    for (Source &source : sources) {
        if (std::holds_alternative<std::size_t>(source)) bound_.push_back(regions_.size());
        const std::size_t bytes = size_of(source);
        regions_.push_back({std::move(source), bytes});
    }
    std::size_t slots = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        try {
            take(steps_[i]);
        } catch (const std::invalid_argument &wrong) {
            fail("step " + std::to_string(i) + ": " + wrong.what());
        }
        slots += steps_[i].places.size();
    }
    table_.resize(slots);
}

void Program::take(const RecordedStep &step) {
    if (std::holds_alternative<Callback>(step.action)) {
        if (!step.places.empty()) fail("what is called has no slots");
        return;
    }
    const vtensor_step &native = *std::get<OwnedStep>(step.action);
    check_slot_count(native, step.places.size());
    for (std::size_t slot = 0; slot < step.places.size(); ++slot)
        take_place(native, slot, step.places[slot]);
    check_scratch(native, step.places);
}

void Program::take_place(const vtensor_step &step, std::size_t slot, const Place &place) {
    if (place.region >= regions_.size())
        fail(slot_label(step, slot) + " lies in " + label(place.region) + ", of " +
             std::to_string(regions_.size()));
    Region &region = regions_[place.region];
    const vtensor_slot &wanted = step.slots[slot];
    if (place.offset > region.bytes || wanted.bytes > region.bytes - place.offset)
        fail(slot_label(step, slot) + " needs " + std::to_string(wanted.bytes) + " bytes at " +
             std::to_string(place.offset) + ", " + label(place.region) + " has " +
             std::to_string(region.bytes));
    if (wanted.bytes == 0) return;
    check_alignment(step, slot, place.offset);
    region.alignment = std::max(region.alignment, wanted.alignment);
    if (wanted.access == VTENSOR_READ) return;
    if (std::holds_alternative<Memory>(region.source))
        fail(slot_label(step, slot) + " is written, and " + label(place.region) +
             " is a constant");
    region.written = true;
}

void Program::run(std::span<const Memory> bindings, const std::atomic<bool> &stop,
                  std::int64_t *times) {
    check_bindings(bindings);
    const Turn turn = take_turn(running_, "the program is running: it cannot inside of itself");
    std::vector<Lease> leases;
    for (const Region &region : regions_)
        if (const auto *arena = std::get_if<std::shared_ptr<Arena>>(&region.source))
            leases.push_back((*arena)->lease());
    settle(bindings, leases);
    run_steps(stop, times);
}

void Program::check_bindings(std::span<const Memory> bindings) const {
    if (bindings.size() != bound_.size())
        fail("a run binds " + std::to_string(bound_.size()) + " regions, " +
             std::to_string(bindings.size()) + " buffers were given");
    for (std::size_t i = 0; i < bindings.size(); ++i) {
        const std::size_t needed = regions_[bound_[i]].bytes;
        if (bindings[i].bytes < needed)
            fail(label(bound_[i]) + " needs " + std::to_string(needed) + " bytes, its buffer has " +
                 std::to_string(bindings[i].bytes));
    }
}

void Program::settle(std::span<const Memory> bindings, std::span<const Lease> leases) {
    auto binding = bindings.begin();
    auto lease = leases.begin();
    for (Region &region : regions_) {
        void *base = nullptr;
        if (const auto *constant = std::get_if<Memory>(&region.source))
            base = constant->address;
        else if (std::holds_alternative<std::size_t>(region.source))
            base = (binding++)->address;
        else
            base = (lease++)->pages->memory().address;
        if (base == region.base) continue;
        settled_ = false;  // first: a fork may come between
        region.base = base;
    }
    if (settled_) return;
    check_bases();
    auto address = table_.begin();
    for (const RecordedStep &step : steps_)
        for (const Place &place : step.places)
            *address++ = static_cast<std::byte *>(regions_[place.region].base) + place.offset;
    settled_ = true;
}

void Program::check_bases() const {
    for (std::size_t i = 0; i < regions_.size(); ++i) {
        const Region &region = regions_[i];
        if (reinterpret_cast<std::uintptr_t>(region.base) % region.alignment != 0)
            fail(label(i) + " must start at a multiple of " + std::to_string(region.alignment) +
                 " bytes");
        if (!region.written) continue;
        for (std::size_t j = 0; j < regions_.size(); ++j)
            if (j != i && overlap(absolute(region.base), region.bytes, absolute(regions_[j].base),
                                  regions_[j].bytes))
                fail(label(i) + " is written and overlaps " + label(j));
    }
}

void Program::run_steps(const std::atomic<bool> &stop, std::int64_t *times) const {
    void *const *addresses = table_.data();
    std::size_t at = 0;
    try {
        for (; at < steps_.size(); ++at) {
            if (stop.load(std::memory_order_relaxed)) throw Stopped("the run was stopped");
            const RecordedStep &step = steps_[at];
            if (times != nullptr) times[2 * at] = now();
            if (const auto *native = std::get_if<OwnedStep>(&step.action))
                run_step(**native, addresses);
            else
                std::get<Callback>(step.action)();
            if (times != nullptr) times[2 * at + 1] = now();
            addresses += step.places.size();
        }
    } catch (StepFailed &failure) {
        failure.index = at;
        throw;
    }
}

}  // namespace vtensor::replay
