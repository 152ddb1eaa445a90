// native/replay/aside.h: work that a thread of its own does while its maker goes on. No Python in
// here.
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

// Bytes of a file cannot be read; `code` is the system's, 0 where the file ends before them.
struct Unread : std::runtime_error {
    explicit Unread(int code);
    int code;
};

// Rows of bytes in a file, as far apart as `step` says.
struct Rows {
    off_t offset;
    std::size_t count, bytes, step;
};

// Such rows of a file, which stays open as long.
struct Stretch {
    int descriptor;
    Rows rows;

    std::size_t bytes() const { return rows.count * rows.bytes; }
    // Throws Unread.
    void read(std::byte *into) const;

private:
    void read_row(off_t offset, std::byte *into) const;
};

// What f32 numbers are multiplied by, in f64: one after the other, each for so many of them.
struct Scale {
    std::vector<double> factors;
    std::size_t each;

    void apply(std::byte *numbers, std::size_t bytes) const;
};

// Memory that grows to what is asked for, and is used again.
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

// A step, and memory for each of its planes; that without an address is what is read of a file.
struct Piece {
    const vtensor_step *step;
    std::vector<Memory> memory;
};

// Reading, and steps, one after the other.
struct Work {
    std::optional<Stretch> source;
    std::optional<Scale> scale;
    std::byte *into = nullptr;  // what is read; null: scratch
    std::vector<Piece> pieces;
    Memory factor{nullptr, 0};  // loses its subnormals in the end
    bool lost = false;          // it had some
    bool over = false;          // done, or failed; the guard's
    std::exception_ptr failure;

    void run(Scratch &scratch);
};

// Bytes of pages that are brought ahead for sessions that have not run yet.
constexpr std::size_t kMostBrought = std::size_t{512} << 20;

// A thread, and works that wait for it, none for another one.
class Aside {
public:
    Aside();
    // What has not begun never does.
    ~Aside();
    Aside(const Aside &) = delete;
    Aside &operator=(const Aside &) = delete;

    // Works, and pages to bring, stay where they are until they are over, or this is gone. Where no
    // thread is to be had, works are left to whoever waits.
    void add(Work &work);
    // Touches these pages, which the system clears then, as long as nothing else is to be done. All
    // objects of the process together bring at most kMostBrought bytes until pages are left: what
    // is beyond that is not touched.
    void bring(const Memory &pages);
    // No page is brought any more when this returns.
    void leave_pages();
    // Does works meanwhile.
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
    std::size_t left_ = 0;     // works that are not over
    Memory pages_{nullptr, 0};
    std::size_t share_ = 0;    // of kMostBrought
    bool brings_ = false;      // the thread is at it
    bool ends_ = false;
    const std::size_t page_;
    std::thread thread_;
};

}  // namespace vtensor::replay
