// native/onednn/cache.h: the process' cache of primitives.
#pragma once

#include <cstddef>
#include <memory>

#include "primitive.h"

namespace vtensor::onednn {

struct CacheInfo {
    std::size_t hits, misses, size, capacity;
};

// Returns Primitive::make through the cache: equal requests give the same object while anything
// holds it. The cache holds the primitives used last, and for each thread those that it has made
// since its last cache_let_go. Null results are not cached.
std::shared_ptr<Primitive> find_or_make(const Spec &spec, int rank, int threads);

// Returns the first implementation, for the calling thread's number of threads. Checks the
// attribute's operands against dst.
std::shared_ptr<Primitive> find_or_make(const Spec &spec);

CacheInfo cache_info();
// Releases the primitives that the calling thread made since its last call; those that its plan
// uses are held by the plan.
void cache_let_go();
// Holds a primitive whose code oneDNN never frees, for the next equal request.
void cache_keep_for_good(std::shared_ptr<Primitive> primitive);
// Forgets all primitives and counts. Holders of a primitive keep it.
void cache_clear();
// Sets the number of primitives that the cache holds; 0 for none.
void set_cache_capacity(std::size_t capacity);

}  // namespace vtensor::onednn
