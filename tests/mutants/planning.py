"""Faults 1 to 30: planning, recording, the cache and symbols."""

from __future__ import annotations

RUNTIME = "vtensor/runtime/"

ROWS = {
    (1, "planning", RUNTIME + "planning/keys.py"): (
        "A plan is taken for an input in another layout: its key says the expected layout instead "
        "of the layout of the array that a run gives.",
        "return cls(port.name, shape, port.dtype, expected if same else layout)",
        "return cls(port.name, shape, port.dtype, expected)",
    ),
    (2, "planning", RUNTIME + "planning/keys.py"): (
        "Symbolic plans and choices are looked up without the layouts of inputs: those that were "
        "made for an input in another layout are taken.",
        "rows = [(row.name, len(row.shape), row.layout, row.value is None) for row in self.inputs]",
        "rows = [(row.name, len(row.shape), row.value is None) for row in self.inputs]",
    ),
    (3, "planning", RUNTIME + "planning/choice.py"): (
        "A symbolic plan is taken for another value of an input whose value decides sizes.",
        "return key.kind, values, plugins_version()",
        "return key.kind, len(values), plugins_version()",
    ),
    (4, "planning", RUNTIME + "planning/keys.py"): (
        "A symbolic plan is taken for a run that asks for other values inside the network than the "
        "run it was made for.",
        "return (*rows, self.inner)",
        "return (*rows,)",
    ),
    (5, "planning", RUNTIME + "planning/symbolic_plan.py"): (
        "The memory budget is not checked when a symbolic plan is specialised.",
        "        if needs > workspace.max_bytes:\n            return None\n",
        "",
    ),
    (6, "planning", RUNTIME + "planning/choosing.py"): (
        "Where libraries refuse some nodes of a choice for new sizes, the whole network is planned "
        "from scratch instead of those nodes: the accepted nodes are no hints.",
        "settled = hints.settled(graph, reopened)",
        "settled = hints.settled(graph, graph.nodes)",
    ),
    (7, "planning", RUNTIME + "planning/store.py"): (
        "A provisional plan is never replaced by a measured one.",
        "plan.refinement = BackgroundTask(make, PROVISIONAL, self._hurries, self._preload)",
        "plan.refinement = None",
    ),
    (8, "planning", RUNTIME + "planning/store.py"): (
        "A deterministic session refines: a plan whose choice was made for other sizes is "
        "exchanged between two runs.",
        "            and not options.deterministic\n            and not (",
        "            and not (",
    ),
    (9, "planning", "resolver/choice.py"): (
        "A plan whose choice was made for other sizes shows the certificate of those sizes.",
        "certificate=lasting_certificate(chosen),",
        "certificate=chosen.certificate,",
    ),
    (10, "recording", RUNTIME + "planning/slots.py"): (
        "Memory of two live values overlaps in a specialised plan: the bytes of a piece are "
        "rounded down to cache lines.",
        "rooms: Array = -(-numbers[self.nbytes] // ALIGNMENT) * ALIGNMENT",
        "rooms: Array = numbers[self.nbytes] // ALIGNMENT * ALIGNMENT",
    ),
    (11, "recording", RUNTIME + "recording/lifetimes.py"): (
        "A step writes its output over an operand that a later step still reads.",
        "            and last[root] == index\n",
        "",
    ),
    (12, "recording", RUNTIME + "recording/weights.py"): (
        "Packed constants overlap: the bytes of each are rounded down to cache lines.",
        "return -(-nbytes // ALIGNMENT) * ALIGNMENT",
        "return nbytes // ALIGNMENT * ALIGNMENT",
    ),
    (13, "recording", RUNTIME + "recording/call_kinds.py"): (
        "A recorded call that looked at the values of a constant is repeated for equal calls with "
        "other constants.",
        "            or any(storage.constant and not storage.untouched for storage in inputs)\n",
        "",
    ),
    (14, "recording", RUNTIME + "planning/slots.py"): (
        "In a specialised plan, a view begins in its owner's memory where it began for the sizes "
        "of the trace.",
        "begin.append(numbers.place(0 if isinstance(operand, int) else operand.begin))",
        "begin.append(numbers.place(0 if isinstance(operand, int) else getattr(operand.begin, "
        '"value", operand.begin)))',
    ),
    (15, "recording", RUNTIME + "recording/recorder.py"): (
        "A call that its library refuses for new sizes is left out of the plan: nothing writes its "
        "output.",
        "        for why in self.refused.values():\n"
        "            raise ChoiceRefused(why, self.refused)\n",
        "",
    ),
    (16, "recording", RUNTIME + "recording/packing_table.py"): (
        "Plans share packed constants by array and layout alone: a part or a multiple of a weight "
        "is taken for another part or multiple of it.",
        "return which, tuple(self.value.dims), change, self.value.layout, self.clears",
        "return which, tuple(self.value.dims), None, self.value.layout, self.clears",
    ),
    (17, "recording", RUNTIME + "recording/packer.py"): (
        "The packing table cuts a part of a weight out of the file one row too soon.",
        "offset, rows = begin * inner, prod(sizes[:axis])",
        "offset, rows = max(begin - 1, 0) * inner, prod(sizes[:axis])",
    ),
    (18, "cache", "vtensor/storage/entries.py"): (
        "The digest of an entry is not checked: damaged bytes are taken as they are.",
        "return payload if head == _head(payload) and len(content) <= MOST_BYTES else None",
        "return payload if head.startswith(FORMAT) and len(content) <= MOST_BYTES else None",
    ),
    (19, "cache", RUNTIME + "cache/plans.py"): (
        "An entry of another processor, or of another cap on its instructions, is taken.",
        "*(model.digest, model.code, processor(), isa_cap(), threads, scope),",
        "*(model.digest, model.code, threads, scope),",
    ),
    (20, "cache", RUNTIME + "cache/plans.py"): (
        "An entry of a session with other options (level, order of libraries, pins) is taken.",
        "*(options.passes, options.preferences, options.tolerance),",
        "options.tolerance,",
    ),
    (21, "cache", "vtensor/frontends/files/fingerprint.py"): (
        "An entry is taken that was written with other distributions installed, or with other "
        "settings in the environment.",
        "return blake2b(repr(installed()).encode(), digest_size=16).hexdigest()",
        'return ""',
    ),
    (22, "cache", "vtensor/frontends/files/fingerprint.py"): (
        "A large weight whose values decided something is not part of the fingerprint: an entry is "
        "taken for a model with other values of it.",
        "inside |= {place[1] for place in observed if len(place) == 2}",
        "inside |= {place[1] for place in observed if len(place) == 0}",
    ),
    (23, "cache", RUNTIME + "cache/codec.py"): (
        "A provisional choice is saved as a measured one: later processes never measure.",
        '"provisional": choice.provisional,',
        '"provisional": False,',
    ),
    (24, "cache", "vtensor/storage/entries.py"): (
        "An entry is taken that another user owns or may write to.",
        "if not stat.S_ISREG(status.st_mode) or foreign(status):",
        "if not stat.S_ISREG(status.st_mode):",
    ),
    (25, "symbols", "vtensor/language/symbolic/trace.py"): (
        "A comparison of sizes that was false in the trace is no guard.",
        "        self.guard(answer, sign, self._operand(a), self._operand(b))\n",
        "        if answer:\n"
        "            self.guard(answer, sign, self._operand(a), self._operand(b))\n",
    ),
    (26, "symbols", "vtensor/language/symbolic/rows.py"): (
        "The rows of a saved trace swap multiplication and floor division.",
        "rows.append((TWO, target, which, a, b))",
        "rows.append((TWO, target, {2: 3, 3: 2}.get(which, which), a, b))",
    ),
    (27, "symbols", "vtensor/language/symbolic/trace.py"): (
        "The result of an operation on two symbols is taken for that of one symbol and a number.",
        "        place = self._places.get(key)\n"
        "        if place is None:\n"
        "            place = self._row(key, FUNCTIONS",
        '        place = self._places.get((*key[:3], getattr(b, "place", b)))\n'
        "        if place is None:\n"
        "            place = self._row(key, FUNCTIONS",
    ),
    (28, "symbols", "libdesc/native_trace.py"): (
        "The name of a kernel, and what else a library answers that is no number, is no guard.",
        "            self._guard_same(place, value)\n            return value\n",
        "            return value\n",
    ),
    (29, "symbols", "vtensor/language/symbolic/symbolic_arrays.py"): (
        "A constant that depends on symbols is computed for the sizes of the trace alone.",
        "elements = self.elements.reshape(-1).tolist()",
        "elements = [*map(number_of, self.elements.reshape(-1).tolist())]",
    ),
    (30, "symbols", "vtensor/language/symbolic/trace.py"): (
        "Two symbols that are equal in the trace are taken to be equal for all sizes: that they "
        "are is no guard.",
        "if other.trace is self.trace and other.place == self.place:",
        "if other.trace is self.trace and other.value == self.value:",
    ),
}
