"""What was proved of a plan, and the errors that it is a proof for, as a lock file has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from math import inf
from typing import Any

from optimizer.settings import OBJECTIVES
from resolver.errors import ErrorProof, Share
from resolver.lowered import Certificate
from vtensor.runtime.lock.rows import basis_of
from vtensor.runtime.lock.toml import Table

#: The fields that are kept, and their types; how long the solver took is different each time.
FIELDS: Mapping[str, type] = {
    **dict.fromkeys(("objective", "solver", "status", "basis"), str),
    **dict.fromkeys(("open_nodes", "bytes_before", "count_before"), int),
    **dict.fromkeys(("bytes_after", "count_after", "bound", "ns_before", "ns_after"), int),
    "gap": float,
}

#: What was measured: several times two numbers.
Pairs = tuple[tuple[float, float], ...]


def proof_row(certificate: Certificate | None) -> dict[str, Any]:
    """A certificate for a file, without errors; nothing where there is none."""
    proof = {} if certificate is None else asdict(certificate)
    return {key: proof[key] for key in FIELDS if proof.get(key) is not None}


def certificate_of(row: Table, errors: ErrorProof | None = None) -> Certificate:
    """The certificate that a file holds.

    Raises:
        LockError: a key is missing or unknown, or its value is none that it may have.
    """
    row.only(*FIELDS)
    if row.get("objective", str) not in OBJECTIVES:
        raise row.error("objective", f"must be one of {', '.join(OBJECTIVES)}")
    needed = {one.name for one in fields(Certificate) if one.default is MISSING}
    found: dict[str, Any] = {
        key: row.get(key, kind) for key, kind in FIELDS.items() if key in row.data or key in needed
    }
    return Certificate(**found | {"basis": basis_of(row), "errors": errors})


def errors_row(certificate: Certificate | None) -> dict[str, Any]:
    """The errors of inexact nodes, with the measurements that say so; nothing without such."""
    proof = certificate.errors if certificate is not None else None
    if proof is None or not proof.shares:
        return {}
    found: dict[str, Any] = {key: getattr(proof, key) for key in ("tolerance", "budget", "direct")}
    found |= {"measured": proof.measured} if proof.measured is not None else {}
    return found | {"nodes": [asdict(share) for share in proof.shares]}


def errors_of(row: Table) -> ErrorProof | None:
    """The errors that a file holds; None where it has none.

    Raises:
        LockError: a key is missing or unknown, or its value is none that it may have.
    """
    if not row.data:
        return None
    row.only("tolerance", "budget", "direct", "measured", "nodes")
    shares = [_share(one) for one in row.tables("nodes")]
    measured = _size(row, "measured") if "measured" in row.data else None
    direct = _size(row, "direct") if "direct" in row.data else 0.0
    tolerance, budget = _size(row, "tolerance"), _size(row, "budget")
    return ErrorProof(tolerance, budget, tuple(shares), measured, direct)


def _share(row: Table) -> Share:
    row.only(*(one.name for one in fields(Share)))
    return Share(
        row.get("node", str),
        row.get("kernel", str),
        _size(row, "error"),
        _size(row, "gain"),
        _pairs(row, "trials"),
        _pairs(row, "probes"),
    )


def _size(row: Table, key: str) -> float:
    number = row.get(key, float)
    if not 0 <= number < inf:
        raise row.error(key, f"must be a number of at least 0, not {number!r}")
    return number


def _pairs(row: Table, key: str) -> Pairs:
    found = row.get(key, list, [])
    if not all(map(_is_pair, found)):
        raise row.error(key, "must be a list of pairs of numbers")
    return tuple((float(one), float(other)) for one, other in found)


def _is_pair(value: object) -> bool:
    numbers = isinstance(value, Sequence) and [type(one) in (int, float) for one in value]
    return bool(numbers) and numbers == [True, True]
