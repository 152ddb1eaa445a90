// native/replay/module_request_tree.cpp: RequestTree as Python sees it: requests one after the
// other, each chosen by values that earlier ones computed.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "module.h"

using namespace nb::literals;

namespace vtensor::replay {

namespace {

// Where a value comes from: the index of a request on the path, and of one of its outputs; request
// -1 stands for the inputs of the tree.
using Source = std::pair<std::ptrdiff_t, std::size_t>;
// A value that decides what follows, with whether its elements do, or its type and shape alone.
using Asked = std::pair<Source, bool>;
using Feeds = std::vector<std::pair<nb::str, Source>>;

class PyRequestTree {
public:
    PyRequestTree(std::vector<nb::str> inputs, nb::tuple failures, nb::object ndarray)
        : inputs_(std::move(inputs)),
          failures_(std::move(failures)),
          ndarray_(std::move(ndarray)) {
        places_.push_back(std::make_unique<Place>());
    }
    PyRequestTree(const PyRequestTree &) = delete;
    PyRequestTree &operator=(const PyRequestTree &) = delete;

    std::size_t size() const { return size_; }

    std::size_t add_request(std::size_t after, const std::vector<Asked> &asked,
                     const std::vector<nb::object> &seen, nb::dict requests, nb::list names,
                     Feeds feeds, nb::object owner) {
        for (const auto &[name, source] : feeds) check(after, source);
        auto place = std::make_unique<Place>(Kind::request);
        place->requests = std::move(requests);
        place->count = names.size();
        place->names = std::move(names);
        place->feeds = std::move(feeds);
        place->owner = std::move(owner);
        return put(after, asked, seen, std::move(place));
    }

    void add_end(std::size_t after, const std::vector<Asked> &asked,
             const std::vector<nb::object> &seen, std::vector<std::pair<Source, bool>> outputs) {
        for (const auto &[source, copied] : outputs) check(after, source);
        auto place = std::make_unique<Place>(Kind::end);
        place->outputs = std::move(outputs);
        put(after, asked, seen, std::move(place));
    }

    // Returns (requests that have run, each with place, owner and outputs; outputs of the tree).
    nb::tuple run(nb::dict arrays, nb::handle lane) const {
        nb::list done;
        std::vector<nb::object> given, found;
        for (const nb::str &name : inputs_) {
            given.push_back(nb::borrow(PyDict_GetItemWithError(arrays.ptr(), name.ptr())));
            if (given.back().is_valid()) continue;
            if (PyErr_Occurred() != nullptr) throw nb::python_error();
            return nb::make_tuple(done, nb::none());
        }
        if (arrays.size() != inputs_.size()) return nb::make_tuple(done, nb::none());
        const auto value = [&](const Source &source) -> nb::object {
            const auto [request, index] = source;
            return request < 0 ? given[index]
                               : nb::borrow(PyList_GET_ITEM(found[request].ptr(),
                                                            static_cast<Py_ssize_t>(index)));
        };
        for (std::size_t at = 0;;) {
            const Place &here = *places_[at];
            std::string key;
            if (here.asked && !add_key(key, value(here.asked->first), here.asked->second)) break;
            const auto next = here.next.find(key);
            if (next == here.next.end()) break;
            at = next->second;
            const Place &place = *places_[at];
            if (place.kind == Kind::end) {
                nb::list outputs;
                for (const auto &[source, copied] : place.outputs)
                    outputs.append(copied ? value(source).attr("copy")() : value(source));
                return nb::make_tuple(done, outputs);
            }
            if (place.kind != Kind::request) continue;
            nb::dict feed;
            for (const auto &[name, source] : place.feeds) feed[name] = value(source);
            nb::object result = answer(place, feed, lane);
            if (!PyList_CheckExact(result.ptr())) break;
            // a copy, which nobody changes
            result = nb::steal(PyList_GetSlice(result.ptr(), 0, PY_SSIZE_T_MAX));
            if (nb::len(result) != place.count) break;
            done.append(nb::make_tuple(at, place.owner, result));
            found.push_back(std::move(result));
        }
        return nb::make_tuple(done, nb::none());
    }

private:
    enum class Kind { start, decision, request, end };

