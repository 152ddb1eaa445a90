// native/onednn/apart.h: convolutions whose code oneDNN never frees, and their replacements.
//
// oneDNN 3.2 keeps each different code of a batch-reduced matrix product, of which convolutions
// consist, until the process ends: about 20 to 80 KB per convolution. A function of one element
// makes each code different, since the code contains the address of the function's table; so do the
// mask of a partial block of channels, which only AVX2 keeps in a table, and the scale of a sum.
// Operands make no difference. For a mask or a scale, oneDNN's next kernel runs, unless that is
// reference code. A process compiles a limited number of convolutions with functions. Later ones
// compute the function in a kernel of its own, on dst in place: by the same instructions on the
// same f32 numbers, so that bits do not depend on what a process has compiled before.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "primitive.h"

namespace vtensor::onednn {

// Returns whether oneDNN keeps the primitive's code after the primitive is destroyed.
bool would_keep_code(const Primitive &primitive);

// Returns whether oneDNN would keep the code also without fused functions.
bool would_keep_code_without_functions(const Primitive &primitive);

// Counts one more convolution with such code; returns false if the process' limit is reached.
bool take_place();

// Undoes take_place(): the code was not compiled.
void give_place_back();

// Sets the limit; the count stays.
void set_kept_code_limit(std::size_t limit);

struct Apart {
    // The primitive with the post-ops before its first function of one element, on the same kernel.
    std::shared_ptr<Primitive> head;
    // The names of all kernels, joined by "+".
    std::string kernel;
    // The arguments of the whole primitive; index kNoArgument marks those that the head lacks.
    std::vector<Argument> arguments;
    Afterwards functions;
};

// Splits a primitive. Returns nothing if the head's code is kept as well, if dst is not f32, if a
// sum comes after a function, or if oneDNN has only a reference kernel for one of the functions.
std::optional<Apart> set_apart(const Primitive &whole);

// Returns a function that runs the first, then the second, which may be empty.
Afterwards both(Afterwards first, Afterwards second);

}  // namespace vtensor::onednn
