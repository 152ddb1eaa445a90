// native/onednn/cache.h: the process's primitives, each made once.
#pragma once

#include <cstddef>
#include <memory>

#include "primitive.h"

namespace vtensor::onednn {

struct CacheInfo {
    std::size_t hits, misses, size, capacity;
};

// Primitive::make, through the cache: equal requests give the same object while the cache holds it
// (the least recently used go first). A null answer is not kept.
std::shared_ptr<Primitive> find_or_make(const Spec &spec, int rank, int threads);

// As above: the first implementation, for the calling thread's number of threads. Checks the
// attribute's operands against dst.
std::shared_ptr<Primitive> find_or_make(const Spec &spec);

CacheInfo cache_info();
// Forgets the primitives that nobody else holds, but so many that were used last, and says how many
// it forgot.
std::size_t cache_let_go(std::size_t but);
// Forgets the primitives and the counts. Whoever holds a primitive keeps it.
void cache_clear();
// 0: keep nothing.
void set_cache_capacity(std::size_t capacity);

}  // namespace vtensor::onednn
