"""Models of texts, sequences and maps: Python steps around a numeric model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TypeProto, helper, numpy_helper

from tests.learned.support import FLOAT, INT64, STRING, Array, forest, model, runtime
from vtensor import Session, load_onnx
from vtensor import onnxruntime as ort
from vtensor.errors import EdgesNeeded, InputError, ModelError

ML = "ai.onnx.ml"
X = np.round(np.random.default_rng(1).normal(size=(9, 3)), 1).astype(np.float32)
TEXTS = np.array([["red"], ["blue"], ["violet"], ["red"]], object)


def zip_map(keys: dict[str, Any], key: int) -> tuple[Any, TypeProto]:
    """Return a ZipMap of the value ``scores``, and the type of its output."""
    node = helper.make_node("ZipMap", ["scores"], ["maps"], domain=ML, **keys)
    of_map = helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, []))
    return node, helper.make_sequence_type_proto(of_map)


def classifier(labels: dict[str, Any], key: int) -> Any:
    """Return a model that delivers labels and a dict of scores for each row."""
    trees = forest(np.random.default_rng(3), "class", [0, 1, 2])
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain=ML, **labels, **trees
    )
    last, kind = zip_map(labels, key)
    return model([node, last], {"x": X}, {"label": key, "maps": kind})


LABELS: list[tuple[dict[str, Any], int]] = [
    ({"classlabels_strings": ["a", "bb", "ccc"]}, STRING),
    ({"classlabels_int64s": [7, 5, 9]}, INT64),
]


def same(mine: Any, theirs: Any) -> bool:
    """Return whether two answers are equal: types, keys and order too."""
    if isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(theirs, dict):
        close = all(abs(mine[key] - value) < 1e-5 for key, value in theirs.items())
        return [*mine] == [*theirs] and close
    if theirs.dtype == object:
        return bool(mine.dtype == object and (mine == theirs).all())
    return bool(mine.dtype == theirs.dtype and np.allclose(mine, theirs, atol=1e-5))


@pytest.mark.parametrize(("labels", "key"), LABELS)
def test_a_classifier_delivers_labels_and_dicts(labels: dict[str, Any], key: int) -> None:
    proto = classifier(labels, key)
    wanted = runtime(proto, {"x": X})
    with Session(proto, reference=False, cache_dir=False) as session:
        assert same(session.run(None, {"x": X}), wanted)
        assert same(session.run(["maps"], {"x": X[:1]})[0], wanted[1][:1])
        assert [port.dtype for port in session.outputs] == [
            "string" if key == STRING else "s64",
            f"seq(map({'string' if key == STRING else 'int64'},tensor(float)))",
        ]


@pytest.mark.parametrize(("labels", "key"), LABELS)
def test_the_interface_gives_the_types_of_onnx_runtime(labels: dict[str, Any], key: int) -> None:
    import onnxruntime

    content = classifier(labels, key).SerializeToString()
    mine, theirs = (
        module.InferenceSession(content, providers=["CPUExecutionProvider"])
        for module in (ort, onnxruntime)
    )
    for ends in ("get_inputs", "get_outputs"):
        rows = [[(a.name, a.type) for a in getattr(s, ends)()] for s in (mine, theirs)]
        assert rows[0] == rows[1]
    assert same(mine.run(None, {"x": X}), theirs.run(None, {"x": X}))
    with pytest.raises(ValueError, match="missing"):
        mine.run(None, {})


def test_texts_are_looked_up_and_compared() -> None:
    """Encoders read texts; a text that is no key has the default, and no category."""
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["t"],
            ["number"],
            domain=ML,
            keys_strings=["red", "blue"],
            values_int64s=[3, 4],
            default_int64=-7,
        ),
        helper.make_node(
            "OneHotEncoder", ["t"], ["hot"], domain=ML, cats_strings=["blue", "green", "red"]
        ),
        helper.make_node(
            "LabelEncoder",
            ["t"],
            ["back"],
            domain=ML,
            keys_strings=["red"],
            values_strings=["RED"],
            default_string="?",
        ),
        helper.make_node("Equal", ["t", "one"], ["is_red"]),
        helper.make_node("Concat", ["t", "back"], ["both"], axis=1),
    ]
    red = numpy_helper.from_array(np.array(["red"], object), "one")
    kinds = {"number": INT64, "hot": FLOAT, "back": STRING, "is_red": 9, "both": STRING}
    proto = model(nodes, {"t": TEXTS}, kinds, initializers=[red])
    opset = next(entry for entry in proto.opset_import if not entry.domain)
    opset.version = 19  # the first in which texts are compared
    with Session(proto, reference=False, cache_dir=False) as session:
        answers = session.run(None, {"t": TEXTS})
        assert same(answers, runtime(proto, {"t": TEXTS}))
        assert same(session.run(None, {"t": TEXTS.astype("U")}), answers)
        assert same(session.run(["both"], {"t": TEXTS.tolist()}), answers[4:])
        assert all(step.library != "onnx_reference" for step in session.plan.steps)


def test_a_session_of_texts_is_cached(tmp_path: Any) -> None:
    proto = classifier(*LABELS[0])
    for _ in range(2):
        with Session(proto, cache_dir=tmp_path) as session:
            label, _ = session.run(None, {"x": X})
            assert {*label} <= {"a", "bb", "ccc"}


def sequence_of(kind: int, sizes: list[int | None] | None = None) -> TypeProto:
    """Return the type of a sequence of arrays."""
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(kind, sizes))


def test_sequences_inside_of_a_model_become_ordinary_nodes() -> None:
    """Their elements are known when the model is read, so that it is a plain graph."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["parts"], axis=1),
        helper.make_node("SequenceAt", ["parts", "last"], ["b"]),
        helper.make_node("SequenceInsert", ["parts", "b"], ["more"]),
        helper.make_node("SequenceErase", ["more", "first"], ["less"]),
        helper.make_node("SequenceLength", ["less"], ["count"]),
        helper.make_node("ConcatFromSequence", ["less"], ["y"], axis=1),
    ]
    constants = [
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in (("two", 2), ("last", -1), ("first", 0))
    ]
    proto = model(nodes, {"x": X}, {"y": FLOAT, "count": INT64}, initializers=constants)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    assert "Concat" in str(load_onnx(proto, shapes={"x": (9, 3)}))
    with Session(proto, reference=False, cache_dir=False) as session:
        assert same(session.run(None, {"x": X}), runtime(proto, {"x": X}))