    // A place on paths. All but an end decide by at most one value what follows.
    struct Place {
        explicit Place(Kind kind = Kind::start) : kind(kind) {}
        Kind kind;
        std::size_t before = 0;  // the place before it
        nb::dict requests;       // of a request: the objects that run it, by lane
        nb::list names;
        std::size_t count = 0;  // of the names
        Feeds feeds;
        nb::object owner;
        std::vector<std::pair<Source, bool>> outputs;  // of an end: with whether it is copied
        std::optional<Asked> asked;
        std::unordered_map<std::string, std::size_t> next;  // by what the asked value was
    };

    // Adds the element type and shape of an array to a key, and its bytes if `elements`. Returns
    // false if it is no dense NumPy array of the machine's byte order.
    bool add_key(std::string &key, nb::handle array, bool elements) const {
        if (!array.type().is(ndarray_)) return false;
        const nb::object dtype = array.attr("dtype");
        if (!nb::cast<bool>(dtype.attr("isnative"))) return false;
        Py_buffer view;
        if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_ND) != 0) {
            PyErr_Clear();
            return false;
        }
        const auto add = [&key](Py_ssize_t number) {
            key.append(reinterpret_cast<const char *>(&number), sizeof number);
        };
        add(nb::cast<Py_ssize_t>(dtype.attr("num")));
        for (int axis = 0; axis < view.ndim; ++axis) add(view.shape[axis]);
        if (elements) {
            add(-1);
            key.append(static_cast<const char *>(view.buf), static_cast<std::size_t>(view.len));
        }
        PyBuffer_Release(&view);
        return true;
    }

    // Throws ValueError unless a value exists after a place.
    void check(std::size_t after, const Source &source) const {
        if (after >= places_.size() || places_[after]->kind == Kind::end)
            throw nb::value_error("there is no such request");
        std::vector<const Place *> path;
        for (std::size_t at = after; at != 0; at = places_[at]->before)
            if (places_[at]->kind == Kind::request) path.push_back(places_[at].get());
        const auto [request, index] = source;
        if (request < -1 || request >= static_cast<std::ptrdiff_t>(path.size()))
            throw nb::value_error("a value is of no request on the path");
        if (index >= (request < 0 ? inputs_.size() : path[path.size() - 1 - request]->count))
            throw nb::value_error("a request has fewer outputs");
    }

    // Puts a place behind decisions by the asked values, and returns its number. An equal one that
    // is there stays, and its number is returned.
    std::size_t put(std::size_t after, const std::vector<Asked> &asked,
                    const std::vector<nb::object> &seen, std::unique_ptr<Place> place) {
        if (after >= places_.size() || places_[after]->kind == Kind::end)
            throw nb::value_error("there is no such request");
        if (asked.size() != seen.size())
            throw nb::value_error("there is not one array for each value that is asked for");
        std::vector<std::string> keys(asked.size());
        for (std::size_t i = 0; i < asked.size(); ++i) {
            check(after, asked[i].first);
            if (!add_key(keys[i], seen[i], asked[i].second))
                throw nb::value_error("a value is no dense array");
        }
        for (std::size_t i = 0; i + 1 < asked.size(); ++i) {
            decide(after, asked[i]);
            const auto next = places_[after]->next.find(keys[i]);
            if (next != places_[after]->next.end() &&
                places_[next->second]->kind == Kind::decision)
                after = next->second;
            else
                after = add(after, keys[i], std::make_unique<Place>(Kind::decision));
        }
        decide(after, asked.empty() ? std::nullopt : std::optional(asked.back()));
        const std::string key = asked.empty() ? "" : keys.back();
        const auto next = places_[after]->next.find(key);
        if (next != places_[after]->next.end() && same(*places_[next->second], *place))
            return next->second;
        return add(after, key, std::move(place));
    }

    // Lets a value decide what follows a place; what another value decided there is forgotten.
    void decide(std::size_t at, const std::optional<Asked> &asked) {
        if (places_[at]->asked != asked) places_[at]->next.clear();
        places_[at]->asked = asked;
    }

    std::size_t add(std::size_t after, const std::string &key, std::unique_ptr<Place> place) {
        place->before = after;
        if (place->kind != Kind::decision) ++size_;
        places_.push_back(std::move(place));
        places_[after]->next[key] = places_.size() - 1;
        return places_.size() - 1;
    }

