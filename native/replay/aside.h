// native/replay/aside.h: a worker thread that reads, packs and compiles while its owner goes on. No
// Python in here.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runner.h"

namespace vtensor::replay {

// A read of a file failed; `code` is the system's error, 0 if the file ends too early.
struct Unread : std::runtime_error {
    explicit Unread(int code);
    int code;
};

// Rows of bytes in a file: offset of the first, their number, bytes of each, and the distance
// (`step`) between their beginnings.
struct Rows {
    off_t offset;
    std::size_t count, bytes, step;
};

// Rows of an open file, which the owner keeps open.
struct Stretch {
    int descriptor;
    Rows rows;

    std::size_t bytes() const { return rows.count * rows.bytes; }
    // Reads all rows, one after another, into contiguous memory. Throws Unread.
    void read(std::byte *into) const;

private:
    void read_row(off_t offset, std::byte *into) const;
};

// Factors for f32 numbers, applied in f64: each factor holds for `each` numbers, and the list
// repeats.
struct Scale {
    std::vector<double> factors;
    std::size_t each;

    void apply(std::byte *numbers, std::size_t bytes) const;
};

// Memory that grows on demand and is reused.
class Scratch {
public:
    Scratch() = default;
    ~Scratch();
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    std::byte *room(std::size_t bytes);

private:
    std::byte *memory_ = nullptr;
    std::size_t bytes_ = 0;
};

// A step, and memory for each of its planes; a null address stands for the bytes that were read.
struct Piece {
    const vtensor_step *step;
    std::vector<Memory> memory;
};

// A work item: read rows of a file, scale them, then run steps.
struct Work {
    std::optional<Stretch> source;
    std::optional<Scale> scale;
    std::byte *into = nullptr;  // where the bytes go; null: scratch
    std::vector<Piece> pieces;
    Memory factor{nullptr, 0};  // memory whose subnormals are cleared last
    bool lost = false;          // whether it had subnormals
    bool over = false;          // done or failed; under the guard
    std::exception_ptr failure;

    void run(Scratch &scratch);
};

// Most bytes of pages that are touched ahead for sessions that have not run yet, per process.
constexpr std::size_t kMostBrought = std::size_t{512} << 20;

// A worker thread with a queue of independent work items.
class Aside {
public:
    Aside();
    // Drops items that have not begun.
    ~Aside();
    Aside(const Aside &) = delete;
    Aside &operator=(const Aside &) = delete;

    // Queues an item, which must live until it is over or this object is destroyed. If no thread
    // can be started, `wait_until_left` runs the items.
    void add(Work &work);
    // Touches these pages while the queue is empty, so that the system clears them. All objects of
    // the process together touch at most kMostBrought bytes until leave_pages(); pages beyond that
    // are not touched.
    void bring(const Memory &pages);
    // Stops touching pages; none is touched after this returns.
    void leave_pages();
    // Runs queued items on the calling thread until at most `most` are unfinished.
    void wait_until_left(std::size_t most);
    bool is_over(const Work &work);

private:
    void start();
    void serve();
    void leave_share();
    bool work(std::unique_lock<std::mutex> &lock, Scratch &scratch);
    void bring_some(std::unique_lock<std::mutex> &lock);

    std::mutex guard_;
    std::condition_variable changed_;
    std::deque<Work *> waiting_;
    std::size_t left_ = 0;     // unfinished items
    Memory pages_{nullptr, 0};
    std::size_t share_ = 0;    // this object's part of kMostBrought
    bool brings_ = false;      // whether the thread is touching pages
    bool ends_ = false;
    const std::size_t page_;
    std::thread thread_;
};

}  // namespace vtensor::replay
