"""Damage to entries of a cache, whatever they hold: by bytes, and field by field."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

#: Values of another type than any that a field has.
TYPES: Sequence[Any] = (None, "x", [], {}, [[0]], -0.5)


def signed(head: bytes, payload: bytes) -> bytes:
    """Return an entry with the head of another one, whose digest is right."""
    digest = hashlib.blake2b(payload, digest_size=16).hexdigest().encode()
    return head.rpartition(b" ")[0] + b" " + digest + b"\n" + payload


def by_bytes(
    entry: bytes, others: Sequence[bytes], random: Random, count: int
) -> Iterator[tuple[str, bytes]]:
    """Yield what may become of an entry, each with its name.

    Args:
        entry: what it is.
        others: entries of the same folder, and of another model's, that take its place.
        random, count: where bits are flipped and bytes cut off, besides the ends of the parts.
    """
    line, _, payload = entry.partition(b"\n")
    head = len(line)
    places = [random.randrange(len(entry)) for _ in range(count)]
    for at in (0, head - 1, head, head + 1, len(entry) - 1, *places):
        flipped = bytearray(entry)
        flipped[at] ^= 1 << random.randrange(8)
        yield f"a bit of byte {at}", bytes(flipped)
    for at in (0, head + 1, *places):
        yield f"cut at {at}", entry[:at]
    yield "a byte more", entry + b" "
    for number, other in enumerate(others):
        yield f"entry {number} in its place", other
    version = int(line.split()[-2])
    heads = [(b" %d " % version, b" %d " % (version + step)) for step in (-1, 1)]
    for old, new in (*heads, (b"vtensor", b"another")):
        assert line.count(old) == 1
        yield f"{new!r} in its head", line.replace(old, new) + b"\n" + payload
    yield "nothing, signed", signed(line, b"")
    yield "half, signed", signed(line, payload[: len(payload) // 2])


def by_fields(entry: bytes, random: Random, count: int, kinds: bool) -> Iterator[tuple[str, bytes]]:
    """Yield an entry with one field changed, and a digest that is right.

    Args:
        entry: what it is.
        random, count: which fields, and how many.
        kinds: they get another type, or are absent; else other numbers, texts or order.
    """
    line, _, payload = entry.partition(b"\n")
    head, newline, blob = payload.partition(b"\n")
    try:
        data = json.loads(head)
    except UnicodeDecodeError:  # small weights have no fields
        return
    ways = [*_ways(data)]
    for way in random.sample(ways, min(count, len(ways))):
        changed = copy.deepcopy(data)
        *outer, last = way
        holder = changed
        for key in outer:
            holder = holder[key]
        value = holder[last]
        if kinds and random.random() < 0.2:
            del holder[last]
        elif kinds:
            holder[last] = random.choice([one for one in TYPES if type(one) is not type(value)])
        else:
            holder[last] = _other(value, random)
        text = json.dumps(changed, separators=(",", ":")).encode()
        yield f"{way}: {value!r:.60}", signed(line, text + newline + blob)


def _ways(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the ways to all values."""
    if way:
        yield way
    inside = data.items() if isinstance(data, dict) else ()
    for key, value in enumerate(data) if isinstance(data, list) else inside:
        yield from _ways(value, (*way, key))


def _other(value: Any, random: Random) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return random.choice([value + 1, value - 1, value * 2, -value - 1, 1 << 40, 1 << 70])
    if isinstance(value, str):
        return random.choice([value[:-1], f"{value}x", "", "\0", value[::-1]])
    if isinstance(value, list) and value:
        return random.choice([value[:-1], [*value, value[0]], value[::-1] if value[1:] else []])
    return {} if isinstance(value, dict) else [0]
