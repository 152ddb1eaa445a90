"""PTensor: a VTensor in a physical layout, as a library's invoker sees it.

Source: the paper, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ptensor.dlpack import CPU, export
from ptensor.evaluation import (
    Call,
    Mode,
    Requirement,
    caller,
    check_tagged,
    current_call,
    guideline_of,
)
from ptensor.layout import Layout
from ptensor.libraries import LIBRARIES, library
from ptensor.views import from_base, to_base
from vtensor.errors import ContractError, DLPackError, LayoutError
from vtensor.tensor import VTensor

if TYPE_CHECKING:
    import numpy as np


class PTensor:
    """A VTensor as an invoker sees it: before ``lib_tagger`` the invoker requires a layout for it,
    afterwards it reads or writes the memory in that layout.

    Args:
        tensor: an operand of the call in progress, or a view of one.

    Raises:
        ContractError: no call is in progress, the tensor is not one of its operands, or there is a
            PTensor of it already.

    Used inside invokers only::

        src = PTensor(x).require("NHWC")
        if lib_tagger("mylib", [src], [dst]):
            return
        mylib.relu(src.data(), dst.data())
    """

    __slots__ = ("_asked", "call", "index", "tensor")

    def __init__(self, tensor: VTensor) -> None:
        call = current_call()
        if call is None:
            raise ContractError(f"PTensor({tensor!r}) outside an invoker ({caller()})")
        if call.tagged:
            raise call.misuse(f"PTensor({tensor!r}) after lib_tagger")
        self.call: Call = call
        self.tensor = tensor
        self.index = call.claim(tensor)
        self._asked: Requirement | None = None
        call.ptensors[self.index] = self

    @property
    def dims(self) -> Mapping[str, int]:
        """Sizes by dim; for a view, under the view's dim names."""
        return self.tensor.dims

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.tensor.dtype

    @property
    def device(self) -> str:
        """The device that the call runs on."""
        return self.call.device

    @property
    def role(self) -> str:
        """The operand's role in the operator's declaration."""
        return self.call.roles[self.index]

    @property
    def produced_layout(self) -> Layout | None:
        """The layout in which the tensor was produced, under a view's own dim names; None if
        unknown.
        """
        produced = self.call.operands[self.index].produced_layout
        return None if produced is None else from_base(produced, self.tensor)

    def require(self, layout: Layout | str | Sequence[Layout | str]) -> PTensor:
        """Declare which layout the library needs for this operand: once per PTensor, before
        ``lib_tagger``.

        Args:
            layout: one layout, several in order of preference, or ``Layout.ANY``; text is parsed.

        Returns:
            This PTensor.

        Raises:
            ContractError: ``require`` was called before, or after ``lib_tagger``, or on a PTensor
                of another call; a layout has other dims than the tensor.
            LayoutError: the text does not parse, or a view's layout separates the parts of a dim of
                the operand.
        """
        call = self.call
        if current_call() is not call:
            raise call.misuse(f"require on the PTensor of {self.role}, which is of another call")
        if call.tagged:
            raise call.misuse(f"require on {self.role} after lib_tagger")
        if self._asked is not None:
            first = f"{self._asked.file}:{self._asked.line}"
            raise call.misuse(f"a second require on {self.role}; the first is at {first}")
        self._asked = self._requirement(layout)
        return self

    def _requirement(self, layout: Layout | str | Sequence[Layout | str]) -> Requirement:
        """Check an argument of ``require``, and return it as a Requirement.

        If the PTensor is of a view, the layouts are translated to the dim names of the operand.

        Raises:
            ContractError: no layout is given, or a layout has other dims than the tensor.
            LayoutError: a text does not parse, or a view's layout separates the parts of a dim of
                the operand.
        """
        given_layouts = [layout] if isinstance(layout, (str, Layout)) else list(layout)
        if not given_layouts:
            raise self.call.misuse(f"require on {self.role} with no layout; ANY is Layout.ANY")
        file, line = self.call.place_of_request()
        try:
            layouts = [Layout(text) if isinstance(text, str) else text for text in given_layouts]
        except LayoutError as error:
            invoker = f"{self.call.op_name} {self.call.node!r}, {self.call.library} invoker"
            at = f"require on {self.role} ({file}:{line})"
            raise LayoutError(f"{invoker}: {at}: {error}") from None
        if any(wanted.is_any for wanted in layouts):
            return Requirement((), file, line)
        for wanted in layouts:
            if set(wanted.dims) != self.dims.keys():
                have = " ".join(self.dims)
                raise self.call.misuse(
                    f"layout {wanted} is not one of {self.role}, whose dims are {have}"
                )
        layouts = [to_base(wanted, self.tensor).normalized(self.dtype) for wanted in layouts]
        return Requirement(tuple(layouts), file, line)

    def requirement_or_guideline(self) -> Requirement:
        """Return the requirement on this operand's layout.

        It is the one given by ``require``. Without that, it is the layout that was decided for the
        operand; before a decision, the layouts of the library's guideline; without an answer of the
        guideline, ANY.
        """
        if self._asked is None:
            file, line = self.call.place_of_request()
            answer: Layout | Sequence[Layout] = Layout.ANY
            if self.call.variant is not None:
                answer = self.call.variant.layouts[self.index]
            elif self.call.library in LIBRARIES:
                answer = guideline_of(self.call, self.call.library).get(self.index, Layout.ANY)
            answers = (answer,) if isinstance(answer, Layout) else tuple(answer)
            layouts = tuple(
                wanted.normalized(self.dtype) for wanted in answers if not wanted.is_any
            )
            layouts = layouts if len(layouts) == len(answers) else ()
            self._asked = Requirement(layouts, file, line)
        return self._asked

    @property
    def required_layout(self) -> Layout:
        """The decided layout, in which the library gets this operand.

        Before a decision it is the first layout of the operand's requirement, or ANY.
        """
        variant = self.call.variant
        if variant is not None:
            return from_base(variant.layouts[self.index], self.tensor)
        asked = self._asked
        return from_base(asked.layouts[0], self.tensor) if asked and asked.layouts else Layout.ANY

    def library_desc(self, name: str) -> Any:
        """Return the library's own description of this tensor in its required layout.

        Raises:
            LayoutNotSupported: the library cannot describe the layout.
            ContractError: the required layout is ANY: it is not decided yet.

        Source: the paper, section 4.1, ``getLibraryDesc``.
        """
        if self.required_layout.is_any:
            raise self.call.misuse(f"library_desc of {self.role} before its layout is decided")
        return library(name).library_desc(self)

    def size(self, dim: str) -> int:
        """Return the size of a dim."""
        return self.tensor.size(dim)

    def ndimensions(self) -> int:
        """Return the number of dims."""
        return self.tensor.ndimensions()

    @property
    def constant(self) -> bool:
        """True if the values are known before a run."""
        return self.call.operands[self.index].constant

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return ``data()`` as a DLPack capsule: one axis per axis of the required layout, pads
        included.

        Raises:
            ContractError: as ``data()``.
            DLPackError: the device, the stream or the version is impossible, a copy is needed but
                forbidden, or the layout has several planes, which are no one array.
        """
        encoding = self.required_layout.encoding
        if encoding is not None and encoding.rest is not None:
            raise DLPackError(
                f"{self.role} in {self.required_layout} is several planes, which are no one array; "
                "export the VTensor, whose values they are"
            )
        return export(
            self.data(), stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type of the CPU, and its number."""
        return CPU

    def data(self) -> np.ndarray[Any, Any]:
        """Return the elements as an array with the axes of the required layout, pads included.

        With an encoding of several planes it is the bytes, one plane after another.

        Raises:
            ContractError: in partial evaluation or before ``lib_tagger``; while recording, outside
                an invoker with ``python=True``, since the results of Python code would be frozen
                into the plan. Constants may be read at any time.
        """
        operand = self.call.operands[self.index]
        if operand.constant and (self.call.partial or not self.call.tagged):
            return operand.data()
        check_tagged(self.call, f"data() of {self.role}")
        if self.call.evaluation.mode is Mode.RECORD and not operand.constant:
            raise self.call.misuse(
                f"data() of {self.role} while recording: Python between the tagger and the native "
                "call would run once and be frozen; say python=True, or leave it to the library"
            )
        return operand.data()

    def __repr__(self) -> str:
        return f"<PTensor {self.role} {self.tensor.summary()} {self.required_layout}>"
