// native/onednn/handles.cpp: oneDNN's handles with owners, its statuses as exceptions, its engine.
#include "handles.h"

#include <oneapi/dnnl/dnnl_debug.h>
#include <omp.h>

#include <new>

namespace vtensor::onednn {

namespace {

struct ThreadStream {
    dnnl_stream_t handle = nullptr;
    ThreadStream() {
        check(dnnl_stream_create(&handle, engine(), dnnl_stream_default_flags), "making a stream");
    }
    ~ThreadStream() { dnnl_stream_destroy(handle); }
    ThreadStream(const ThreadStream &) = delete;
    ThreadStream &operator=(const ThreadStream &) = delete;
};

dnnl_engine_t make_engine() {
    // oneDNN's own cache of primitives keeps pointers into descriptors that are gone after a failed
    // compilation, and follows them when it makes room. Ours (cache.h) serves all calls.
    check(dnnl_set_primitive_cache_capacity(0), "switching oneDNN's cache off");
    dnnl_engine_t handle = nullptr;
    check(dnnl_engine_create(&handle, dnnl_cpu, 0), "making the CPU engine");
    return handle;
}

}  // namespace

void check(dnnl_status_t status, const std::string &what) {
    if (status == dnnl_success) return;
    switch (status) {
        case dnnl_unimplemented:
            throw Unimplemented(what + ": oneDNN has no implementation of it");
        case dnnl_invalid_arguments:
            throw std::invalid_argument(what + ": oneDNN refuses the arguments");
        case dnnl_out_of_memory: throw std::bad_alloc();
        default:
            throw std::runtime_error(what + ": oneDNN says " + dnnl_status2str(status));
    }
}

dnnl_engine_t engine() {
    static const dnnl_engine_t handle = make_engine();
    return handle;
}

dnnl_stream_t stream() {
    thread_local const ThreadStream local;
    return local.handle;
}

ThreadScope::ThreadScope(int threads)
    : before_(omp_get_max_threads()), changed_(threads != before_) {
    if (changed_) omp_set_num_threads(threads);
}

ThreadScope::~ThreadScope() {
    if (changed_) omp_set_num_threads(before_);
}

}  // namespace vtensor::onednn
