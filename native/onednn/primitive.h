// native/onednn/primitive.h: a primitive descriptor with names, compiled at first use.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "attr.h"
#include "desc.h"
#include "executable.h"
#include "handles.h"

namespace vtensor::onednn {

// Everything that determines a primitive, except the number of threads and the choice of kernel.
struct Spec {
    // The kind, such as "convolution"; error texts begin with it.
    std::string kind;
    // Numbers, algorithms and descriptors: two specs have one key if and only if their `create`
    // functions do the same.
    std::string key;
    Attr attr;
    // The arguments: inputs, then "dst".
    std::vector<Argument> arguments;
    // The sizes of dst, to check the attribute's operands against.
    Desc::Dims dst_dims;
    std::function<dnnl_status_t(dnnl_primitive_desc_t *, const_dnnl_primitive_attr_t)> create;
    Afterwards afterwards = {};
    // The name for kernels that oneDNN calls "ref", if they are no reference code.
    std::string reference = "ref";
};

// Builds Spec::key. Parts are separated, so that different lists of parts give different keys.
class KeyWriter {
public:
    KeyWriter &text(const std::string &value);
    KeyWriter &desc(const Desc *desc);
    KeyWriter &ints(const Desc::Dims &values);
    KeyWriter &number(double value);
    std::string take() { return std::move(key_); }

private:
    std::string key_;
};

// Returns the kernel's name in oneDNN's words.
std::string kernel_of(const_dnnl_primitive_desc_t pd);

class Primitive : public std::enable_shared_from_this<Primitive> {
public:
    // Returns the rank-th sound implementation that oneDNN offers for this many threads, with
    // faster kernels moved before those that they outrun; null after the last. Throws Unimplemented
    // if there is none at all.
    static std::shared_ptr<Primitive> make(const Spec &spec, int rank, int threads);
    ~Primitive();
    Primitive(const Primitive &) = delete;
    Primitive &operator=(const Primitive &) = delete;

    const std::string &kind() const { return spec_.kind; }
    const std::string &kernel() const { return kernel_; }
    std::size_t scratch_bytes() const { return scratch_bytes_; }
    int threads() const { return threads_; }
    const Spec &spec() const { return spec_; }
    const Attr &attr() const { return spec_.attr; }
    const_dnnl_primitive_desc_t pd() const { return pd_.get(); }
    // The arguments in the order of the step's slots, "scratch" last.
    const std::vector<Argument> &arguments() const { return arguments_; }
    const std::vector<Desc> &descs() const { return descs_; }
    std::shared_ptr<Primitive> next_kernel() const;

    // Returns the step, compiled at the first call; the caller becomes an owner.
    const vtensor_step *retained_step();

private:
    Primitive(const Spec &spec, int rank, int threads, PdHandle pd,
              std::vector<Constant> constants);
    void add_post_operands();
    void query_descs();
    Executable *compile();

    Spec spec_;
    int rank_;
    int threads_;
    PdHandle pd_;
    std::string kernel_;
    std::size_t scratch_bytes_ = 0;
    std::vector<Argument> arguments_;
    std::vector<Desc> descs_;
    std::vector<Constant> constants_;
    std::once_flag compiled_;
    Executable *executable_ = nullptr;
};

}  // namespace vtensor::onednn
