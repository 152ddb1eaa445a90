"""The text of a layout: from axes to text and back.

    layout   = ( "ANY" | "()" | compact | spaced ) [ ":" encoding ]
    compact  = { letter | number lower }
    spaced   = word { " " word }
    word     = dim [ "/" number ] | dim "%" number
    encoding = as in ``ptensor/encoding.py``: "bf16", "s8(scale=0.5,zero=3)", "bf16+bf16", ...

In the compact form each dim is one letter, and ``16c`` is a block of 16 of c or C. A text with a
space, "/" or "%" is in the spaced form: ``seq%64`` is an inner block of 64 of seq, ``seq/64`` the
outer part of seq. The number after "/" is the product of all blocks of the dim, and is required if
the dim has blocks. Several blocks of one dim are in the order of their levels, outermost first,
wherever they stand: ``I/32 O I%16 I%2``. ``batch/1`` is a dim without blocks, for a layout of one
dim of several letters. ``()`` is the layout of a scalar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple, NoReturn

from ptensor.encoding import Encoding
from vtensor.errors import DimError, LayoutError, VTensorError, describe


class Axis(NamedTuple):
    """One axis of a physical array: the outer (or only) part of a dim, or an inner block of it.

    ``block`` is the size of the block; it is 0 for the outer part.
    """

    dim: str
    block: int = 0


class _Token(NamedTuple):
    axis: Axis
    position: int
    text: str
    #: The number after "/" in the spaced form, which states the product of the dim's blocks; None
    #: if there is none.
    claim: int | None = None


_COMPACT = re.compile(r"(?P<number>[0-9]*)(?P<letter>[A-Za-z])")
_WORD = re.compile(r"(?P<dim>[^/%]*)(?:(?P<sign>[/%])(?P<number>[0-9]{1,10}))?")
_LARGEST_BLOCK = 2**31 - 1


def parse(text: str) -> tuple[tuple[Axis, ...] | None, Encoding | None]:
    """Parse the text of a layout.

    Returns:
        The axes, or None for ANY; and the encoding, or None if the text has none.

    Raises:
        LayoutError: the text is not of the grammar above; the message has the place and a remedy.
        DimError: a dim has two outer parts, or a block belongs to a dim that has none.

    >>> parse("NC8c:bf16")
    ((Axis(dim='N', block=0), Axis(dim='C', block=0), Axis(dim='C', block=8)), Encoding('bf16'))
    """
    body, colon, suffix = text.partition(":")
    encoding = None
    if colon:
        try:
            encoding = Encoding.parse(suffix)
        except LayoutError as error:
            _fail(text, len(body) + 1, str(error), "write ':bf16' or ':s8(scale=0.5)'")
    word = body.strip()
    if word == "ANY":
        return None, encoding
    if word == "()":
        return (), encoding
    if not word:
        _fail(text, 0, "no dims", "write '()' for a scalar, 'ANY' for no constraint")
    is_spaced = any(c in "/%" or c.isspace() for c in word)
    tokens = _spaced_tokens(body, text) if is_spaced else _compact_tokens(body, text)
    _check(tokens, text)
    return tuple(token.axis for token in tokens), encoding


def check_axes(axes: Iterable[tuple[str, int]]) -> tuple[Axis, ...]:
    """Check that (dim, block) pairs are the axes of a layout, and return them as axes.

    Args:
        axes: the pairs, slowest first; block 0 is the outer part of a dim.

    Raises:
        DimError: a name is no identifier or occurs twice, or a block's dim has no outer part.
        LayoutError: a block is no integer, or too small or too large.

    >>> check_axes([("C", 0), ("C", 16)])
    (Axis(dim='C', block=0), Axis(dim='C', block=16))
    """
    result = []
    for dim, block in axes:
        if not isinstance(dim, str) or not dim.isidentifier():
            raise DimError(f"a dim's name is an identifier such as 'N' or 'batch', not {dim!r}")
        try:
            result.append(Axis(dim, int(block.__index__())))
        except AttributeError:
            raise LayoutError(
                f"block {block!r} of dim {dim}: an integer, 0 for the outer part"
            ) from None
    words = [f"{dim}%{block}" if block else dim for dim, block in result]
    starts = accumulate((len(word) + 1 for word in words), initial=0)
    tokens = [_Token(*row) for row in zip(result, starts, words, strict=False)]
    _check(tokens, " ".join(words))
    return tuple(result)


def spell(axes: Sequence[Axis], encoding: Encoding | None) -> str:
    """Return the text of a layout: compact if that reads back as the same axes, else spaced.

    >>> spell([Axis("N"), Axis("C"), Axis("C", 8)], None), spell([Axis("head"), Axis("seq")], None)
    ('NC8c', 'head seq')
    """
    suffix = "" if encoding is None else f":{encoding}"
    if not axes:
        return f"(){suffix}"
    if all(len(axis.dim) == 1 and axis.dim.isascii() and axis.dim != "_" for axis in axes):
        compact = "".join(f"{block}{dim.lower()}" if block else dim for dim, block in axes)
        try:
            if parse(compact)[0] == tuple(axes):
                return compact + suffix
        except VTensorError:
            pass  # h may be a block of H or of h: only the spaced form can tell
    return _spell_spaced(axes) + suffix


def _spell_spaced(axes: Sequence[Axis]) -> str:
    """Return the spaced text of axes."""
    words = []
    for dim, block in axes:
        product = prod(axis.block for axis in axes if axis.dim == dim and axis.block)
        outer = f"{dim}/{product}" if product > 1 or len(axes) == 1 else dim
        words.append(f"{dim}%{block}" if block else outer)
    return " ".join(words)


def _fail(text: str, position: int, problem: str, remedy: str) -> NoReturn:
    """Raise LayoutError about the character at index ``position`` of a layout's text."""
    raise LayoutError(_message(text, position, problem, remedy))


