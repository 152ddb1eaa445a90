// native/narrow/instructions.cpp: the kinds of instructions that the machine runs.
#include "instructions.h"

#if defined(__AVX512F__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace vtensor::narrow {

#if defined(__AVX512F__)

namespace {

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

}  // namespace

std::vector<std::string> instructions() {
    std::vector<std::string> kinds{"avx512"};
    if (!__builtin_cpu_supports("avx512vnni")) return kinds;
    kinds.emplace_back("vnni");
    static const bool amx = has_amx();
    if (amx) kinds.emplace_back("amx");
    return kinds;
}

#elif defined(__AVX2__)

std::vector<std::string> instructions() { return {"avx2"}; }

#else

std::vector<std::string> instructions() { return {"plain"}; }

#endif

}  // namespace vtensor::narrow
