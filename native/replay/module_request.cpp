// native/replay/module_request.cpp: Request as Python sees it: a run on arrays of known types and
// shapes.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "module_team.h"

using namespace nb::literals;

namespace vtensor::replay {

namespace {

// Alignment of the memory of outputs, in bytes: a cache line, and the widest vector register.
constexpr std::size_t kAlignment = 64;

// An input: its name, and element type, shape and alignment that an array must have.
using Input = std::tuple<nb::str, nb::object, std::vector<Py_ssize_t>, std::size_t>;
// An input whose value decides sizes: its name, and element type, shape and bytes of the array.
using Known = std::tuple<nb::str, nb::object, std::vector<Py_ssize_t>, nb::bytes>;
// An output: its index among the outputs with memory of their own, and element type, shape and
// strides of the array.
using Output = std::tuple<std::size_t, nb::object, nb::tuple, nb::tuple>;

nb::object attribute(nb::handle object, const nb::object &name) {
    return nb::steal(PyObject_GetAttr(object.ptr(), name.ptr()));
}

class PyRequest {
public:
    PyRequest(nb::handle team, nb::handle program, nb::list names, bool every,
              std::vector<Input> inputs, const std::vector<std::size_t> &own,
              std::vector<Output> outputs, const GivenExponents &looked_for, nb::object ndarray,
              nb::object empty, nb::object uint8, std::vector<Known> known)
        : team_object_(nb::borrow(team)),
          program_object_(nb::borrow(program)),
          team_(nb::cast<PyTeam &>(team)),
          program_(nb::cast<PyProgram &>(program)),
          names_(std::move(names)),
          every_(every),
          inputs_(std::move(inputs)),
          outputs_(std::move(outputs)),
          exponents_(exponents_in(looked_for, inputs_.size() + own.size())),
          ndarray_(std::move(ndarray)),
          empty_(std::move(empty)),
          uint8_(std::move(uint8)),
          known_(std::move(known)) {
        if (program_.calls_python())
            throw nb::value_error("the program calls Python, which has one view of memory");
        if (program_.program().bound().size() != inputs_.size() + own.size())
            throw nb::value_error("there is not one buffer for each region that a run binds");
        for (const auto &[name, dtype, shape, alignment] : inputs_)
            if (alignment == 0) throw nb::value_error("an alignment is at least 1");
        for (const auto &[from, dtype, shape, strides] : outputs_)
            if (from >= own.size()) throw nb::value_error("an output is in no memory of a run's");
        for (const std::size_t bytes : own) {
            if (bytes > PY_SSIZE_T_MAX - kAlignment)
                throw nb::value_error("an output has more bytes than there are addresses");
            own_.emplace_back(bytes, nb::int_(bytes + kAlignment));
        }
    }

    // Returns the outputs; None if the slower path has to check the arrays, False if outputs are
    // not finite.
    nb::object run(nb::handle names, nb::handle arrays) {
        if (!asks(names) || Team::is_server() || !team_.is_of_this_process()) return nb::none();
        Bindings bound(program_.program(), inputs_.size() + own_.size());
        if (!takes(arrays, bound)) return nb::none();
        std::vector<nb::object> memory;
        memory.reserve(own_.size());
        for (const auto &[bytes, allocated] : own_) memory.push_back(made(bytes, allocated, bound));
        if (!team_.replay(program_, bound, exponents_, {bound.memory(), {}, nullptr}))
            return nb::bool_(false);
        nb::list found;
        for (const auto &[from, dtype, shape, strides] : outputs_) {
            const void *const begin = bound.memory()[inputs_.size() + from].address;
            const void *const all = bound.views()[inputs_.size() + from].buf;
            const nb::int_ offset(static_cast<const std::byte *>(begin) -
                                  static_cast<const std::byte *>(all));
            found.append(ndarray_(shape, dtype, memory[from], offset, strides));
        }
        return found;
    }

private:
    bool asks(nb::handle names) const {
        if (names.is_none()) return every_;
        if (!PyList_CheckExact(names.ptr())) return false;
        const int equal = PyObject_RichCompareBool(names.ptr(), names_.ptr(), Py_EQ);
        if (equal < 0) throw nb::python_error();
        return equal == 1;
    }

    bool takes(nb::handle arrays, Bindings &bound) const {
        return PyDict_CheckExact(arrays.ptr()) &&
               static_cast<std::size_t>(PyDict_GET_SIZE(arrays.ptr())) ==
                   inputs_.size() + known_.size() &&
               std::ranges::all_of(known_,
                                   [&](const Known &known) { return equals(known, arrays); }) &&
               std::ranges::all_of(
                   inputs_, [&](const Input &input) { return takes(input, arrays, bound); });
    }

    // Returns whether an array is dense and of this element type; `view` is then its memory.
    bool opens(const nb::str &name, const nb::object &dtype, nb::handle arrays, int flags,
               Py_buffer &view) const {
        const nb::object array = nb::borrow(PyDict_GetItemWithError(arrays.ptr(), name.ptr()));
        if (!array.is_valid() || !array.type().is(ndarray_)) {
            PyErr_Clear();
            return false;
        }
        const nb::object has = attribute(array, dtype_name_);
        if (!has.is_valid()) throw nb::python_error();
        if (!has.is(dtype) && !has.equal(dtype)) return false;
        if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_ND | flags) != 0) {
            PyErr_Clear();  // it is not dense
            return false;
        }
        return true;
    }