    static bool same(const Place &one, const Place &other) {
        if (one.kind != other.kind) return false;
        if (one.kind == Kind::end) return one.outputs == other.outputs;
        return one.requests.is(other.requests) && one.names.equal(other.names) &&
               std::ranges::equal(one.feeds, other.feeds, [](const auto &a, const auto &b) {
                   return a.first.equal(b.first) && a.second == b.second;
               });
    }

    // Returns what a request answers; None if the lane has none or it fails.
    nb::object answer(const Place &place, const nb::dict &feed, nb::handle lane) const {
        const nb::object request =
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
    nb::object ndarray_;
    nb::object run_name_ = nb::steal(PyUnicode_InternFromString("run"));
    std::size_t size_ = 0;
    std::vector<std::unique_ptr<Place>> places_;  // a place stays where it is; 0 is the start
};

}  // namespace

void bind_request_tree(nb::module_ &m) {
    nb::class_<PyRequestTree>(m, "RequestTree", nb::is_final(),
                              R"(A tree of requests, of which a run takes one path in one call.

Values that earlier requests have computed decide which request follows. A value is given by
its source: the index of the request that computes it, from 0 at the start of the path, and
its index among the outputs of that request. (-1, i) is input i of the tree.

Args:
    inputs: the names of the inputs.
    failures: the exceptions of a request that end a run, so that the caller repeats the
        request.
    ndarray: NumPy's.)")
        .def(nb::init<std::vector<nb::str>, nb::tuple, nb::object>(), "inputs"_a, "failures"_a,
             "ndarray"_a,
             nb::sig("def __init__(self, inputs: collections.abc.Sequence[str], "
                     "failures: tuple[type[BaseException], ...], ndarray: object) -> None"))
        .def("__len__", &PyRequestTree::size, "Return the number of requests and ends.")
        .def("add_request", &PyRequestTree::add_request, "after"_a, "asked"_a, "seen"_a,
             "requests"_a, "names"_a, "feeds"_a, "owner"_a.none(),
             nb::sig("def add_request(self, after: int, "
                     "asked: collections.abc.Sequence[tuple[tuple[int, int], bool]], "
                     "seen: collections.abc.Sequence[object], "
                     "requests: dict[typing.Any, typing.Any], names: list[str], "
                     "feeds: collections.abc.Sequence[tuple[str, tuple[int, int]]], "
                     "owner: object) -> int"),
             R"(Add a request, or replace another one, and return its place.

If the tree has the request already, nothing changes.

Args:
    after: the place of the request that it follows; 0 is the start.
    asked: the sources of the values that decide what follows ``after``, in the order in
        which they are asked for, each with True if its elements decide, False if its type
        and shape alone do. What other values led to before is removed.
    seen: the arrays that these values were when the new request followed.
    requests: an object like ``Request`` for each lane; it may get more of them later.
    names: the names of the outputs, which ``Request.run`` is given.
    feeds: the names and the sources of the request's inputs.
    owner: an object that ``run`` returns with the outputs of the request.

Raises:
    ValueError: a request or a value does not exist, or an array of ``seen`` is not dense.)")
        .def("add_end", &PyRequestTree::add_end, "after"_a, "asked"_a, "seen"_a, "outputs"_a,
             nb::sig("def add_end(self, after: int, "
                     "asked: collections.abc.Sequence[tuple[tuple[int, int], bool]], "
                     "seen: collections.abc.Sequence[object], "
                     "outputs: collections.abc.Sequence[tuple[tuple[int, int], bool]]) -> None"),
             R"(Add the end of a path; arguments and errors are those of ``add_request``.

Args:
    outputs: the sources of the tree's outputs, each with True if the output is a copy.)")
        .def("run", &PyRequestTree::run, "arrays"_a, "lane"_a,
             nb::sig("def run(self, arrays: dict[str, object], lane: object) -> "
                     "tuple[list[tuple[int, typing.Any, list[typing.Any]]], "
                     "list[typing.Any] | None]"),
             R"(Run requests until none follows, or the one that follows cannot run.

Returns the requests that have run, each with its place, owner and outputs, and the outputs
of the tree. The latter are None if the run did not reach an end: ``arrays`` has other
names, a value was never seen, or a request has answered None or False, or has failed.)");
}

}  // namespace vtensor::replay
