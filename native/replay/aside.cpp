// native/replay/aside.cpp: a worker thread that reads, packs and compiles while its owner goes on.
#include "aside.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "subnormal.h"
#include "thread.h"

namespace vtensor::replay {

namespace {

// Bytes of pages that are touched at a time: the longest that a new item or leave_pages() waits.
constexpr std::size_t kAtOnce = std::size_t{2} << 20;

std::atomic<std::size_t> brought{0};

// Takes up to this many bytes of what is left of kMostBrought, and returns how many.
std::size_t take_share(std::size_t bytes) {
    // A forked child has no such thread and owes nothing of its parent's share.
    [[maybe_unused]] static const int registered =
        pthread_atfork(nullptr, nullptr, [] { brought = 0; });
    std::size_t before = brought.load(), share = 0;
    do share = std::min(bytes, kMostBrought - before);
    while (!brought.compare_exchange_weak(before, before + share));
    return share;
}

// Alignment of the widest vectors, in bytes.
constexpr std::size_t kAlignment = 64;

}  // namespace

Unread::Unread(int code)
    : std::runtime_error(code == 0 ? "the file ends before" : std::strerror(code)), code(code) {}

void Stretch::read(std::byte *into) const {
    for (std::size_t row = 0; row < rows.count; ++row)
        read_row(rows.offset + static_cast<off_t>(row * rows.step), into + row * rows.bytes);
}

void Stretch::read_row(off_t offset, std::byte *into) const {
    for (std::size_t done = 0; done < rows.bytes;) {
        const ssize_t more = pread(descriptor, into + done, rows.bytes - done,
                                   offset + static_cast<off_t>(done));
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) throw Unread(errno);
        if (more == 0) throw Unread(0);
        done += static_cast<std::size_t>(more);
    }
}

void Scale::apply(std::byte *numbers, std::size_t bytes) const {
    for (std::size_t at = 0; at < bytes;) {
        for (const double factor : factors) {
            for (std::size_t i = 0; i < each; ++i, at += sizeof(float)) {
                float number;
                std::memcpy(&number, numbers + at, sizeof number);
                number = static_cast<float>(static_cast<double>(number) * factor);
                std::memcpy(numbers + at, &number, sizeof number);
            }
        }
    }
}

Scratch::~Scratch() { std::free(memory_); }

std::byte *Scratch::room(std::size_t bytes) {
    if (bytes > bytes_) {
        std::free(std::exchange(memory_, nullptr));
        bytes_ = 0;
        if (bytes > PTRDIFF_MAX - kAlignment) throw std::bad_alloc();
        const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
        memory_ = static_cast<std::byte *>(std::aligned_alloc(kAlignment, whole));
        if (memory_ == nullptr) throw std::bad_alloc();
        bytes_ = whole;
    }
    return memory_;
}

void Work::run(Scratch &scratch) {
    const FloatScope plain;
    if (source) {
        std::byte *const read = into == nullptr ? scratch.room(source->bytes()) : into;
        source->read(read);
        if (scale) scale->apply(read, source->bytes());
        for (Piece &piece : pieces)
            for (Memory &memory : piece.memory)
                if (memory.address == nullptr) memory = {read, source->bytes()};
    }
    for (const Piece &piece : pieces) run_once(*piece.step, {piece.memory, {}, nullptr}, 1);
    if (factor.address != nullptr) lost = clear_subnormals(factor);
}

Aside::Aside() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {}

Aside::~Aside() {
    {
        const std::scoped_lock lock(guard_);
        ends_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    leave_share();
}

void Aside::start() {
    if (thread_.joinable()) return;
    try {
        thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error &) {  // wait_until_left runs the items
    }
}

void Aside::add(Work &work) {
    const std::scoped_lock lock(guard_);
    start();
    waiting_.push_back(&work);
    ++left_;
    changed_.notify_all();
}

void Aside::bring(const Memory &pages) {
    const std::scoped_lock lock(guard_);
    start();
    leave_share();
    share_ = take_share(pages.bytes);
    pages_ = {pages.address, share_};
    changed_.notify_all();
}

void Aside::leave_pages() {
    std::unique_lock lock(guard_);
    pages_ = {nullptr, 0};
    changed_.wait(lock, [this] { return !brings_; });
    leave_share();
}

void Aside::leave_share() { brought -= std::exchange(share_, 0); }

bool Aside::is_over(const Work &work) {
    const std::scoped_lock lock(guard_);
    return work.over;
}

void Aside::wait_until_left(std::size_t most) {
    Scratch scratch;
    std::unique_lock lock(guard_);
    while (left_ > most)
        if (!work(lock, scratch)) changed_.wait(lock);
}

bool Aside::work(std::unique_lock<std::mutex> &lock, Scratch &scratch) {
    if (waiting_.empty()) return false;
    Work &one = *waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    try {
        one.run(scratch);
    } catch (...) {
        one.failure = std::current_exception();
    }
    lock.lock();
    one.over = true;
    --left_;
    changed_.notify_all();
    return true;
}

void Aside::bring_some(std::unique_lock<std::mutex> &lock) {
    const Memory now{pages_.address, std::min(pages_.bytes, kAtOnce)};
    pages_ = {static_cast<std::byte *>(pages_.address) + now.bytes, pages_.bytes - now.bytes};
    brings_ = true;
    lock.unlock();
    // Page by page: madvise would keep all other threads from mapping memory meanwhile.
    auto *const first = static_cast<unsigned char *>(now.address);
    for (std::size_t at = 0; at < now.bytes; at += page_)
        __atomic_fetch_or(first + at, 0, __ATOMIC_RELAXED);
    lock.lock();
    brings_ = false;
    changed_.notify_all();
}

void Aside::serve() {
    pthread_setname_np(pthread_self(), "vtensor-aside");
    Scratch scratch;
    std::unique_lock lock(guard_);
    while (!ends_) {
        if (work(lock, scratch)) continue;
        if (pages_.bytes != 0)
            bring_some(lock);
        else
            changed_.wait(lock);
    }
}

}  // namespace vtensor::replay
