// native/replay/arena.cpp: memory that programs share, in huge pages where there are some.
#include "arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "vtensor/forks.h"

namespace vtensor::replay {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

Pages::Pages(std::size_t bytes) {
    if (bytes == 0) return;
    if (bytes > PTRDIFF_MAX - kHugePage) throw std::bad_alloc();
    mapped_ = bytes + kHugePage;  // the rest before and after is never touched
    mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) throw std::bad_alloc();
    const auto first = reinterpret_cast<std::uintptr_t>(mapping_);
    memory_ = {static_cast<std::byte *>(mapping_) + (kHugePage - first % kHugePage) % kHugePage,
               bytes};
#ifdef MADV_HUGEPAGE
    // The kernel may refuse: small pages serve then. The last bytes do not fill a huge page.
    madvise(memory_.address, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
}

Pages::~Pages() {
    if (mapped_ != 0) munmap(mapping_, mapped_);
}

void Pages::take([[maybe_unused]] const Pages &other) {
#ifdef MREMAP_DONTUNMAP
    const std::size_t whole = other.memory_.bytes / kHugePage * kHugePage;
    if (whole == 0) return;
    // The other object's address range stays mapped, empty, until the other unmaps it.
    constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (mremap(other.memory_.address, whole, whole, kFlags, memory_.address) != MAP_FAILED) return;
    constexpr int kAnew = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;  // mremap may have unmapped it
    if (mmap(memory_.address, whole, PROT_READ | PROT_WRITE, kAnew, -1, 0) == MAP_FAILED)
        throw std::bad_alloc();
#endif
}

void Pages::bring([[maybe_unused]] std::size_t begin, [[maybe_unused]] std::size_t bytes) const {
#ifdef MADV_POPULATE_WRITE
    begin = begin / kHugePage * kHugePage;
    if (begin >= memory_.bytes) return;
    auto *const first = static_cast<std::byte *>(memory_.address) + begin;
    madvise(first, std::min(bytes, memory_.bytes - begin), MADV_POPULATE_WRITE);
#endif
}

void Pages::leave(std::size_t begin) const {
    begin = (begin + kHugePage - 1) / kHugePage * kHugePage;
    if (begin < memory_.bytes)
        madvise(static_cast<std::byte *>(memory_.address) + begin, memory_.bytes - begin,
                MADV_DONTNEED);
}

std::shared_ptr<const Pages> Arena::pages() const {
    const Unforked whole;
    const std::scoped_lock lock(guard_);
    return pages_;
}

void Arena::grow(std::size_t bytes) {
    const Unforked whole;
    const std::scoped_lock lock(guard_);
    if (bytes <= pages_->memory().bytes) return;
    auto grown = std::make_shared<Pages>(bytes);
    if (pages_.use_count() == 1) grown->take(*pages_);
    pages_ = std::move(grown);
}

Lease Arena::lease() {
    if (closed_) throw Stopped("the arena is closed");
    Turn turn = take_turn(leased_, "the arena is in use: a run has it to itself");
    return {pages(), std::move(turn)};
}

}  // namespace vtensor::replay
