// native/onednn/handles.h: owners of oneDNN's handles, its statuses as exceptions, its engine.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace vtensor::onednn {

// oneDNN has no kernel for the request.
class Unimplemented : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

template <auto Destroy>
struct Destroyer {
    template <typename T>
    void operator()(T *handle) const {
        Destroy(handle);
    }
};

using MdHandle = std::unique_ptr<dnnl_memory_desc, Destroyer<dnnl_memory_desc_destroy>>;
using AttrHandle = std::unique_ptr<dnnl_primitive_attr, Destroyer<dnnl_primitive_attr_destroy>>;
using PostOpsHandle = std::unique_ptr<dnnl_post_ops, Destroyer<dnnl_post_ops_destroy>>;
using PdHandle = std::unique_ptr<dnnl_primitive_desc, Destroyer<dnnl_primitive_desc_destroy>>;
using PrimitiveHandle = std::unique_ptr<dnnl_primitive, Destroyer<dnnl_primitive_destroy>>;
using MemoryHandle = std::unique_ptr<dnnl_memory, Destroyer<dnnl_memory_destroy>>;

// Returns if the status is success; else throws std::invalid_argument, Unimplemented,
// std::bad_alloc or std::runtime_error with `what` in the text.
void check(dnnl_status_t status, const std::string &what);

// Returns the process' one CPU engine, made at first use and never destroyed: primitives may
// outlive every static object.
dnnl_engine_t engine();

// Returns the calling thread's stream; execution on it is synchronous.
dnnl_stream_t stream();

// Sets the calling thread's number of OpenMP threads for a scope. oneDNN partitions work and sizes
// scratch by that number when it makes a primitive, and overruns the scratch if more threads run
// it.
class ThreadScope {
public:
    explicit ThreadScope(int threads);
    ~ThreadScope();
    ThreadScope(const ThreadScope &) = delete;
    ThreadScope &operator=(const ThreadScope &) = delete;

private:
    int before_;
    bool changed_;
};

}  // namespace vtensor::onednn
