"""The faults: what goes wrong in terms of behaviour, and the text that makes it so today.

The sentence is what counts. Where code is rewritten, the same fault is seeded again in the new
code: ``file``, ``old`` and ``new`` change, ``number`` and ``says`` stay.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        number: its name, the same before and after a redesign.
        area: planning, recording, cache or symbols.
        says: what goes wrong.
        file: where, from the root of the repository.
        old, new: a text that occurs once in the file, within a function; and its replacement.
    """

    number: int
    area: str
    says: str
    file: str
    old: str
    new: str


RUNTIME = "vtensor/runtime/"

FAULTS = (
    Fault(
        1,
        "planning",
        "A plan is taken for an input in another layout: its key says the expected layout instead "
        "of the layout of the array that a run gives.",
        RUNTIME + "planning/keys.py",
        "return cls(port.name, shape, port.dtype, expected if same else layout)",
        "return cls(port.name, shape, port.dtype, expected)",
    ),
    Fault(
        2,
        "planning",
        "Symbolic plans and choices are looked up without the layouts of inputs: those that were "
        "made for an input in another layout are taken.",
        RUNTIME + "planning/keys.py",
        "rows = [(row.name, len(row.shape), row.layout, row.value is None) for row in self.inputs]",
        "rows = [(row.name, len(row.shape), row.value is None) for row in self.inputs]",
    ),
    Fault(
        3,
        "planning",
        "A symbolic plan is taken for another value of an input whose value decides sizes.",
        RUNTIME + "planning/choice.py",
        "return key.kind, values, plugins_version()",
        "return key.kind, len(values), plugins_version()",
    ),
    Fault(
        4,
        "planning",
        "A symbolic plan is taken for a run that asks for other values inside the network than the "
        "run it was made for.",
        RUNTIME + "planning/keys.py",
        "return (*rows, self.inner)",
        "return (*rows,)",
    ),
    Fault(
        5,
        "planning",
        "The memory budget is not checked when a symbolic plan is specialised.",
        RUNTIME + "planning/symbolic_plan.py",
        "if needs > workspace.max_bytes or not self._layouts_hold(numbers):",
        "if not self._layouts_hold(numbers):",
    ),
    Fault(
        6,
        "planning",
        "Where libraries refuse some nodes of a choice for new sizes, the whole network is planned "
        "from scratch instead of those nodes: the accepted nodes are no hints.",
        RUNTIME + "planning/choosing.py",
        "settled = hints.settled(graph, reopened)",
        "settled = hints.settled(graph, graph.nodes)",
    ),
    Fault(
        7,
        "planning",
        "A provisional plan is never replaced by a measured one.",
        RUNTIME + "planning/store.py",
        "plan.refinement = BackgroundTask(make, PROVISIONAL, self._hurries, self._preload)",
        "plan.refinement = None",
    ),
    Fault(
        8,
        "planning",
        "A deterministic session refines: a plan whose choice was made for other sizes is "
        "exchanged between two runs.",
        RUNTIME + "planning/store.py",
        "            and not options.deterministic\n            and not (",
        "            and not (",
    ),
    Fault(
        9,
        "planning",
        "A plan whose choice was made for other sizes shows the certificate of those sizes.",
        "resolver/choice.py",
        "certificate=lasting_certificate(chosen),",
        "certificate=chosen.certificate,",
    ),
    Fault(
        10,
        "recording",
        "Memory of two live values overlaps in a specialised plan: the bytes of a piece are "
        "rounded down to cache lines.",
        RUNTIME + "planning/slots.py",
        "rooms: Array = -(-numbers[self.nbytes] // ALIGNMENT) * ALIGNMENT",
        "rooms: Array = numbers[self.nbytes] // ALIGNMENT * ALIGNMENT",
    ),
    Fault(
        11,
        "recording",
        "A step writes its output over an operand that a later step still reads.",
        RUNTIME + "recording/lifetimes.py",
        "            and last[root] == index\n",
        "",
    ),
    Fault(
        12,
        "recording",
        "Packed constants overlap: the bytes of each are rounded down to cache lines.",
        RUNTIME + "recording/weights.py",
        "return -(-nbytes // ALIGNMENT) * ALIGNMENT",
        "return nbytes // ALIGNMENT * ALIGNMENT",
    ),
    Fault(
        13,
        "recording",
        "A recorded call that looked at the values of a constant is repeated for equal calls with "
        "other constants.",
        RUNTIME + "recording/call_kinds.py",
        "            or any(storage.constant and not storage.untouched for storage in inputs)\n",
        "",
    ),
    Fault(
        14,
        "recording",
        "In a specialised plan, a view begins in its owner's memory where it began for the sizes "
        "of the trace.",
        RUNTIME + "planning/slots.py",
        "begin.append(numbers.place(0 if isinstance(operand, int) else operand.begin))",
        "begin.append(numbers.place(0 if isinstance(operand, int) else getattr(operand.begin, "
        '"value", operand.begin)))',
    ),
    Fault(
        15,
        "recording",
        "A call that its library refuses for new sizes is left out of the plan: nothing writes its "
        "output.",
        RUNTIME + "recording/recorder.py",
        "        for why in self.refused.values():\n"
        "            raise ChoiceRefused(why, self.refused)\n",
        "",
    ),
    Fault(
        16,
        "recording",
        "Plans share packed constants by array and layout alone: a part or a multiple of a weight "
        "is taken for another part or multiple of it.",
        RUNTIME + "recording/packing_table.py",
        "return which, tuple(self.value.dims), change, self.value.layout, self.clears",
        "return which, tuple(self.value.dims), None, self.value.layout, self.clears",
    ),
    Fault(
        17,
        "recording",
        "The packing table cuts a part of a weight out of the file one row too soon.",
        RUNTIME + "recording/packer.py",
        "offset, rows = begin * inner, prod(sizes[:axis])",
        "offset, rows = max(begin - 1, 0) * inner, prod(sizes[:axis])",
    ),
    Fault(
        18,
        "cache",
        "The digest of an entry is not checked: damaged bytes are taken as they are.",
        "vtensor/storage/entries.py",
        "return payload if head == _head(payload) and len(content) <= MOST_BYTES else None",
        "return payload if head.startswith(FORMAT) and len(content) <= MOST_BYTES else None",
    ),
    Fault(
        19,
        "cache",
        "An entry of another processor, or of another cap on its instructions, is taken.",
        RUNTIME + "cache/plans.py",
        "*(model.digest, model.code, processor(), isa_cap(), threads, scope),",
        "*(model.digest, model.code, threads, scope),",
    ),
    Fault(
        20,
        "cache",
        "An entry of a session with other options (level, order of libraries, pins) is taken.",
        RUNTIME + "cache/plans.py",
        "*(options.passes, options.preferences, options.tolerance),",
        "options.tolerance,",
    ),
    Fault(
        21,
        "cache",
        "An entry is taken that was written with other distributions installed, or with other "
        "settings in the environment.",
        "vtensor/frontends/files/fingerprint.py",
        "return blake2b(repr(installed()).encode(), digest_size=16).hexdigest()",
        'return ""',
    ),
    Fault(
        22,
        "cache",
        "A large weight whose values decided something is not part of the fingerprint: an entry is "
        "taken for a model with other values of it.",
        "vtensor/frontends/files/fingerprint.py",
        "inside |= {place[1] for place in observed if len(place) == 2}",
        "inside |= {place[1] for place in observed if len(place) == 0}",
    ),
    Fault(
        23,
        "cache",
        "A provisional choice is saved as a measured one: later processes never measure.",
        RUNTIME + "cache/codec.py",
        '"provisional": choice.provisional,',
        '"provisional": False,',
    ),
    Fault(
        24,
        "cache",
        "An entry is taken that another user owns or may write to.",
        "vtensor/storage/entries.py",
        "if not stat.S_ISREG(status.st_mode) or foreign(status):",
        "if not stat.S_ISREG(status.st_mode):",
    ),
    Fault(
        25,
        "symbols",
        "A comparison of sizes that was false in the trace is no guard.",
        "vtensor/language/symbolic/trace.py",
        "        self.guard(answer, sign, self._operand(a), self._operand(b))\n",
        "        if answer:\n"
        "            self.guard(answer, sign, self._operand(a), self._operand(b))\n",
    ),
    Fault(
        26,
        "symbols",
        "The rows of a saved trace swap multiplication and floor division.",
        "vtensor/language/symbolic/rows.py",
        "rows.append((TWO, target, which, a, b))",
        "rows.append((TWO, target, {2: 3, 3: 2}.get(which, which), a, b))",
    ),
    Fault(
        27,
        "symbols",
        "The result of an operation on two symbols is taken for that of one symbol and a number.",
        "vtensor/language/symbolic/trace.py",
        "        place = self._places.get(key)\n"
        "        if place is None:\n"
        "            place = self._row(key, FUNCTIONS",
        '        place = self._places.get((*key[:3], getattr(b, "place", b)))\n'
        "        if place is None:\n"
        "            place = self._row(key, FUNCTIONS",
    ),
    Fault(
        28,
        "symbols",
        "The name of a kernel, and what else a library answers that is no number, is no guard.",
        "libdesc/native_trace.py",
        "            self._guard_same(place, value)\n            return value\n",
        "            return value\n",
    ),
    Fault(
        29,
        "symbols",
        "A constant that depends on symbols is computed for the sizes of the trace alone.",
        "vtensor/language/symbolic/symbolic_arrays.py",
        "elements = self.elements.reshape(-1).tolist()",
        "elements = [*map(number_of, self.elements.reshape(-1).tolist())]",
    ),
    Fault(
        30,
        "symbols",
        "Two symbols that are equal in the trace are taken to be equal for all sizes: that they "
        "are is no guard.",
        "vtensor/language/symbolic/trace.py",
        "if other.trace is self.trace and other.place == self.place:",
        "if other.trace is self.trace and other.value == self.value:",
    ),
)
