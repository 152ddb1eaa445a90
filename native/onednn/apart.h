// native/onednn/apart.h: convolutions whose code oneDNN keeps, and what runs in their place.
//
// oneDNN 3.2 keeps each different code of a product of blocks that convolutions are made of, until
// the process ends. A function of one element makes each code different, for the code has the
// address of the function's table in it; so do the mask of a block of channels that is not full,
// which only AVX2 has in a table, and a sum's scale. About 20 to 80 KB stay of every such
// convolution. (Operands make no difference.) For a mask or a scale oneDNN's next kernel runs,
// unless that is a reference. A process compiles a limited number of convolutions with functions.
// Later ones compute the function in a kernel of its own, on dst in place: the same instructions on
// the same f32 numbers, so that bits do not depend on what a process has compiled before.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "primitive.h"

namespace vtensor::onednn {

// Whether oneDNN keeps the primitive's code after the primitive is destroyed.
bool would_keep_code(const Primitive &primitive);

// Whether it does so whatever functions follow.
bool would_keep_code_without_functions(const Primitive &primitive);

// Take one of the process's places for such code; false if there are none left.
bool take_place();

// Give a place back: the code was not compiled.
void give_place_back();

// How many places there are from now on; how many are taken stays as it is.
void set_kept_code_limit(std::size_t limit);

struct Apart {
    // The primitive with what comes before its first function of one element; the same kernel.
    std::shared_ptr<Primitive> head;
    // The names of all kernels, joined by "+".
    std::string kernel;
    // The arguments of the whole primitive; those that the head lacks are kNoArgument.
    std::vector<Argument> arguments;
    Afterwards functions;
};

// Nothing if the head's code is kept as well, if dst is not f32, if a sum comes after a function,
// or if oneDNN has only a reference kernel for one of the functions.
std::optional<Apart> set_apart(const Primitive &whole);

// The first, then the second, which may be empty.
Afterwards both(Afterwards first, Afterwards second);

}  // namespace vtensor::onednn
