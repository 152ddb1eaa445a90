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
    // Put another's huge pages in the place of the first ones, where the system can do that: they
    // need not be cleared again. Nobody looks at the other, which is no larger, any more.
    void take(const Pages &other);
    // Have the system clear these bytes' pages now, where it can: whoever touches one first waits
    // for that. Others may use the memory meanwhile.
    void bring(std::size_t begin, std::size_t bytes) const;
    // Let the system have the pages from a byte on: what is there is zeros again.
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

// How many runs are made without doubts, and how many after the next doubt that was justified.
struct Caution {
    std::uint32_t runs = 0, penalty = 1;
};

// Pages that make way for more of them: the old ones are among these, or live as long as somebody
// else holds them.
class Arena {
public:
    explicit Arena(std::size_t bytes) : pages_(std::make_shared<Pages>(bytes)) {}

    std::size_t bytes() const { return pages()->memory().bytes; }
    // Nothing if there are as many bytes already; contents are not kept.
    void grow(std::size_t bytes);
    std::shared_ptr<const Pages> pages() const;
    // Throws Busy if another run has one, Stopped if it is closed.
    Lease lease();
    // No run has one any more, but the run that has one already.
    void close() { closed_ = true; }
    // Of all programs that share it: those of one network are in doubt alike. For whoever has it.
    Caution &caution() { return caution_; }

private:
    mutable std::mutex guard_;
    std::shared_ptr<const Pages> pages_;
    Holder leased_ = 0;
    Caution caution_;
    std::atomic<bool> closed_ = false;
};

}  // namespace vtensor::replay