def test_sequences_at_the_ends_are_lists() -> None:
    nodes = [
        helper.make_node("SequenceAt", ["s", "i"], ["x"]),
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("SequenceInsert", ["s", "y"], ["out"]),
    ]
    proto = model(nodes, {"i": np.array(0, np.int64)}, {"out": sequence_of(FLOAT)})
    proto.graph.input.append(helper.make_value_info("s", sequence_of(FLOAT, [None])))
    parts: list[Array] = [X[0], X[1]]
    with Session(proto, reference=False, cache_dir=False) as session:
        feeds = {"s": parts, "i": np.array(1, np.int64)}
        [out] = session.run(None, feeds)
        assert same(out, [*parts, -X[1]])
        with pytest.raises(InputError, match="position 5"):
            session.run(None, {**feeds, "i": np.array(5, np.int64)})
        with pytest.raises(InputError, match="a list"):
            session.run(None, {**feeds, "s": X})
        assert same(session.run(None, feeds)[0], out)  # it is usable afterwards


def test_wrong_feeds_are_typed_errors() -> None:
    node = helper.make_node("StringNormalizer", ["t"], ["y"], case_change_action="UPPER")
    proto = model([node], {"t": TEXTS[:, 0]}, {"y": STRING})
    with Session(proto, cache_dir=False) as session:
        for wrong in (X, np.array([1, "a"], object), 3):
            with pytest.raises(InputError):
                session.run(None, {"t": wrong})
        with pytest.raises(InputError, match="missing"):
            session.run(None, {})
        with pytest.raises(InputError, match="no output 'z'"):
            session.run(["z"], {"t": TEXTS[:, 0]})
        with pytest.raises(InputError, match="bind takes no texts"):
            session.bind({"t": TEXTS[:, 0]})
        [texts] = session.run(None, {"t": TEXTS[:, 0]})
        assert [*texts] == ["RED", "BLUE", "VIOLET", "RED"]


def test_texts_between_numeric_nodes_are_looked_up() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["t"], to=STRING),
        helper.make_node(
            "LabelEncoder", ["t"], ["y"], domain=ML, keys_strings=["1"], values_floats=[2.0]
        ),
    ]
    proto, x = model(nodes, {"x": X}, {"y": FLOAT}), np.array([[-1, 3]], np.float32)
    with Session(proto, cache_dir=False) as session:
        assert same(session.run(None, {"x": x}), runtime(proto, {"x": x}))


def test_computing_with_texts_is_refused_when_the_model_is_read() -> None:
    node = helper.make_node("TopK", ["t", "k"], ["v", "i"])
    one = numpy_helper.from_array(np.array([1], np.int64), "k")
    with pytest.raises(ModelError):
        Session(model([node], {"t": TEXTS}, {"i": INT64}, initializers=[one]), cache_dir=False)


def test_a_graph_of_such_a_model_is_refused() -> None:
    with pytest.raises(EdgesNeeded, match="a Session runs it"):
        load_onnx(classifier(*LABELS[0]), shapes={"x": (9, 3)})


def test_a_graph_is_mapped_over_sequences() -> None:
    """The graph reads an outer value, and what it delivers has other sizes at each place."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["sum"]),
            helper.make_node("Mul", ["sum", "n"], ["product"]),
            helper.make_node("Shape", ["a"], ["shape"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, None) for name in ("a", "b")],
        [
            helper.make_tensor_value_info("product", FLOAT, None),
            helper.make_tensor_value_info("shape", INT64, None),
        ],
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("SequenceMap", ["s", "t"], ["products", "shapes"], body=body),
    ]
    outputs = {"products": sequence_of(FLOAT), "shapes": sequence_of(INT64)}
    proto = model(nodes, {"x": X[0]}, outputs)
    for name in ("s", "t"):
        proto.graph.input.append(helper.make_value_info(name, sequence_of(FLOAT)))
    feeds = {"x": X[0], "s": [X, X[1], X[2:4]], "t": [X, X[5], X[:2]]}
    with Session(proto, reference=False, cache_dir=False) as session:
        assert same(session.run(None, feeds), runtime(proto, feeds))
        with pytest.raises(InputError, match=r"the lengths \[2, 3\]"):
            session.run(None, {**feeds, "t": [X, X]})
        assert session.run(None, {**feeds, "s": [], "t": []}) == [[], []]
