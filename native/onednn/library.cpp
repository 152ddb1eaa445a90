// native/onednn/library.cpp: the loaded oneDNN: its version, file and instruction set.
#include "library.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "vtensor/forks.h"

namespace vtensor::onednn {

namespace {

constexpr std::array<std::pair<const char *, dnnl_cpu_isa_t>, 12> kIsas{{
    {"sse41", dnnl_cpu_isa_sse41},
    {"avx", dnnl_cpu_isa_avx},
    {"avx2", dnnl_cpu_isa_avx2},
    {"avx2_vnni", dnnl_cpu_isa_avx2_vnni},
    {"avx2_vnni_2", dnnl_cpu_isa_avx2_vnni_2},
    {"avx512", dnnl_cpu_isa_avx512_core},
    {"avx512_vnni", dnnl_cpu_isa_avx512_core_vnni},
    {"avx512_bf16", dnnl_cpu_isa_avx512_core_bf16},
    {"avx512_fp16", dnnl_cpu_isa_avx512_core_fp16},
    {"amx", dnnl_cpu_isa_avx512_core_amx},
    {"amx_fp16", dnnl_cpu_isa_avx512_core_amx_fp16},
    {"max", dnnl_cpu_isa_default},
}};

dnnl_cpu_isa_t isa_value(const std::string &wanted) {
    std::string known;
    for (const auto &[name, value] : kIsas) {
        if (wanted == name) return value;
        known += (known.empty() ? "" : ", ") + std::string(name);
    }
    throw std::invalid_argument("unknown instruction set '" + wanted + "'; one of " + known);
}

}  // namespace

std::string isa() {
    const dnnl_cpu_isa_t effective = dnnl_get_effective_cpu_isa();
    for (const auto &[name, value] : kIsas) {
        if (value == effective && value != dnnl_cpu_isa_default) return name;
    }
    return "none";  // below sse41 all kernels are reference code
}

void limit_isa(const std::string &name) {
    const Unforked whole;
    static std::mutex guard;
    static std::optional<dnnl_cpu_isa_t> accepted;
    const dnnl_cpu_isa_t value = isa_value(name);
    const std::scoped_lock lock(guard);
    if (accepted == value) return;
    if (dnnl_set_max_cpu_isa(value) == dnnl_success) {
        accepted = value;
    } else if (const std::string fixed = isa(); fixed != name) {
        throw std::runtime_error("limit_isa(" + name + "): this process already uses " + fixed +
                                 "; oneDNN takes a limit only before its first use");
    }
}

std::string version() {
    const dnnl_version_t *loaded = dnnl_version();
    return std::to_string(loaded->major) + '.' + std::to_string(loaded->minor) + '.' +
           std::to_string(loaded->patch);
}

std::string library_path() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void *>(&dnnl_version), &info) == 0 || info.dli_fname == nullptr)
        throw std::runtime_error("the loader does not know where oneDNN comes from");
    return info.dli_fname;
}

}  // namespace vtensor::onednn
