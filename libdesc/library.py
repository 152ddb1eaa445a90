"""A registered library: its description, its handlers, and the look-ups generated from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from libdesc.handlers import Handler, find_handler
from libdesc.schema import HANDLERS, Description, Rates
from ptensor.evaluation import lib_tagger
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import DescriptionError, LayoutNotSupported, VTensorError
from vtensor.language.checks import compile_text
from vtensor.language.failures import place_of, raised
from vtensor.language.interrupts import pass_signals
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from ptensor.call import Call, CallOperand, Step


@dataclass(eq=False)
class RegisteredLibrary:
    """A library that is registered, available or not.

    Attributes:
        description: what its file says.
        text: the generated look-ups: guideline, library_desc, the body of a Transform.
        code: the same, compiled; these functions are what runs.
        absent: why the library cannot be used here; empty when it can.
        origin: how its description was found.
    """

    description: Description
    text: str
    code: dict[str, Any] = field(repr=False)
    absent: str = ""
    origin: str = ""

    @property
    def name(self) -> str:
        """The name in descriptions, invokers and plans."""
        return self.description.name

    @property
    def priority(self) -> int:
        """Larger is tried first."""
        return self.description.priority

    @property
    def devices(self) -> tuple[str, ...]:
        """Where its invokers may run."""
        return self.description.devices

    @property
    def rates(self) -> Rates:
        """The speed of one of its threads, roughly."""
        return self.description.rates

    def version(self) -> str:
        """What the library says of itself: its version and where it was found; may be empty."""
        about = self.code["version_handler"]
        return "" if about is None or self.absent else str(about())

    def limit_isa(self, cap: str) -> None:
        """Cap the instruction set for the rest of the process, if the library can.

        Raises:
            LibraryError: it has already fixed another cap.
        """
        limit = self.code["limit_isa_handler"]
        if limit is not None and not self.absent:
            limit(cap)

    def peaks(self, nbytes: int) -> Iterator[tuple[str, Step, int]]:
        """Steps that show how fast the machine is, if the library has such.

        Each with what it counts: ``"product"``, operations on f32, or ``"copy"``, bytes read and
        written while ``nbytes`` are copied. The costs of plans take the first of each kind.
        """
        if self.shows_peaks:
            yield from self.code["peaks_handler"].each(nbytes)

    @property
    def shows_peaks(self) -> bool:
        """True when it has steps that show how fast the machine is."""
        return self.code["peaks_handler"] is not None and not self.absent

    def let_go(self) -> None:
        """Drop what the calling thread made for a plan and no step has, if the library can."""
        handler = self.code["let_go_handler"]
        if handler is not None and not self.absent:
            handler()

    @property
    def transforms(self) -> bool:
        """True when it can change layouts."""
        return "transformer" in self.description.handlers

    @property
    def guideline_place(self) -> str:
        """File and line of the handler that answers ``guideline``, if there is one."""
        asked = self.code["guideline_handler"]
        return "" if asked is None else place_of(asked.function)

    def guideline(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """What the library would like for each operand of a call."""
        answers: Mapping[int, Layout | Sequence[Layout]] = self.code["guideline"](call)
        return answers

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """None if the library takes the call with a layout for each operand, else the reason."""
        reason: str | None = self.code["confirm"](call, row)
        if reason is not None and not isinstance(reason, str):
            raise self.code["confirm_handler"].failure(
                f"answers {reason!r}, which is neither None nor the reason why not"
            )
        return reason

    def library_desc(self, tensor: CallOperand) -> Any:
        """The library's own description of a PTensor."""
        return self.code["library_desc"](tensor)


def library_source(description: Description) -> str:
    """The text of a library's look-ups, from its description."""
    name, given, words = description.name, description.handlers, description.layout_names
    guideline = "call.routine.preferred(call) if call.routine else {}"
    confirm = "call.routine.confirm(call, row) if call.routine else None"
    lines = [
        f"# generated from {description.file.name}: the library {name}",
        "",
        "def guideline(call):",
        f"    return {'guideline_handler(call)' if 'guideline' in given else guideline}",
        "",
        "def confirm(call, row):",
        f"    return {'confirm_handler(call, row)' if 'confirm' in given else confirm}",
        "",
        "def library_desc(ptensor):",
    ]
    if "layout_mapper" in given:
        lines += ["    return layout_mapper_handler(ptensor)", ""]
    elif words:
        lines += [
            f"    names = { {str(Layout(key)): word for key, word in words.items()}!r}",
            "    layout = str(ptensor.required_layout)",
            "    if layout not in names:",
            f"        raise LayoutNotSupported(f'{name} has no word for layout {{layout}}; '",
            "                                 f'it knows {\", \".join(names)}')",
            "    return names[layout]",
            "",
        ]
    else:
        lines += ["    return ptensor.required_layout", ""]
    if "transformer" in given:
        lines += [
            "def transform(x, y, source, target, permutation):",
            "    src, dst = PTensor(x).require(source), PTensor(y).require(target)",
            # It must know both, or says itself which changes of layout it knows.
            *(
                []
                if "confirm" in given
                else [f"    src.library_desc({name!r}), dst.library_desc({name!r})"]
            ),
            f"    if lib_tagger({name!r}, [src], [dst]):",
            "        return",
            "    transformer_handler(src, dst, permutation)",
            "",
        ]
    return "\n".join(lines)


def check_layout_names(description: Description) -> None:
    """See that the keys of ``[layout_names]`` are layouts.

    Raises:
        DescriptionError: one is not.
    """
    for layout in description.layout_names:
        try:
            Layout(layout)
        except VTensorError as error:
            raise DescriptionError(f"{description.file}: layout_names.{layout}: {error}") from error


def build_library(description: Description, origin: str = "") -> RegisteredLibrary:
    """Import the handlers, generate the look-ups, and probe.

    Raises:
        DescriptionError: a handler does not import or takes something else than it is called with,
            or a layout in ``[layout_names]`` does not parse.
    """
    check_layout_names(description)
    handlers = {f"{key}_handler": find_handler(description, key) for key in HANDLERS}
    text = library_source(description)
    names = {
        **handlers,
        "PTensor": PTensor,
        "lib_tagger": lib_tagger,
        "LayoutNotSupported": LayoutNotSupported,
    }
    code = compile_text(text, f"<generated library {description.name}>", names)
    return RegisteredLibrary(description, text, code, _probe(handlers["probe_handler"]), origin)


def _probe(probe: Handler | None) -> str:
    """Why the library is absent, empty where it is not."""
    if probe is None:
        return ""
    try:
        answer = probe.function()
    except Exception as error:  # a probe that fails is a library that is not there
        pass_signals(error)
        return f"its probe failed: {raised(error, place_of(probe.function))}"
    if answer is None or isinstance(answer, str):
        return answer or ""
    place = place_of(probe.function)
    return f"its probe answers {answer!r}, which is neither None nor the reason why not ({place})"
