// native/replay/module_chain.cpp: Chain as Python sees it: requests one after the other, each
// chosen by values that earlier ones computed.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "module.h"

using namespace nb::literals;

namespace vtensor::replay {

namespace {

// Where a value comes from: the index of a link along the way, and of one of its outputs; link -1
// is the inputs of the chain.
using Source = std::pair<std::ptrdiff_t, std::size_t>;
// Values that decide what follows, each with whether its elements do, or its type and shape alone.
using Asked = std::vector<std::pair<Source, bool>>;

// Adds the element type and shape of an array to a key, and its bytes if `elements`. Returns false
// if it is no dense array of NumPy's.
bool add_key(std::string &key, nb::handle array, bool elements) {
    const nb::object dtype = nb::getattr(array, "dtype", nb::none());
    const nb::object number = nb::getattr(dtype, "num", nb::none());
    Py_buffer view;
    if (!PyLong_CheckExact(number.ptr())) return false;
    if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_ND) != 0) {
        PyErr_Clear();
        return false;
    }
    const auto put = [&key](Py_ssize_t number) {
        key.append(reinterpret_cast<const char *>(&number), sizeof number);
    };
    put(nb::cast<Py_ssize_t>(number));
    put(view.ndim);
    for (int axis = 0; axis < view.ndim; ++axis) put(view.shape[axis]);
    if (elements)
        key.append(static_cast<const char *>(view.buf), static_cast<std::size_t>(view.len));
    PyBuffer_Release(&view);
    return true;
}

class PyChain {
public:
    PyChain(std::vector<nb::str> inputs, nb::tuple failures)
        : inputs_(std::move(inputs)), failures_(std::move(failures)) {
        places_.push_back(std::make_unique<Place>());
    }
    PyChain(const PyChain &) = delete;
    PyChain &operator=(const PyChain &) = delete;

    std::size_t size() const { return places_.size() - 1; }

    std::size_t link(std::size_t after, const Asked &asked, const std::vector<nb::object> &seen,
                     nb::dict requests, nb::list names,
                     std::vector<std::pair<nb::str, Source>> feeds) {
        for (const auto &[name, source] : feeds) check(after, source);
        auto place = std::make_unique<Place>();
        place->requests = std::move(requests);
        place->names = std::move(names);
        place->feeds = std::move(feeds);
        return put(after, asked, seen, std::move(place));
    }

    void end(std::size_t after, const Asked &asked, const std::vector<nb::object> &seen,
             std::vector<std::pair<Source, bool>> outputs) {
        for (const auto &[source, copied] : outputs) check(after, source);
        auto place = std::make_unique<Place>();
        place->ends = true;
        place->outputs = std::move(outputs);
        put(after, asked, seen, std::move(place));
    }

    // Returns (links that have run, their outputs, the outputs of the chain or None).
    nb::tuple run(nb::dict arrays, nb::handle lane) const {
        nb::list links, values;
        std::vector<nb::object> given;
        given.reserve(inputs_.size());
        for (const nb::str &name : inputs_) {
            given.push_back(nb::borrow(PyDict_GetItemWithError(arrays.ptr(), name.ptr())));
            if (!given.back().is_valid()) {
                if (PyErr_Occurred() != nullptr) throw nb::python_error();
                return nb::make_tuple(links, values, nb::none());
            }
        }
        if (arrays.size() != inputs_.size()) return nb::make_tuple(links, values, nb::none());
        const auto value = [&](const Source &source) -> nb::object {
            const auto [link, index] = source;
            return link < 0 ? given[index] : nb::borrow(values[link][index]);
        };
        for (std::size_t at = 0;;) {
            std::string key;
            const Place &before = *places_[at];
            for (const auto &[source, elements] : before.asked)
                if (!add_key(key, value(source), elements))
                    return nb::make_tuple(links, values, nb::none());
            const auto found = before.next.find(key);
            if (found == before.next.end()) break;
            at = found->second;
            const Place &place = *places_[at];
            if (place.ends) {
                nb::list outputs;
                for (const auto &[source, copied] : place.outputs)
                    outputs.append(copied ? value(source).attr("copy")() : value(source));
                return nb::make_tuple(links, values, outputs);
            }
            nb::dict feed;
            for (const auto &[name, source] : place.feeds) feed[name] = value(source);
            const nb::object result = answer(place, feed, lane);
            if (!PyList_CheckExact(result.ptr()) || nb::len(result) != place.names.size()) break;
            links.append(at);
            values.append(result);
        }
        return nb::make_tuple(links, values, nb::none());
    }

private:
    // A link or an end, and what follows a link. Place 0 is the begin of the chain.
    struct Place {
        std::size_t before = 0;  // the place before it
        bool ends = false;
        nb::dict requests;  // of a link: what runs it, by lane
        nb::list names;
        std::vector<std::pair<nb::str, Source>> feeds;
        std::vector<std::pair<Source, bool>> outputs;  // of an end: with whether it is copied
        Asked asked;                                   // the values that choose the next place
        std::unordered_map<std::string, std::size_t> next;
    };

