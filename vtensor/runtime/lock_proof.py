"""What was proved of a plan, as a lock file has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

from optimizer.settings import OBJECTIVES
from resolver.lowered import Certificate
from vtensor.runtime.lock_rows import basis_of
from vtensor.runtime.lock_tables import Table

#: The fields that are kept, and their types; how long the solver took is different each time.
KEPT: Mapping[str, type] = {
    **dict.fromkeys(("objective", "solver", "status", "basis"), str),
    **dict.fromkeys(("open_nodes", "bytes_before", "count_before"), int),
    **dict.fromkeys(("bytes_after", "count_after", "bound", "ns_before", "ns_after"), int),
    "gap": float,
}


def proof_row(certificate: Certificate | None) -> dict[str, Any]:
    """A certificate for a file; nothing where there is none."""
    proof = {} if certificate is None else asdict(certificate)
    return {key: proof[key] for key in KEPT if proof.get(key) is not None}


def certificate_of(row: Table) -> Certificate:
    """The certificate that a file holds.

    Raises:
        LockError: a key is missing or unknown, or its value is none that it may have.
    """
    row.only(*KEPT)
    if row.get("objective", str) not in OBJECTIVES:
        raise row.error("objective", f"must be one of {', '.join(OBJECTIVES)}")
    needed = {one.name for one in fields(Certificate) if one.default is MISSING}
    found: dict[str, Any] = {
        key: row.get(key, kind) for key, kind in KEPT.items() if key in row.data or key in needed
    }
    return Certificate(**found | {"basis": basis_of(row)})
