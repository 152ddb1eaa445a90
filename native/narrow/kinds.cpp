// native/narrow/kinds.cpp: the kinds of instructions that the machine runs.
#include "eigen/check.h"
#include "sums.h"

#if defined(__AVX512F__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace vtensor::narrow {

namespace {

#if defined(__AVX512F__)

// Returns whether the processor has AMX for bytes, and the system lets this process use it. Linux
// gives a process its tiles only after a request.
bool has_amx() {
    constexpr unsigned kTiles = 1U << 24, kBytes = 1U << 25;  // of leaf 7, in EDX
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    if ((d & kTiles) == 0 || (d & kBytes) == 0) return false;
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

std::vector<Kind> found() {
    std::vector<Kind> kinds{
        {"avx512", Form::words, kGroup, 1, multiply_words, nullptr, nullptr}};
    if (!__builtin_cpu_supports("avx512vnni")) return kinds;
    kinds.push_back({"vnni", Form::shifted, kGroup, 1, multiply_vnni, nullptr, nullptr});
    if (has_amx())
        kinds.push_back({"amx", Form::bytes, kUnit, kPanel, multiply_amx, begin_amx, end_amx});
    return kinds;
}

#elif defined(__AVX2__)

std::vector<Kind> found() {
    std::vector<Kind> kinds{{"avx2", Form::words, kGroup, 1, multiply_words, nullptr, nullptr}};
    if (__builtin_cpu_supports("avxvnni"))
        kinds.push_back({"avx_vnni", Form::shifted, kGroup, 1, multiply_vnni, nullptr, nullptr});
    return kinds;
}

#else

std::vector<Kind> found() {
    return {{"plain", Form::words, kGroup, 1, multiply_words, nullptr, nullptr}};
}

#endif

}  // namespace

const std::vector<Kind> &kinds() {
    static const std::vector<Kind> all = found();
    return all;
}

const Kind &kind_for(const std::string &name, Index rows) {
    constexpr Index kFew = 2;
    const std::vector<Kind> &all = kinds();
    for (std::size_t i = 0; i < all.size(); ++i)
        if (name == all[i].name)
            return i > 0 && all[i].rows > 1 && rows <= kFew ? all[i - 1] : all[i];
    eigen::refuse("no kernels with the instructions " + name + " here");
}

std::vector<std::string> instructions() {
    std::vector<std::string> names;
    for (const Kind &kind : kinds()) names.emplace_back(kind.name);
    return names;
}

}  // namespace vtensor::narrow
