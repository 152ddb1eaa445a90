// native/replay/arena.h: memory that programs share, in huge pages where there are some. No Python
// in here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runner.h"
#include "turn.h"

namespace vtensor::replay {

// Anonymous pages that begin at a multiple of 2 MiB. Throws std::bad_alloc.
class Pages {
public:
    explicit Pages(std::size_t bytes);
    ~Pages();
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;

    Memory memory() const { return memory_; }
    // Moves another object's huge pages to the beginning of this one, if the system can: they need
    // not be cleared again. The other object, which is no larger, is not read afterwards.
    void take(const Pages &other);
    // Makes the system clear the pages of these bytes now, if it can; else the first access to each
    // page waits for that. Other threads may use the memory meanwhile.
    void bring(std::size_t begin, std::size_t bytes) const;
    // Returns the pages from a byte on to the system; their content becomes zeros.
    void leave(std::size_t begin) const;

private:
    void *mapping_ = nullptr;
    std::size_t mapped_ = 0;
    Memory memory_{};
};

// Pages that one run has to itself.
struct Lease {
    std::shared_ptr<const Pages> pages;
    Turn turn;
};

// How runs treat doubts (vtensor_run.doubt). A doubt is justified if a flag was raised: the run is
// repeated, and `penalty` runs after it are made without doubts; `runs` of these are left.
struct Caution {
    std::uint32_t runs = 0, penalty = 1;
};

// Memory of programs, which can grow. Growing replaces the pages; the old ones become part of the
// new, or live as long as a run holds them.
class Arena {
public:
    explicit Arena(std::size_t bytes) : pages_(std::make_shared<Pages>(bytes)) {}

    std::size_t bytes() const { return pages()->memory().bytes; }
    // Grows to at least this many bytes; contents are lost. Does nothing if it is as large already.
    void grow(std::size_t bytes);
    std::shared_ptr<const Pages> pages() const;
    // Returns the pages for one run. Throws Busy if another run has them, Stopped if the arena is
    // closed.
    Lease lease();
    // Refuses further leases; a run that holds one keeps it.
    void close() { closed_ = true; }
    // The caution of all programs that share the arena: those of one network have doubts together.
    // Only the holder of a lease uses it.
    Caution &caution() { return caution_; }

private:
    mutable std::mutex guard_;
    std::shared_ptr<const Pages> pages_;
    Holder leased_ = 0;
    Caution caution_;
    std::atomic<bool> closed_ = false;
};

}  // namespace vtensor::replay
