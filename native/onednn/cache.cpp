// native/onednn/cache.cpp: the process' cache of primitives.
#include "cache.h"

#include <omp.h>

#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <variant>

#include "check.h"
#include "vtensor/forks.h"

namespace vtensor::onednn {

namespace {

using Kernels = std::deque<std::shared_ptr<Primitive>>;  // the most recently used first

// A thread that plans makes many more kernels than the plan uses; it holds the latest of them, up
// to this multiple of the cache's capacity.
constexpr std::size_t kLookedAt = 4;

// Kernels that a thread has made since its last cache_let_go: its current plan may use them.
struct LookedAt {
    Kernels kernels;
    ~LookedAt() {
        const Unforked whole;
        kernels.clear();
    }
};
thread_local LookedAt looked_at;

class Cache {
public:
    std::shared_ptr<Primitive> find(const std::string &key) {
        std::shared_ptr<Primitive> found;
        LastUsed dropped;  // destroyed after the lock is released
        const std::scoped_lock lock(guard_);
        const auto place = places_.find(key);
        if (place != places_.end()) found = place->second.primitive.lock();
        if (found == nullptr) {
            ++misses_;
            return nullptr;
        }
        ++hits_;
        use(place->second, found, dropped);
        return found;
    }

    // Returns the cached entry for a key: `made`, unless another thread has added one before.
    std::shared_ptr<Primitive> keep(const std::string &key, std::shared_ptr<Primitive> made) {
        LastUsed dropped;
        const std::scoped_lock lock(guard_);
        Place &place = places_[key];
        if (auto earlier = place.primitive.lock()) return earlier;
        place.primitive = made;
        use(place, made, dropped);
        if (places_.size() >= sweep_at_) sweep();
        return made;
    }

    void keep_for_good(std::shared_ptr<Primitive> primitive) {
        const std::scoped_lock lock(guard_);
        kept_for_good_.push_back(std::move(primitive));
    }

    CacheInfo info() {
        const std::scoped_lock lock(guard_);
        return {hits_, misses_, last_used_.size(), capacity_};
    }

    std::size_t capacity() {
        const std::scoped_lock lock(guard_);
        return capacity_;
    }

    void clear() {
        LastUsed dropped;
        Kernels kept;
        const std::scoped_lock lock(guard_);
        places_.clear();
        dropped.swap(last_used_);
        kept.swap(kept_for_good_);
        hits_ = misses_ = 0;
    }

    void resize(std::size_t capacity) {
        LastUsed dropped;
        const std::scoped_lock lock(guard_);
        capacity_ = capacity;
        shrink(dropped);
    }

private:
    struct Place;
    struct Used {
        std::shared_ptr<Primitive> primitive;
        Place *place;
    };
    using LastUsed = std::list<Used>;  // the most recently used first
    struct Place {
        std::weak_ptr<Primitive> primitive;  // expires with its last holder
        std::optional<LastUsed::iterator> used;
    };

    void use(Place &place, const std::shared_ptr<Primitive> &primitive, LastUsed &dropped) {
        if (place.used) {
            last_used_.splice(last_used_.begin(), last_used_, *place.used);
            return;
        }
        last_used_.push_front({primitive, &place});
        place.used = last_used_.begin();
        shrink(dropped);
    }

    void shrink(LastUsed &dropped) {
        while (last_used_.size() > capacity_) {
            const auto last = std::prev(last_used_.end());
            last->place->used.reset();
            dropped.splice(dropped.begin(), last_used_, last);
        }
    }

    // Removes entries of destroyed kernels; amortised over insertions.
    void sweep() {
        std::erase_if(places_, [](const auto &row) { return row.second.primitive.expired(); });
        sweep_at_ = 2 * places_.size() + 64;
    }

    std::mutex guard_;
    std::unordered_map<std::string, Place> places_;
    LastUsed last_used_;
    Kernels kept_for_good_;
    std::size_t hits_ = 0, misses_ = 0, capacity_ = 256, sweep_at_ = 64;
};

// Never destroyed: at the end of the process oneDNN may be unloaded first.
Cache &cache() {
    static Cache &only = *new Cache();
    return only;
}

std::string full_key(const Spec &spec, int rank, int threads) {
    return KeyWriter()
        .text(spec.kind)
        .text(spec.key)
        .text(spec.attr.key())
        .ints({rank, threads})
        .take();
}

}  // namespace

std::shared_ptr<Primitive> find_or_make(const Spec &spec, int rank, int threads) {
    const Unforked whole;  // oneDNN has locks, too
    const std::string key = full_key(spec, rank, threads);
    if (auto found = cache().find(key)) return found;
    auto made = Primitive::make(spec, rank, threads);
    if (made == nullptr) return nullptr;
    made = cache().keep(key, std::move(made));
    looked_at.kernels.push_front(made);
    if (looked_at.kernels.size() > kLookedAt * cache().capacity()) looked_at.kernels.pop_back();
    return made;
}

std::shared_ptr<Primitive> find_or_make(const Spec &spec) {
    for (const PostOp &op : spec.attr.post_ops()) {
        if (const auto *binary = std::get_if<BinaryPostOp>(&op))
            check_stretches(spec.kind, "a follower's src1", binary->src1.dims(), spec.dst_dims);
    }
    return find_or_make(spec, 0, omp_get_max_threads());
}

CacheInfo cache_info() {
    const Unforked whole;
    return cache().info();
}

void cache_let_go() {
    const Unforked whole;
    looked_at.kernels.clear();
}

void cache_keep_for_good(std::shared_ptr<Primitive> primitive) {
    cache().keep_for_good(std::move(primitive));
}

void cache_clear() {
    const Unforked whole;
    looked_at.kernels.clear();
    cache().clear();
}

void set_cache_capacity(std::size_t capacity) {
    const Unforked whole;
    cache().resize(capacity);
    while (looked_at.kernels.size() > kLookedAt * capacity) looked_at.kernels.pop_back();
}

}  // namespace vtensor::onednn
