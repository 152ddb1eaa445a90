"""Faults 83 to 90: the C++ of the runner, of Eigen, oneDNN and Winograd."""

from __future__ import annotations

AREA = "native"

ROWS = {
    (83, AREA, "native/replay/offsets.cpp"): (
        "Two pieces of memory overlap if the last step of one is the first step of the other.",
        "if (one.first > piece.last || one.last < piece.first) continue;",
        "if (one.first >= piece.last || one.last <= piece.first) continue;",
    ),
    (84, AREA, "native/replay/program.cpp"): (
        "Memory of a run with sizes may be smaller than steps without sizes need.",
        "if (region.sized) region.needed = region.fixed;",
        "if (region.sized) region.needed = 0;",
    ),
    (85, AREA, "native/eigen/pooling.cpp"): (
        "Of equal largest elements of a window, MaxPool gives the index of the last.",
        "const bool better = first || value > dst[c] ||",
        "const bool better = first || value >= dst[c] ||",
    ),
    (86, AREA, "native/onednn/desc.cpp"): (
        "A descriptor's dims are permuted by the inverse of a permutation.",
        "destination[source] = static_cast<int>(i);",
        "destination[i] = static_cast<int>(source);",
    ),
    (87, AREA, "native/eigen/extremes.cpp"): (
        "TopK takes 0 for larger than -0: equal elements do not keep their order.",
        "std::bit_cast<std::uint64_t>(value + 0.0);",
        "std::bit_cast<std::uint64_t>(value);",
    ),
    (88, AREA, "native/onednn/sound.cpp"): (
        "A binary kernel is accepted for an operand with pads and a result without.",
        "(padded(operand) || padded(dst)) && !same_form(operand, dst))",
        "padded(dst) && !same_form(operand, dst))",
    ),
    (89, AREA, "native/winograd/phases.h"): (
        "The first window of a strided Winograd filter counts as inside if half of it is outside.",
        "const Index begin = std::clamp<Index>((kStep - 1 - column) / kStep, 0, width);",
        "const Index begin = std::clamp<Index>(-column / kStep, 0, width);",
    ),
    (90, AREA, "native/eigen/indexed.h"): (
        "Indices are accepted although the last row of several indices lacks some.",
        "    const Index row = static_cast<Index>(places.axes.size());\n"
        "    const Index last = plus(reach(places.shape, places.strides), row - 1);\n",
        "    const Index last = reach(places.shape, places.strides);\n",
    ),
}
