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
    nb::class_<Desc>(m, "Desc", nb::is_final(), R"(The layout of a tensor in memory, or "any".

Immutable, hashable. 1 to 12 dims of at least 0 elements each; a tensor with a dim of 0 has no
memory (nbytes is 0). Element types: f32, bf16, f16, s32, s8, u8.)")
        .def_static("any", &Desc::any, "dims"_a, "dtype"_a,
                    "Return sizes whose layout oneDNN chooses. ValueError: dims or dtype.")
        .def_static("tag", &Desc::tagged, "dims"_a, "dtype"_a, "tag"_a,
                    "Return the layout of a tag of tags(). ValueError: dims, dtype, tag, its rank.")
        .def_static("strided", &Desc::strided, "dims"_a, "dtype"_a, "strides"_a,
                    R"(Plain, with a stride for each dim in elements; 0 repeats one element.

ValueError: dims or dtype; a negative stride; elements that partly share memory.)")
        .def_prop_ro("dims", [](const Desc &d) { return ints(d.dims()); })
        .def_prop_ro("dtype", [](const Desc &d) { return name_of(d.type()); })
        .def_prop_ro("kind", [](const Desc &d) { return kind_name(d.kind()); },
                     "\"blocked\" (also if plain), \"any\", or \"opaque\": reorders only.")
        .def_prop_ro("strides", [](const Desc &d) { return ints(d.strides()); },
                     "Of each dim's outer (unsplit) part, in elements; () unless blocked.")
        .def_prop_ro("padded_dims", [](const Desc &d) { return ints(d.padded_dims()); })
        .def_prop_ro("padded_offsets", [](const Desc &d) { return ints(d.padded_offsets()); })
        .def_prop_ro("inner_blocks", &inner_blocks,
                     nb::sig("def inner_blocks(self) -> tuple[tuple[int, int], ...]"),
                     "(size, dim) of each block, the outermost first; () unless blocked.")
        .def_prop_ro("nbytes", &Desc::bytes,
                     R"(From the buffer's address to the end of the last element, in bytes.

Pads and offset0 are included, what a large stride leaves behind the last element is not;
0 for any.)")
        .def_prop_ro("offset0", &Desc::offset,
                     "Where the first element lies, in elements after the buffer's address.")
        .def("reshape", &Desc::reshape, "dims"_a,
             R"(Return the same memory with other dims of as many elements.

ValueError: another number of elements, or a form that cannot be seen so.)")
        .def("permute", &Desc::permute, "perm"_a,
             "Return the same memory, dims renumbered as by numpy.transpose. ValueError: no permutation.")
        .def("submemory", &Desc::submemory, "dims"_a, "offsets"_a,
             R"(Return a rectangular part of the same buffer (same address; offset0 grows).

Raises:
    ValueError: not inside, or not a blocked form.
    Unimplemented: the part cuts a block.)")
        .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
        .def("__hash__", &hash_key<Desc>)
        .def("__repr__", &Desc::text);
    m.def("tags", &tag_tuple, nb::sig("def tags() -> tuple[tuple[str, int], ...]"),
          "Return (name, rank) of every format tag, spelled canonically: (\"aBcd16b\", 4).");
}

void bind_attr(nb::module_ &m) {
    nb::class_<Attr>(m, "Attr", nb::is_final(), R"(What follows a primitive, and its arithmetic.

Immutable, hashable; each method returns a longer chain (of at most 32 followers), applied in
order to the primitive's result.)")
        .def(nb::init<const std::string &>(), "fpmath"_a = "strict",
             R"(``fpmath``: what f32 may become: strict (itself), bf16, f16, tf32, any.)")
        .def("sum", &Attr::sum, "scale"_a = 1.0,
             "dst = result + scale * dst: the step then reads dst too. ValueError: scale.")
        .def("eltwise", &Attr::eltwise, "alg"_a, "alpha"_a = 0.0, "beta"_a = 0.0,
             "dst = alg(result), alg of eltwise_algs(). ValueError: alg, or a NaN.")
        .def("binary", &Attr::binary, "alg"_a, "src1"_a,
             R"(dst = alg(result, src1), alg of binary_algs() but no comparison, src1 stretched.

The follower at position n of the chain adds the argument "postn_src1".
ValueError: alg or src1.)")
        .def("bounds", &Attr::bounds, "high"_a,
             R"(dst = min(max(result, 0), high), and NaN of NaN; nothing can follow it.

ValueError: high is negative or NaN; the chain holds a sum.)")
        .def("gelu", &Attr::gelu,
             R"(dst = result * (1 + erf(result / sqrt(2))) / 2, of floats; nothing can follow it.

ValueError: the chain holds a sum.)")
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
