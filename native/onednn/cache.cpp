// native/onednn/cache.cpp: the process's primitives, each made once.
#include "cache.h"

#include <omp.h>

#include <list>
#include <mutex>
#include <unordered_map>
#include <variant>

#include "check.h"
#include "vtensor/forks.h"

namespace vtensor::onednn {

namespace {

class Cache {
public:
    std::shared_ptr<Primitive> find(const std::string &key) {
        const std::scoped_lock lock(guard_);
        const auto found = places_.find(key);
        if (found == places_.end()) {
            ++misses_;
            return nullptr;
        }
        ++hits_;
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->primitive;
    }

    // The entry under this key, which is `made` unless another thread was faster.
    std::shared_ptr<Primitive> keep(const std::string &key, std::shared_ptr<Primitive> made) {
        Entries dropped;  // destroyed after the lock is gone
        const std::scoped_lock lock(guard_);
        const auto found = places_.find(key);
        if (found != places_.end()) return found->second->primitive;
        entries_.push_front({key, made});
        places_[key] = entries_.begin();
        shrink(dropped);
        return made;
    }

    CacheInfo info() {
        const std::scoped_lock lock(guard_);
        return {hits_, misses_, entries_.size(), capacity_};
    }

    std::size_t let_go(std::size_t but) {
        Entries dropped;
        const std::scoped_lock lock(guard_);  // who asks for an entry has it before this is free
        for (auto entry = entries_.begin(); entry != entries_.end();) {
            const auto next = std::next(entry);
            const bool held = entry->primitive.use_count() > 1 || entry->primitive->keeps_code();
            if (!held && but > 0) {
                --but;
            } else if (!held) {
                places_.erase(entry->key);
                dropped.splice(dropped.begin(), entries_, entry);
            }
            entry = next;
        }
        return dropped.size();
    }

    void clear() {
        Entries dropped;
        const std::scoped_lock lock(guard_);
        places_.clear();
        dropped.swap(entries_);
        hits_ = misses_ = 0;
    }

    void resize(std::size_t capacity) {
        Entries dropped;
        const std::scoped_lock lock(guard_);
        capacity_ = capacity;
        shrink(dropped);
    }

private:
    struct Entry {
        std::string key;
        std::shared_ptr<Primitive> primitive;
    };
    using Entries = std::list<Entry>;

    // An entry whose code oneDNN keeps stays for the next request for it; it counts as used.
    void shrink(Entries &dropped) {
        for (std::size_t left = entries_.size(); left > 0 && entries_.size() > capacity_; --left) {
            const auto last = std::prev(entries_.end());
            if (last->primitive->keeps_code()) {
                entries_.splice(entries_.begin(), entries_, last);
                continue;
            }
            places_.erase(last->key);
            dropped.splice(dropped.begin(), entries_, last);
        }
    }

    std::mutex guard_;
    Entries entries_;  // the most recently used first
    std::unordered_map<std::string, Entries::iterator> places_;
    std::size_t hits_ = 0, misses_ = 0, capacity_ = 1024;
};

// Never destroyed: at the end of the process oneDNN may be gone before it.
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
    const Unforked whole;  // oneDNN, too, has locks
    const std::string key = full_key(spec, rank, threads);
    if (auto found = cache().find(key)) return found;
    auto made = Primitive::make(spec, rank, threads);
    if (made == nullptr) return nullptr;
    return cache().keep(key, std::move(made));
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

std::size_t cache_let_go(std::size_t but) {
    const Unforked whole;
    return cache().let_go(but);
}

void cache_clear() {
    const Unforked whole;
    cache().clear();
}

void set_cache_capacity(std::size_t capacity) {
    const Unforked whole;
    cache().resize(capacity);
}

}  // namespace vtensor::onednn