def _message(text: str, position: int, problem: str, remedy: str) -> str:
    """Return an error's text about the character at index ``position`` of a layout's text."""
    return describe(f"layout {text!r}, character {position + 1}: {problem}", remedy=remedy)


def _compact_tokens(body: str, text: str) -> list[_Token]:
    """Return the tokens of a layout in the compact form.

    Args:
        body: the layout without its encoding.
        text: the layout with its encoding, for messages.

    Raises:
        LayoutError: the text is not of the grammar.
    """
    rows: list[tuple[int, str, int, str]] = []
    position = len(body) - len(body.lstrip())
    end = len(body.rstrip())
    while position < end:
        match = _COMPACT.match(body, position)
        if match is None:
            if number := re.match("[0-9]+", body[position:]):
                remedy = "follow it by its dim's letter, as in 16c"
                _fail(text, position, f"{number[0]} has no dim", remedy)
            problem = f"{body[position]!r} is no letter and no number"
            _fail(text, position, problem, "separate names of several letters by spaces")
        size, letter = match["number"], match["letter"]
        if size and letter.isupper():
            problem = f"the letter of a block is lower-case, {match[0]!r} is not"
            _fail(text, position, problem, f"write {match[0].lower()}")
        if len(size) > 10:
            _fail(text, position, "the block is too large", f"take one of at most {_LARGEST_BLOCK}")
        if size and int(size) < 2:
            _fail(text, position, f"block of {int(size)}", "a block is at least 2; leave it out")
        rows.append((position, match[0], int(size or 0), letter))
        position = match.end()
    return _name_blocks(rows, text)


def _name_blocks(rows: Sequence[tuple[int, str, int, str]], text: str) -> list[_Token]:
    """Return the tokens of a compact text, each with its dim. A block belongs to the dim with the
    same letter in lower or upper case.

    Args:
        rows: for each token its position in the text, its word, its size (0 for an outer part) and
            its letter.
        text: the whole layout, for messages.

    Raises:
        LayoutError: the letter of a block is a dim in lower case and another dim in upper case.
    """
    dims = {letter for _, _, size, letter in rows if not size}
    tokens = []
    for position, word, size, letter in rows:
        upper = letter.upper()
        if size and {letter, upper} <= dims:
            problem = f"{word} is a block of {letter} or of {upper}"
            _fail(text, position, problem, f"use the spaced form: {letter}%{size}")
        dim = letter if letter in dims else upper
        tokens.append(_Token(Axis(dim, size), position, word))
    return tokens


def _spaced_tokens(body: str, text: str) -> list[_Token]:
    """Return the tokens of a layout in the spaced form.

    Args:
        body: the layout without its encoding.
        text: the layout with it, for messages.

    Raises:
        LayoutError: the text is not of the grammar.
    """
    tokens = []
    for place in re.finditer(r"\S+", body):
        word, position = place[0], place.start()
        match = _WORD.fullmatch(word)
        if match is None or not match["dim"].isidentifier():
            _fail(text, position, f"{word!r} is no dim", "write a name, name/64 or name%64")
        number = int(match["number"] or 1)
        if match["sign"] != "%":
            tokens.append(_Token(Axis(match["dim"]), position, word, number))
            continue
        if number < 2:
            _fail(text, position, f"block of {number}", "a block is at least 2; leave it out")
        tokens.append(_Token(Axis(match["dim"], number), position, word))
    return tokens


def _check(tokens: Sequence[_Token], text: str) -> None:
    """Check that the tokens of a layout's text agree with each other.

    Args:
        tokens: one token for each axis.
        text: the whole layout, for messages.

    Raises:
        DimError: a dim has two outer parts, or a block's dim has none.
        LayoutError: a block is too small or too large, or the product of blocks that a token states
            is wrong.
    """
    outer: dict[str, _Token] = {}
    product: dict[str, int] = {}
    for token in tokens:
        dim, block = token.axis
        if block:
            product[dim] = product.get(dim, 1) * block
            if block < 2 or product[dim] > _LARGEST_BLOCK:
                problem = f"block {block} of {dim}"
                remedy = f"a block is at least 2, all of a dim's together at most {_LARGEST_BLOCK}"
                _fail(text, token.position, problem, remedy)
        elif dim in outer:
            remedy = "name each dim once; blocks carry a number"
            raise DimError(_message(text, token.position, f"dim {dim} is here twice", remedy))
        else:
            outer[dim] = token
    for token in tokens:
        dim, block = token.axis
        if block and dim not in outer:
            problem = f"{token.text} is a block of {dim}, which is not among the dims"
            raise DimError(_message(text, token.position, problem, f"add the outer part of {dim}"))
        blocks = product.get(dim, 1)
        if token.claim is not None and token.claim != blocks:
            problem = f"{token.text} does not match the blocks of {dim}"
            remedy = f"write {dim}/{blocks}" if blocks > 1 else f"write {dim}, or add its blocks"
            _fail(text, token.position, problem, remedy)
