"""A registered library: its description, its handlers, and the functions generated from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from libdesc.handlers import Handler, find_handler
from libdesc.schema import HANDLERS, Description, Rates, Speed
from ptensor.evaluation import lib_tagger
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import DescriptionError, LayoutNotSupported, VTensorError
from vtensor.language.checks import compile_text
from vtensor.language.failures import place_of, raised
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from ptensor.call import Call, CallOperand, Step


@dataclass(eq=False)
class RegisteredLibrary:
    """A registered library, available or not.

    Attributes:
        description: its description, as read from the file.
        text: the generated source of the functions ``guideline``, ``confirm``, ``library_desc`` and
            ``transform``, the body of a Transform.
        code: the compiled functions of ``text``, and the handlers as ``<key>_handler``, by name.
        absent: the reason why the library cannot be used in this process; empty if it can.
        origin: how its description was found, as a text for messages.
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
        """The priority among libraries; the largest is tried first."""
        return self.description.priority

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices on which its invokers may run."""
        return self.description.devices

    @property
    def rates(self) -> Rates:
        """The approximate speed of one thread of the library."""
        return self.description.rates

    def version(self) -> str:
        """Return the library's version and where it was found, as a text.

        It is empty if the library is absent or has no handler ``version``.
        """
        handler = self.code["version_handler"]
        return "" if handler is None or self.absent else str(handler())

    def limit_isa(self, cap: str) -> None:
        """Cap the instruction set that the library uses in the rest of the process.

        This does nothing if the library is absent or has no handler ``limit_isa``.

        Args:
            cap: the largest instruction set that may be used, such as ``"avx2"``.

        Raises:
            LibraryError: the library has fixed another instruction set already.
        """
        handler = self.code["limit_isa_handler"]
        if handler is not None and not self.absent:
            handler(cap)

    def computes(self, dtype: str) -> bool:
        """Return whether the library computes in an element type on this processor.

        True without a handler ``computes``: its invokers declare their types.
        """
        handler = self.code["computes_handler"]
        return handler is None or bool(handler(dtype))

    def speeds(self) -> Mapping[str, Speed]:
        """Return how fast the library's kernels are on this processor in element types other than
        f32, relative to f32.

        The mapping is empty if the library is absent or has no handler ``speeds``.
        """
        handler = self.code["speeds_handler"]
        if handler is None or self.absent:
            return {}
        answer: Mapping[str, Speed] = handler()
        return answer

    def faster(self) -> Mapping[str, Speed]:
        """Return the element types in which this processor multiplies faster than in f32, by
        instructions that the library names.
        """
        return {
            dtype: speed
            for dtype, speed in self.speeds().items()
            if speed.instructions and speed.products > 1
        }

    def peaks(self, nbytes: int) -> Iterator[tuple[str, Step, int]]:
        """Yield (kind, step, count) for each step that measures the machine's peak speed when it is
        timed.

        A step of kind ``"product"`` multiplies f32 matrices with ``count`` floating-point
        operations. A step of kind ``"copy"`` copies ``nbytes`` bytes: it reads and writes ``count``
        bytes. The cost model uses the first step of each kind. There are no steps if
        ``shows_peaks`` is False.
        """
        if self.shows_peaks:
            yield from self.code["peaks_handler"].each(nbytes)

    @property
    def shows_peaks(self) -> bool:
        """True if the library is present and has a handler ``peaks``."""
        return self.code["peaks_handler"] is not None and not self.absent

    def let_go(self) -> None:
        """Release the kernels that this thread made while it planned and that no step uses."""
        handler = self.code["let_go_handler"]
        if handler is not None and not self.absent:
            handler()

    @property
    def transforms(self) -> bool:
        """True if the library has a transformer, which changes layouts."""
        return "transformer" in self.description.handlers

    @property
    def guideline_place(self) -> str:
        """File and line of the handler ``guideline``; empty if there is none."""
        handler = self.code["guideline_handler"]
        return "" if handler is None else place_of(handler.function)

    def guideline(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """Return the layouts that the library prefers for a call, by operand index.

        There is one for an operand, or several in order of preference. An operand that is missing
        may have any layout.
        """
        answers: Mapping[int, Layout | Sequence[Layout]] = self.code["guideline"](call)
        return answers

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the library takes a call in these layouts, else the reason why not.

        Args:
            call: the call.
            row: a layout per operand.

        Raises:
            LibraryError, InvokerError: the handler failed, or returned neither None nor a text.
        """
        reason: str | None = self.code["confirm"](call, row)
        if reason is not None and not isinstance(reason, str):
            raise self.code["confirm_handler"].failure(
                f"answers {reason!r}, which is neither None nor the reason why not"
            )
        return reason

    def library_desc(self, tensor: CallOperand) -> Any:
        """Return the library's own description of a PTensor in the layout that its call requires.

        Raises:
            LayoutNotSupported: the library has no description of this layout.
        """
        return self.code["library_desc"](tensor)


def library_source(description: Description) -> str:
    """Return the source of a library's generated functions, from its description."""
    name, handlers, words = description.name, description.handlers, description.layout_names
    guideline = "call.routine.preferred(call) if call.routine else {}"
    confirm = "call.routine.confirm(call, row) if call.routine else None"
    lines = [
        f"# generated from {description.file.name}: the library {name}",
        "",
        "def guideline(call):",
        f"    return {'guideline_handler(call)' if 'guideline' in handlers else guideline}",
        "",
        "def confirm(call, row):",
        f"    return {'confirm_handler(call, row)' if 'confirm' in handlers else confirm}",
        "",
        "def library_desc(ptensor):",
    ]
    if "layout_mapper" in handlers:
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
    if "transformer" in handlers:
        lines += [
            "def transform(x, y, source, target, permutation):",
            "    src, dst = PTensor(x).require(source), PTensor(y).require(target)",
            # Without a confirm handler, both layouts must be known to the layout mapper.
            *(
                []
                if "confirm" in handlers
                else [f"    src.library_desc({name!r}), dst.library_desc({name!r})"]
            ),
            f"    if lib_tagger({name!r}, [src], [dst]):",
            "        return",
            "    transformer_handler(src, dst, permutation)",
            "",
        ]
    return "\n".join(lines)


def check_layout_names(description: Description) -> None:
    """Check that the keys of ``[layout_names]`` are layouts.

    Raises:
        DescriptionError: a key does not parse as a layout.
    """
    for layout in description.layout_names:
        try:
            Layout(layout)
        except VTensorError as error:
            raise DescriptionError(f"{description.file}: layout_names.{layout}: {error}") from error


def build_library(description: Description, origin: str = "") -> RegisteredLibrary:
    """Import a library's handlers, generate its functions, probe it, and return it.

    Args:
        description: the library's description.
        origin: how the description was found.

    Raises:
        DescriptionError: a handler does not import or does not take its arguments, or a layout in
            ``[layout_names]`` does not parse.
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
    """Call the probe and return why the library is absent; empty if it is present.

    If ``probe`` is None, the library is present.
    """
    if probe is None:
        return ""
    try:
        answer = probe.function()
    except Exception as error:  # a library whose probe fails is absent
        pass_signals(error)
        return f"its probe failed: {raised(error, place_of(probe.function))}"
    if answer is None or isinstance(answer, str):
        return answer or ""
    place = place_of(probe.function)
    return f"its probe answers {answer!r}, which is neither None nor the reason why not ({place})"
