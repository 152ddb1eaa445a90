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

// Everything that decides a primitive, threads and the choice of kernel aside.
struct Spec {
    // "convolution"; also in front of every message.
    std::string kind;
    // Numbers, algorithms and descriptors; equal exactly where `create` would do the same.
    std::string key;
    Attr attr;
    // Inputs, then "dst".
    std::vector<Argument> arguments;
    // The shape of dst, to hold the attribute's operands against it.
    Desc::Dims dst_dims;
    std::function<dnnl_status_t(dnnl_primitive_desc_t *, const_dnnl_primitive_attr_t)> create;
    Afterwards afterwards = {};
    // What oneDNN's "ref" is called here, where it is no reference code.
    std::string reference = "ref";
};

// Builds Spec::key; parts are separated, so that no two lists of parts give one key.
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

// What will run, in oneDNN's words.
std::string kernel_of(const_dnnl_primitive_desc_t pd);

class Primitive : public std::enable_shared_from_this<Primitive> {
public:
    // The rank-th sound implementation that oneDNN offers, for that many threads; one that the next
    // outruns comes behind it. Null where the list is over. Throws Unimplemented if it offers none
    // at all.
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
    // In the order of the step's slots, "scratch" last.
    const std::vector<Argument> &arguments() const { return arguments_; }
    const std::vector<Desc> &descs() const { return descs_; }
    std::shared_ptr<Primitive> next_kernel() const;

    // Compiles at the first call; the caller becomes an owner of the result.
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
