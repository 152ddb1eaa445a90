// native/onednn/cache.h: the process's primitives, each made once.
#pragma once

#include <cstddef>
#include <memory>

#include "primitive.h"

namespace vtensor::onednn {

struct CacheInfo {
    std::size_t hits, misses, size, capacity;
};

// Primitive::make, through the cache: equal requests give the same object as long as anything holds
// it. The cache itself holds the primitives that were used last, and for each thread those that it
// has made since its last cache_let_go. A null answer is not kept.
std::shared_ptr<Primitive> find_or_make(const Spec &spec, int rank, int threads);

// As above: the first implementation, for the calling thread's number of threads. Checks the
// attribute's operands against dst.
std::shared_ptr<Primitive> find_or_make(const Spec &spec);

CacheInfo cache_info();
// The calling thread has made its plan: the primitives that it made and did not take may go.
void cache_let_go();
// Holds a primitive whose code oneDNN never frees, for the next request for it.
void cache_keep_for_good(std::shared_ptr<Primitive> primitive);
// Forgets the primitives and the counts. Whoever holds a primitive keeps it.
void cache_clear();
// 0: keep nothing.
void set_cache_capacity(std::size_t capacity);

}  // namespace vtensor::onednn
