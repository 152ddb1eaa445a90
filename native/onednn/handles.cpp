// native/onednn/handles.cpp: owners of oneDNN's handles, its statuses as exceptions, its engine.
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

using StreamHandle = std::unique_ptr<dnnl_stream, Destroyer<dnnl_stream_destroy>>;

// Executes a copy of one number, without a team. oneDNN makes static objects at its first
// execution: a process that forks in the middle of that has a child in which they are never
// finished, and whose first run waits forever.
void execute_once(dnnl_engine_t engine) {
    const ThreadScope scope(1);
    const dnnl_dims_t dims = {1};
    dnnl_memory_desc_t desc = nullptr;
    check(dnnl_memory_desc_create_with_tag(&desc, 1, dims, dnnl_f32, dnnl_a), "describing");
    const MdHandle desc_owner(desc);
    dnnl_primitive_desc_t described = nullptr;
    check(dnnl_reorder_primitive_desc_create(&described, desc, engine, desc, engine, nullptr),
          "describing a copy");
    const PdHandle described_owner(described);
    dnnl_primitive_t copy = nullptr;
    check(dnnl_primitive_create(&copy, described), "making a copy");
    const PrimitiveHandle copy_owner(copy);
    dnnl_stream_t stream = nullptr;
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "making a stream");
    const StreamHandle stream_owner(stream);
    float from = 0, to = 0;
    dnnl_memory_t source = nullptr, target = nullptr;
    check(dnnl_memory_create(&source, desc, engine, &from), "naming memory");
    const MemoryHandle source_owner(source);
    check(dnnl_memory_create(&target, desc, engine, &to), "naming memory");
    const MemoryHandle target_owner(target);
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}};
    check(dnnl_primitive_execute(copy, stream, 2, arguments), "copying a number");
    check(dnnl_stream_wait(stream), "copying a number");
}

dnnl_engine_t make_engine() {
    // oneDNN's own cache of primitives keeps pointers into descriptors that are gone after a failed
    // compilation, and follows them on eviction. Ours (cache.h) serves all calls.
    check(dnnl_set_primitive_cache_capacity(0), "switching oneDNN's cache off");
    dnnl_engine_t handle = nullptr;
    check(dnnl_engine_create(&handle, dnnl_cpu, 0), "making the CPU engine");
    execute_once(handle);
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
