// native/replay/program.cpp: recorded steps on regions of memory: checked once, run in one loop.
#include "program.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "vtensor/float_flags.h"

namespace vtensor::replay {

namespace {

[[noreturn]] void fail(const std::string &message) { throw std::invalid_argument(message); }

std::size_t size_of(const Source &source) {
    if (const auto *constant = std::get_if<Memory>(&source)) return constant->bytes;
    if (const auto *arena = std::get_if<std::shared_ptr<Arena>>(&source)) return (*arena)->bytes();
    return std::get<std::size_t>(source);
}

constexpr std::uint32_t kEveryDoubt = VTENSOR_INVALID | VTENSOR_OVERFLOW;
// The most runs without doubts after a justified doubt: a network may raise exceptions in each run.
constexpr std::uint32_t kMostCareful = 1024;

std::string label(std::size_t region) { return "region " + std::to_string(region); }

std::int64_t now() {
    using std::chrono::nanoseconds;
    using std::chrono::steady_clock;
    return std::chrono::duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Program::Program(std::vector<Source> sources, std::vector<RecordedStep> steps,
                 std::size_t size_count, bool repeatable)
    : steps_(std::move(steps)), sizes_(size_count), repeatable_(repeatable) {
    for (Source &source : sources) {
        if (std::holds_alternative<std::size_t>(source)) bound_.push_back(regions_.size());
        const auto *arena = std::get_if<std::shared_ptr<Arena>>(&source);
        if (arena != nullptr && arena_ == nullptr) arena_ = arena->get();
        const std::size_t bytes = size_of(source);
        regions_.push_back({.source = std::move(source), .bytes = bytes, .needed = bytes});
    }
    by_base_.resize(regions_.size());
    std::iota(by_base_.begin(), by_base_.end(), 0);
    std::size_t planes = 0, sizes = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        try {
            take(steps_[i]);
        } catch (const std::invalid_argument &wrong) {
            fail("step " + std::to_string(i) + ": " + wrong.what());
        }
        planes += steps_[i].places.size();
        sizes += steps_[i].sizes.size();
    }
    table_.resize(planes);
    size_table_.resize(sizes);
    resized_ = sizes == 0;
}

void Program::take(const RecordedStep &step) {
    if (std::holds_alternative<Callback>(step.action)) {
        repeatable_ = false;  // Python sees each call
        if (!step.places.empty()) fail("what is called has no slots");
        if (!step.sizes.empty()) fail("what is called takes no sizes");
        return;
    }
    const vtensor_step &native = *std::get<OwnedStep>(step.action);
    check_plane_count(native, step.places.size());
    check_size_count(native, step.sizes.size());
    for (const std::size_t size : step.sizes)
        if (size >= sizes_.size())
            fail("it takes size " + std::to_string(size) + ", of " +
                 std::to_string(sizes_.size()));
    std::vector<std::size_t> bytes;
    for (const Plane &plane : planes_of(native)) {
        take_place(native, plane, step.places[bytes.size()]);
        bytes.push_back(plane.bytes);
    }
    check_scratch(native, step.places, bytes);
    if (native.device == nullptr) return;
    repeatable_ = false;  // a device's work is not done when the last step returns
    if (queued_ != nullptr && std::string_view(queued_->device) != native.device)
        fail(std::string("it is for ") + native.device + ", a step before it for " +
             queued_->device + ": a run has one queue");
    queued_ = &native;
}

void Program::take_place(const vtensor_step &step, const Plane &plane, const Place &place) {
    if (place.region >= regions_.size())
        fail(plane_label(step, plane) + " lies in " + label(place.region) + ", of " +
             std::to_string(regions_.size()));
    Region &region = regions_[place.region];
    if (place.offset > region.bytes || plane.bytes > region.bytes - place.offset)
        fail(plane_label(step, plane) + " needs " + std::to_string(plane.bytes) + " bytes at " +
             std::to_string(place.offset) + ", " + label(place.region) + " has " +
             std::to_string(region.bytes));
    if (plane.bytes == 0) return;
    const vtensor_slot &slot = step.slots[plane.slot];
    check_alignment(step, plane, place.offset);
    region.alignment = std::max(region.alignment, slot.alignment);
    if (step.size_count > 0)
        region.sized = true;
    else
        region.fixed = std::max(region.fixed, place.offset + plane.bytes);
    if (slot.access == VTENSOR_READ) return;
    if (std::holds_alternative<Memory>(region.source))
        fail(plane_label(step, plane) + " is written, and " + label(place.region) +
             " is a constant");
    region.written = true;
}

void Program::run(const Given &given, Stop &stop, std::int64_t *times) {
    const Turn turn = take_turn(running_, "the program is running: it cannot inside of itself");
    if (queued_ != nullptr) check_queue(*queued_, given.queue);
    resize(given.sizes);
    check_bindings(given.memory);
    std::vector<Lease> leases;
    for (const Region &region : regions_)
        if (const auto *arena = std::get_if<std::shared_ptr<Arena>>(&region.source))
            leases.push_back((*arena)->lease());
    settle(given.memory, leases);
    run_steps(given.queue, stop, times);
}

void Program::resize(std::span<const std::int64_t> sizes) {
    if (sizes.size() != sizes_.size())
        fail("a run is given " + std::to_string(sizes_.size()) + " sizes, not " +
             std::to_string(sizes.size()));
    if (resized_ && std::ranges::equal(sizes, sizes_)) return;
    resized_ = settled_ = false;
    std::ranges::copy(sizes, sizes_.begin());
    for (Region &region : regions_)
        if (region.sized) region.needed = region.fixed;
    std::size_t first = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        const std::span own(size_table_.data() + first, steps_[i].sizes.size());
        first += own.size();
        try {
            if (!own.empty()) resize(steps_[i], own);
        } catch (const std::invalid_argument &wrong) {
            fail("step " + std::to_string(i) + ": " + wrong.what());
        }
    }
    resized_ = true;
}

void Program::resize(const RecordedStep &step, std::span<std::int64_t> own) {
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = sizes_[step.sizes[i]];
    auto place = step.places.begin();
    for (const std::size_t bytes : bytes_for(*std::get<OwnedStep>(step.action), own)) {
        Region &region = regions_[place->region];
        if (bytes > 0) region.needed = std::max(region.needed, place->offset + bytes);
        ++place;
    }
}

void Program::check_bindings(std::span<const Memory> bindings) const {
    if (bindings.size() != bound_.size())
        fail("a run binds " + std::to_string(bound_.size()) + " regions, " +
             std::to_string(bindings.size()) + " buffers were given");
    for (std::size_t i = 0; i < bindings.size(); ++i) {
        const std::size_t needed = regions_[bound_[i]].needed;
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
        settled_ = false;  // before the base: a child forked in between settles again
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

void Program::check_bases() {
    for (std::size_t i = 0; i < regions_.size(); ++i) {
        const Region &region = regions_[i];
        if (reinterpret_cast<std::uintptr_t>(region.base) % region.alignment != 0)
            fail(label(i) + " must start at a multiple of " + std::to_string(region.alignment) +
                 " bytes");
    }
    const auto begin = [this](std::size_t i) {
        return reinterpret_cast<std::uintptr_t>(regions_[i].base);
    };
    const auto end = [&](std::size_t i) { return begin(i) + regions_[i].needed; };
    std::sort(by_base_.begin(), by_base_.end(),
              [&](std::size_t i, std::size_t j) { return begin(i) < begin(j); });
    // Of the regions so far, those that end last: among all, and among the written ones.
    std::optional<std::size_t> last, last_written;
    for (const std::size_t i : by_base_) {
        const Region &region = regions_[i];
        if (region.needed == 0) continue;
        const std::optional<std::size_t> &before = region.written ? last : last_written;
        if (before && end(*before) > begin(i)) {
            const bool first = region.written && (!regions_[*before].written || i < *before);
            fail(label(first ? i : *before) + " is written and overlaps " +
                 label(first ? *before : i));
        }
        if (!last || end(i) > end(*last)) last = i;
        if (region.written && (!last_written || end(i) > end(*last_written))) last_written = i;
    }
}

void Program::run_steps(void *queue, Stop &stop, std::int64_t *times) {
    Caution &caution = arena_ != nullptr ? arena_->caution() : caution_;
    // If doubts were justified in the arena before, a program's first run is made without, since a
    // caller may wait for it: it is not made twice.
    const bool tries = std::exchange(ran_, true) || caution.penalty == Caution().penalty;
    if (repeatable_ && tries && caution.runs == 0) {
        std::uint32_t doubt = 0;
        team_takes(kEveryDoubt);
        Runner runner(queue, &doubt);
        run_once(runner, stop, times);
        if (doubt == 0 || !team_takes(doubt)) return;
        caution.runs = caution.penalty;
        caution.penalty = std::min(2 * caution.penalty, kMostCareful);
    } else if (caution.runs > 0) {
        --caution.runs;
    }
    Runner runner(queue);
    run_once(runner, stop, times);
}

void Program::run_once(Runner &runner, Stop &stop, std::int64_t *times) const {
    void *const *addresses = table_.data();
    const std::int64_t *sizes = size_table_.data();
    std::size_t at = 0;
    try {
        for (; at < steps_.size(); ++at) {
            stop.check();
            const RecordedStep &step = steps_[at];
            if (times != nullptr) times[2 * at] = now();
            if (const auto *native = std::get_if<OwnedStep>(&step.action))
                runner.run(**native, addresses, sizes);
            else
                std::get<Callback>(step.action)();
            if (times != nullptr) times[2 * at + 1] = now();
            addresses += step.places.size();
            sizes += step.sizes.size();
        }
    } catch (StepFailed &failure) {
        failure.index = at;
        throw;
    }
}

}  // namespace vtensor::replay
