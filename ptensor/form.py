"""A physical form: the device of a tensor, its layout, and the encoding of its elements.

A change of any of the three is a Transform. Source: DESIGN.md section 6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ptensor.encoding import Encoding
from ptensor.layout import Layout
from vtensor.errors import LayoutError
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.records import dataclass
from vtensor.language.tensor import CPU


@dataclass(frozen=True, slots=True)
class Form:
    """A device and a layout; the layout includes the encoding.

    Args:
        layout: the memory order, with the encoding if that is not the tensor's own element type.
        device: the device's name, an identifier.

    Raises:
        LayoutError: the device's name is no identifier.

    >>> Form(Layout("NHWC")), Form(Layout("NHWC:bf16"), "gpu")
    (Form('NHWC'), Form('gpu:NHWC:bf16'))
    >>> Form(Layout("NHWC")).nbytes({"N": 1, "H": 2, "W": 2, "C": 3}, "f32")
    48
    """

    layout: Layout
    device: str = CPU

    def __post_init__(self) -> None:
        if not (self.device.isidentifier() and self.device.isascii()):
            raise LayoutError(
                f"a device's name is an identifier such as 'gpu', not {self.device!r}"
            )

    @classmethod
    def parse(cls, text: str) -> Form:
        """Read a form as ``str`` prints it: a layout, after ``device:`` unless that is the CPU.

        A word before the first colon is a device unless an element type follows, as it does in
        ``"NHWC:bf16"``.

        Raises:
            LayoutError, DimError: the text does not parse.

        >>> form = Form.parse("gpu:NCHW16c:bf16")
        >>> form.device, form.layout, form.encoding
        ('gpu', Layout('NCHW16c:bf16'), Encoding('bf16'))
        >>> Form.parse("NHWC:bf16").device
        'cpu'
        """
        first, colon, after_colon = text.partition(":")
        word = re.match(r"\s*(\w*)\s*(?:[(+]|$)", after_colon)
        if not colon or (word is not None and word[1] in ITEMSIZE):
            return cls(Layout(text))
        return cls(Layout(after_colon), first.strip())

    @property
    def encoding(self) -> Encoding | None:
        """Encoding of an element; None for the tensor's own element type."""
        return self.layout.encoding

    def nbytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """Return the number of bytes of a tensor of these sizes and this element type in this form,
        pads and planes included.
        """
        return self.layout.nbytes(dims, dtype)

    def same(self, other: Form, dims: Mapping[str, int], dtype: str | None = None) -> bool:
        """Return whether a tensor in this form need not move to be in the other one.

        True if the device is the same, and the layouts put every element in the same place for
        these sizes.

        Args:
            other: a form of the same dims.
            dims: sizes by name.
            dtype: the tensor's element type, which is then the encoding of a layout without one.

        >>> blocked, other = Form.parse("NCHW16c"), Form.parse("NHWC:f32")
        >>> blocked.same(other, {"N": 8, "C": 16, "H": 7, "W": 7}, "f32")
        True
        >>> blocked.same(Form.parse("gpu:NCHW16c"), {"N": 8, "C": 16, "H": 7, "W": 7})
        False
        """
        return self.device == other.device and self.layout.same(other.layout, dims, dtype)

    def __str__(self) -> str:
        return str(self.layout) if self.device == CPU else f"{self.device}:{self.layout}"

    def __repr__(self) -> str:
        return f"Form({str(self)!r})"