    bool equals(const Known &known, nb::handle arrays) const {
        const auto &[name, dtype, shape, bytes] = known;
        Py_buffer view;
        if (!opens(name, dtype, arrays, 0, view)) return false;
        const bool same = std::ranges::equal(std::span(view.shape, view.ndim), shape) &&
                          static_cast<std::size_t>(view.len) == bytes.size() &&
                          std::memcmp(view.buf, bytes.c_str(), bytes.size()) == 0;
        PyBuffer_Release(&view);
        return same;
    }

    bool takes(const Input &input, nb::handle arrays, Bindings &bound) const {
        const auto &[name, dtype, shape, alignment] = input;
        const std::size_t region = program_.program().bound()[bound.memory().size()];
        const bool writes = program_.program().is_written(region);
        Py_buffer view;
        if (!opens(name, dtype, arrays, writes ? PyBUF_WRITABLE : 0, view)) return false;
        bound.add(view, {view.buf, static_cast<std::size_t>(view.len)});
        return std::ranges::equal(std::span(view.shape, view.ndim), shape) &&
               reinterpret_cast<std::uintptr_t>(view.buf) % alignment == 0;
    }

    // Makes memory for an output.
    nb::object made(std::size_t bytes, const nb::int_ &allocated, Bindings &bound) const {
        nb::object memory = empty_(allocated, uint8_);
        Py_buffer view;
        if (PyObject_GetBuffer(memory.ptr(), &view, PyBUF_WRITABLE) != 0) throw nb::python_error();
        const std::size_t past = reinterpret_cast<std::uintptr_t>(view.buf) % kAlignment;
        auto *const begin = static_cast<std::byte *>(view.buf) + (past == 0 ? 0 : kAlignment - past);
        bound.add(view, {begin, bytes});
        return memory;
    }

    nb::object team_object_, program_object_;
    PyTeam &team_;
    PyProgram &program_;
    nb::list names_;
    bool every_;
    std::vector<Input> inputs_;
    std::vector<std::pair<std::size_t, nb::int_>> own_;
    std::vector<Output> outputs_;
    Exponents exponents_;
    nb::object ndarray_, empty_, uint8_;
    std::vector<Known> known_;
    nb::object dtype_name_ = nb::steal(PyUnicode_InternFromString("dtype"));
};

}  // namespace

void bind_request(nb::module_ &m) {
    nb::class_<PyRequest>(m, "Request", nb::is_final(),
                          R"(Runs of a program in one call, for inputs of known types and shapes.

Args:
    team: the team that runs the program.
    names: the names of the wanted outputs.
    every: whether these are all outputs of the network.
    inputs: for each input its name, and the array's element type, shape and alignment in
        bytes.
    own: the bytes of each memory that a run allocates for outputs.
    outputs: for each output the index of its memory in ``own``, and the array's element
        type, shape and strides in bytes.
    exponents: for each of ``inputs``, then of ``own``, as for ``Team.run``.
    ndarray, empty, uint8: NumPy's.
    known: for each input whose value decides sizes its name, and the array's element type,
        shape and bytes; these are no inputs of the program.

Raises:
    ValueError: the program calls Python; there is not one input, or memory, for each region
        that a run binds; an output is in none of them; a number is out of range.)")
        .def(nb::init<nb::handle, nb::handle, nb::list, bool, std::vector<Input>,
                      const std::vector<std::size_t> &, std::vector<Output>,
                      const GivenExponents &, nb::object, nb::object, nb::object,
                      std::vector<Known>>(),
             "team"_a, "program"_a, "names"_a, "every"_a, "inputs"_a, "own"_a, "outputs"_a,
             "exponents"_a, "ndarray"_a, "empty"_a, "uint8"_a, "known"_a = std::vector<Known>(),
             nb::sig("def __init__(self, team: Team, program: Program, names: list[str], "
                     "every: bool, inputs: collections.abc.Sequence[tuple[str, object, "
                     "collections.abc.Sequence[int], int]], "
                     "own: collections.abc.Sequence[int], "
                     "outputs: collections.abc.Sequence[tuple[int, object, tuple[int, ...], "
                     "tuple[int, ...]]], exponents: collections.abc.Sequence[tuple[int, int]], "
                     "ndarray: object, empty: object, uint8: object, "
                     "known: collections.abc.Sequence[tuple[str, object, "
                     "collections.abc.Sequence[int], bytes]] = ()) -> None"))
        .def("run", &PyRequest::run, "names"_a.none(), "arrays"_a.none(),
             nb::sig("def run(self, names: object, arrays: object) -> "
                     "list[typing.Any] | typing.Literal[False] | None"),
             R"(Run the program and return the outputs as new arrays.

Returns None, and runs nothing, if the general path has to decide: other outputs are wanted,
an array is no NumPy array of the known type, shape, alignment and value in C order, or the
calling thread is a team's. Returns False if numbers that must be finite are not.

Args:
    names: a list of the names of the wanted outputs, or None for all.
    arrays: a dict from the names of inputs to their arrays.

Raises:
    StepFailed, Stopped, Circular, RuntimeError: as ``Team.run``.
    ValueError: an array overlaps what the program writes.
    MemoryError: there is none for the outputs.)");
}

}  // namespace vtensor::replay
