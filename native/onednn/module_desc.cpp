// native/onednn/module_desc.cpp: Desc and Attr as Python sees them.
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "attr.h"
#include "desc.h"
#include "module.h"
#include "names.h"

using namespace nanobind::literals;

namespace vtensor::onednn {

namespace {

using IntTuple = nb::typed<nb::tuple, int, nb::ellipsis>;
using NameTuple = nb::typed<nb::tuple, nb::str, nb::ellipsis>;

template <typename Values>
nb::tuple as_tuple(const Values &values) {
    nb::list list;
    for (const auto &value : values) list.append(value);
    return nb::tuple(list);
}

IntTuple ints(const Desc::Dims &values) { return IntTuple(as_tuple(values)); }

NameTuple names(const Algorithms &table) {
    nb::list list;
    for (const auto &[name, value] : table) list.append(name);
    return NameTuple(nb::tuple(list));
}

const char *kind_name(Desc::Kind kind) {
    switch (kind) {
        case Desc::Kind::blocked: return "blocked";
        case Desc::Kind::any: return "any";
        default: return "opaque";
    }
}

nb::tuple inner_blocks(const Desc &desc) {
    nb::list list;
    for (const auto &[block, dim] : desc.blocks()) list.append(nb::make_tuple(block, dim));
    return nb::tuple(list);
}

nb::tuple tag_tuple() {
    nb::list list;
    for (const Tag &each : tags()) list.append(nb::make_tuple(each.name, each.rank));
    return nb::tuple(list);
}

template <typename T>
std::size_t hash_key(const T &value) {
    return std::hash<std::string>()(value.key());
}

void bind_desc(nb::module_ &m) {
    nb::class_<Desc>(m, "Desc", nb::is_final(), R"(A tensor's dims, element type and layout.

The layout may be open (kind "any"): oneDNN chooses it when it makes a primitive.

Immutable, hashable. 1 to 12 dims of at least 0 elements each; a tensor with a dim of 0
has no memory (nbytes is 0). Element types: f32, bf16, f16, s32, s8, u8.)")
        .def_static("any", &Desc::any, "dims"_a, "dtype"_a,
                    "Return a descriptor with an open layout. ValueError: invalid dims or dtype.")
        .def_static("tag", &Desc::tagged, "dims"_a, "dtype"_a, "tag"_a,
                    R"(Return a descriptor in the layout of a format tag, one of tags().

ValueError: invalid dims or dtype, an unknown tag, or a tag for another rank.)")
        .def_static("strided", &Desc::strided, "dims"_a, "dtype"_a, "strides"_a,
                    R"(Return a descriptor without blocks, with one stride per dim, in elements.

A stride of 0 repeats one element along its dim.

ValueError: invalid dims or dtype; a negative stride; elements that partly share memory.)")
        .def_prop_ro("dims", [](const Desc &d) { return ints(d.dims()); })
        .def_prop_ro("dtype", [](const Desc &d) { return name_of(d.type()); })
        .def_prop_ro("kind", [](const Desc &d) { return kind_name(d.kind()); },
                     R"(The kind of layout: "blocked", "any" (open) or "opaque".

A layout without blocks is "blocked", too. The details of an opaque layout are oneDNN's;
only weights and the operands of reorders may have one.)")
        .def_prop_ro("strides", [](const Desc &d) { return ints(d.strides()); },
                     R"(The stride of each dim, in elements; () unless the kind is "blocked".

Of a dim in blocks it is the stride from one block to the next.)")
        .def_prop_ro("padded_dims", [](const Desc &d) { return ints(d.padded_dims()); })
        .def_prop_ro("padded_offsets", [](const Desc &d) { return ints(d.padded_offsets()); })
        .def_prop_ro("inner_blocks", &inner_blocks,
                     nb::sig("def inner_blocks(self) -> tuple[tuple[int, int], ...]"),
                     R"(Each block, outermost first, as (elements, dim); () unless "blocked".)")
        .def_prop_ro("nbytes", &Desc::bytes,
                     R"(The bytes from the buffer's address to the end of the last element.

Pads and offset0 are included; a gap that a stride leaves after the last element is not.
0 if the layout is open.)")
        .def_prop_ro("offset0", &Desc::offset,
                     "The offset of the first element from the buffer's address, in elements.")
        .def("reshape", &Desc::reshape, "dims"_a,
             R"(Return a descriptor of the same memory with other dims of as many elements in all.

ValueError: another number of elements, or a layout in which the dims cannot be divided so.)")
        .def("permute", &Desc::permute, "perm"_a,
             R"(Return a descriptor of the same memory whose dim i is dim ``perm[i]`` of this one.

ValueError: ``perm`` is no permutation of the dims.)")
        .def("submemory", &Desc::submemory, "dims"_a, "offsets"_a,
             R"(Return a descriptor of a box: along each dim, ``dims`` elements from ``offsets`` on.

The buffer's address stays the same; offset0 grows.

Raises:
    ValueError: the box is not inside of the tensor, or the kind is not "blocked".
    Unimplemented: the box cuts a block.)")
        .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
        .def("__hash__", &hash_key<Desc>)
        .def("__repr__", &Desc::text);
    m.def("tags", &tag_tuple, nb::sig("def tags() -> tuple[tuple[str, int], ...]"),
          R"(Return (name, rank) of each format tag, such as ("aBcd16b", 4).

Aliases such as "nchw" are left out.)");
}

void bind_attr(nb::module_ &m) {
    nb::class_<Attr>(m, "Attr", nb::is_final(), R"(A primitive's followers and arithmetic mode.

Immutable, hashable. Followers are fused operators, at most 32, which apply in order to
the primitive's result. Each method returns a new Attr with one follower more, or raises
ValueError if nothing more can follow.)")
        .def(nb::init<const std::string &>(), "fpmath"_a = "strict",
             R"(Start without followers. ValueError: ``fpmath`` is unknown.

``fpmath``: the type that f32 operands may be converted to: "strict" (none), "bf16", "f16",
"tf32" or "any".)")
        .def("sum", &Attr::sum, "scale"_a = 1.0,
             "Append dst = result + scale * (former dst). ValueError: ``scale`` is not finite.")
        .def("eltwise", &Attr::eltwise, "alg"_a, "alpha"_a = 0.0, "beta"_a = 0.0,
             R"(Append dst = alg(result), where ``alg`` is one of eltwise_algs().

``alpha``, ``beta``: the parameters of ``alg``. ValueError: ``alg`` is unknown, or a number
is NaN.)")
        .def("binary", &Attr::binary, "alg"_a, "src1"_a,
             R"(Append dst = alg(result, src1), where src1 broadcasts to dst.

``alg``: one of binary_algs(), except comparisons. The follower at position n of the chain,
from 0 on, adds a slot "postn_src1" before dst.
ValueError: ``alg`` is unknown or a comparison, or ``src1`` is invalid.)")
        .def("bounds", &Attr::bounds, "high"_a,
             R"(Append dst = min(max(result, 0), high), which keeps NaN, as the last follower.

ValueError: ``high`` is negative or NaN, or sum() comes before.)")
        .def("gelu", &Attr::gelu,
             R"(Append dst = result * (1 + erf(result / sqrt(2))) / 2 as the last follower.

Only for a dst of floats. ValueError: sum() comes before.)")
        .def_prop_ro("fpmath", &Attr::fpmath)
        .def("__len__", [](const Attr &a) { return a.post_ops().size(); })
        .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
        .def("__hash__", &hash_key<Attr>)
        .def("__repr__", &Attr::text);
}

}  // namespace

void bind_values(nb::module_ &m) {
    bind_desc(m);
    bind_attr(m);
    m.def("eltwise_algs", [] { return names(eltwise_algorithms()); });
    m.def("binary_algs", [] { return names(binary_algorithms()); });
    m.def("reduction_algs", [] { return names(reduction_algorithms()); });
}

}  // namespace vtensor::onednn