    // Throws ValueError unless a value exists after a link.
    void check(std::size_t after, const Source &source) const {
        if (after >= places_.size() || places_[after]->ends)
            throw nb::value_error("there is no such link");
        std::vector<const Place *> way;
        for (std::size_t at = after; at != 0; at = places_[at]->before)
            way.push_back(places_[at].get());
        const auto [link, index] = source;
        if (link < -1 || link >= static_cast<std::ptrdiff_t>(way.size()))
            throw nb::value_error("a value is of no link on the way");
        if (index >= (link < 0 ? inputs_.size() : way[way.size() - 1 - link]->names.size()))
            throw nb::value_error("a link has fewer values");
    }

    std::size_t put(std::size_t after, const Asked &asked, const std::vector<nb::object> &seen,
                    std::unique_ptr<Place> place) {
        if (after >= places_.size() || places_[after]->ends)
            throw nb::value_error("there is no such link");
        if (asked.size() != seen.size())
            throw nb::value_error("there is not one array for each value that is asked for");
        std::string key;
        for (std::size_t i = 0; i < asked.size(); ++i) {
            check(after, asked[i].first);
            if (!add_key(key, seen[i], asked[i].second))
                throw nb::value_error("a value is no dense array");
        }
        Place &before = *places_[after];
        if (before.asked != asked) before.next.clear();
        before.asked = asked;
        place->before = after;
        places_.push_back(std::move(place));
        before.next[key] = places_.size() - 1;
        return places_.size() - 1;
    }

    // Returns what the request of a link answers; None if there is none or it fails.
    nb::object answer(const Place &place, const nb::dict &feed, nb::handle lane) const {
        nb::object request =
            nb::borrow(PyDict_GetItemWithError(place.requests.ptr(), lane.ptr()));
        if (!request.is_valid()) {
            if (PyErr_Occurred() != nullptr) throw nb::python_error();
            return nb::none();
        }
        try {
            return request.attr(run_name_)(place.names, feed);
        } catch (nb::python_error &error) {
            if (!error.matches(failures_)) throw;
            return nb::none();
        }
    }

    std::vector<nb::str> inputs_;
    nb::tuple failures_;
    nb::object run_name_ = nb::steal(PyUnicode_InternFromString("run"));
    std::vector<std::unique_ptr<Place>> places_;  // a place stays where it is
};

}  // namespace

void bind_chain(nb::module_ &m) {
    nb::class_<PyChain>(m, "Chain", nb::is_final(),
                        R"(Requests one after the other, in one call.

Values that earlier requests have computed decide which one follows: the chain is a tree. A
value is given by its source: the index of the link that computes it, from 0 at the begin of
the way, and its index among the link's outputs. (-1, i) is input i of the chain.

Args:
    inputs: the names of the inputs.
    failures: the exceptions of a request that end a run, so that the caller repeats the
        request.)")
        .def(nb::init<std::vector<nb::str>, nb::tuple>(), "inputs"_a, "failures"_a,
             nb::sig("def __init__(self, inputs: collections.abc.Sequence[str], "
                     "failures: tuple[type[BaseException], ...]) -> None"))
        .def("__len__", &PyChain::size, "Return the number of links and ends.")
        .def("link", &PyChain::link, "after"_a, "asked"_a, "seen"_a, "requests"_a, "names"_a,
             "feeds"_a,
             nb::sig("def link(self, after: int, "
                     "asked: collections.abc.Sequence[tuple[tuple[int, int], bool]], "
                     "seen: collections.abc.Sequence[object], "
                     "requests: dict[typing.Any, typing.Any], names: list[str], "
                     "feeds: collections.abc.Sequence[tuple[str, tuple[int, int]]]) -> int"),
             R"(Add a link, or replace one, and return its number.

Args:
    after: the number of the link that it follows; 0 is the begin of the chain.
    asked: the sources of the values that decide what follows that link, each with whether
        its elements decide, or its type and shape alone. If they are others than before,
        all that followed that link is forgotten.
    seen: the arrays that these values were when the new link followed.
    requests: an object like ``Request`` for each lane; it may get more of them later.
    names: the names of the link's outputs, which ``Request.run`` is given.
    feeds: the names and the sources of the link's inputs.

Raises:
    ValueError: a link or a value does not exist, or is no dense array.)")
        .def("end", &PyChain::end, "after"_a, "asked"_a, "seen"_a, "outputs"_a,
             nb::sig("def end(self, after: int, "
                     "asked: collections.abc.Sequence[tuple[tuple[int, int], bool]], "
                     "seen: collections.abc.Sequence[object], "
                     "outputs: collections.abc.Sequence[tuple[tuple[int, int], bool]]) -> None"),
             R"(Add an end; the arguments and errors are those of ``link``.

Args:
    outputs: the sources of the outputs of the chain, each with whether it is a copy.)")
        .def("run", &PyChain::run, "arrays"_a, "lane"_a,
             nb::sig("def run(self, arrays: dict[str, object], lane: object) -> "
                     "tuple[list[int], list[list[typing.Any]], list[typing.Any] | None]"),
             R"(Run links until none follows, or the one that follows cannot run.

Returns the numbers of the links that have run, the outputs of each, and the outputs of the
chain. These are None if its end was not reached: ``arrays`` has other names, values decide
what they have not decided before, or a request has answered None or False, or has failed.)");
}

}  // namespace vtensor::replay
