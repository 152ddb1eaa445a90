// native/eigen/pick.cpp: elements at positions known before a run, axis by axis: reversed slices,
// borders, tiles, nearest neighbours.
#include <algorithm>

#include "check.h"
#include "moves.h"
#include "parallel.h"
#include "elements.h"

namespace vtensor::eigen {

namespace {

// An axis of dst other than the last: the offset in src of each of its elements; negative: filled.
struct Outer {
    Index count, step;
    Ints offsets;  // empty if every element is `step` after the one before

    Index at(Index i) const { return offsets.empty() ? i * step : offsets[i]; }
};

// Merges an axis with the next one if both together read src at one stride; returns whether it did.
bool merge(std::vector<Run> &axis, const std::vector<Run> &behind) {
    if (behind.size() != 1 || behind[0].begin != 0) return false;
    const auto [count, begin, step] = behind[0];
    const auto fits = [&](const Run &run) {
        return run.begin < 0 || run.count == 1 || run.step == times(step, count);
    };
    if (!std::ranges::all_of(axis, fits)) return false;
    for (Run &run : axis) run = {times(run.count, count), run.begin, run.begin < 0 ? 0 : step};
    return true;
}

template <class Element>
class Pick final : public Step {
public:
    Pick(std::vector<std::vector<Run>> axes, Index src_elements, std::uint64_t bits)
        : Step("pick"), fill_(static_cast<Element>(bits)) {
        Index all = 1, last = 0;
        for (const auto &runs : axes) {
            Index count = 0, most = 0;
            for (const Run &run : runs) {
                count = plus(count, run.count);
                most = std::max(most, reached(run));
            }
            all = times(all, count);
            last = plus(last, most);
        }
        demand(src_elements >= 0, "a size is negative");
        demand(all == 0 || !reads(axes) || last < src_elements, "a place beyond src");
        add_slot("src", VTENSOR_READ, src_elements, sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, all, sizeof(Element));
        if (all == 0) return;
        for (std::size_t i = axes.size(); i-- > 1;)
            if (merge(axes[i - 1], axes[i])) axes.erase(axes.begin() + static_cast<Index>(i));
        if (axes.empty()) axes.push_back({{1, 0, 0}});
        row_ = axes.back();
        axes.pop_back();
        for (const Run &run : row_) width_ += run.count;
        add_table();
        for (const auto &runs : axes) add_outer(runs);
    }

private:
    // Returns the last position that a run reads; checks that it reads none before src.
    static Index reached(const Run &run) {
        demand(run.count >= 0, "a size is negative");
        demand(run.begin >= -1, "a place before src");
        if (run.begin < 0 || run.count == 0) return 0;
        const Index end = plus(run.begin, times(run.count - 1, run.step));
        demand(end >= 0, "a place before src");
        return std::max(run.begin, end);
    }

    // Returns whether anything of src is read: no axis is filled throughout.
    static bool reads(const std::vector<std::vector<Run>> &axes) {
        return std::ranges::all_of(axes, [](const std::vector<Run> &runs) {
            return std::ranges::any_of(
                runs, [](const Run &run) { return run.begin >= 0 && run.count > 0; });
        });
    }

    void add_outer(const std::vector<Run> &runs) {
        Outer axis{0, 0, {}};
        for (const Run &run : runs) axis.count += run.count;
        rows_ *= axis.count;
        if (runs.size() == 1 && runs[0].begin == 0) {
            axis.step = runs[0].step;
        } else {
            for (const Run &run : runs)
                for (Index i = 0; i < run.count; ++i)
                    axis.offsets.push_back(run.begin < 0 ? -1 : run.begin + i * run.step);
        }
        outer_.push_back(axis);
    }

    // Makes a table of all positions of a row, which is faster to follow than short runs.
    void add_table() {
        const auto fills = [](const Run &run) { return run.begin < 0; };
        if (static_cast<Index>(row_.size()) * 4 < width_ || std::ranges::any_of(row_, fills)) return;
        for (const Run &run : row_)
            for (Index i = 0; i < run.count; ++i) table_.push_back(run.begin + i * run.step);
    }

    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Element *>(slots[1]);
        if (width_ == 0) return;
        // If there are few rows, each is divided, too, if it is long.
        const Index parts = rows_ < 64 ? (width_ + kPart - 1) / kPart : 1;
        parallel(rows_ * parts, rows_ * width_, [&](Index begin, Index end) {
            Index before = -1;
            for (Index piece = begin; piece < end; ++piece) {
                const Index first = piece % parts * kPart;
                const Index stop = parts == 1 ? width_ : std::min(first + kPart, width_);
                const Index row = piece / parts, place = place_of(row);
                Element *to = dst + row * width_;
                if (place < 0)
                    std::fill(to + first, to + stop, fill_);
                else if (place == before && parts == 1)  // equal to the row before
                    std::copy_n(to - width_, width_, to);
                else
                    move_row(src + place, to, first, stop);
                before = place;
            }
        });
    }

    // Returns the offset in src of a row of dst; -1: it is filled.
    Index place_of(Index row) const {
        Index place = 0;
        for (std::size_t axis = outer_.size(); axis-- > 0; row /= outer_[axis].count) {
            const Index offset = outer_[axis].at(row % outer_[axis].count);
            if (offset < 0) return -1;
            place += offset;
        }
        return place;
    }

    // Copies the elements from `first` to `stop` of a row.
    void move_row(const Element *src, Element *dst, Index first, Index stop) const {
        if (!table_.empty()) {
            for (Index i = first; i < stop; ++i) dst[i] = src[table_[i]];
            return;
        }
        Index at = 0;
        for (const Run &run : row_) {
            const Index begin = std::max(at, first), end = std::min(at + run.count, stop);
            if (begin < end)
                move_run(run.begin < 0 ? nullptr : src + run.begin + (begin - at) * run.step,
                         run.step, dst + begin, end - begin);
            at += run.count;
        }
    }

    void move_run(const Element *src, Index step, Element *dst, Index count) const {
        if (src == nullptr) {
            std::fill_n(dst, count, fill_);
        } else if (step == 0) {
            std::fill_n(dst, count, *src);
        } else if (step == 1) {
            std::copy_n(src, count, dst);
        } else {
            for (Index i = 0; i < count; ++i) dst[i] = src[i * step];
        }
    }

    static constexpr Index kPart = 1 << 14;

    Element fill_;
    std::vector<Outer> outer_;
    std::vector<Run> row_;
    Ints table_;  // of the last axis; may be empty
    Index rows_ = 1, width_ = 0;
};

}  // namespace

Step *pick(const std::vector<std::vector<Run>> &axes, Index src_elements, std::uint64_t bits,
           Index item_bytes) {
    return with_bytes(item_bytes, [&]<class T>(Type<T>) -> Step * {
        return new Pick<T>(axes, src_elements, bits);
    });
}

}  // namespace vtensor::eigen
