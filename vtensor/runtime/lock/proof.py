"""The certificate of a plan as a row of a lock file, and the row with the errors for which the
certificate holds.
"""

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

#: The fields of a certificate in a file, with their types; the solver's time is not saved.
FIELDS: Mapping[str, type] = {
    **dict.fromkeys(("objective", "solver", "status", "basis"), str),
    **dict.fromkeys(("open_nodes", "bytes_before", "count_before"), int),
    **dict.fromkeys(("bytes_after", "count_after", "bound", "ns_before", "ns_after"), int),
    "gap": float,
}

#: The numbers of a plan's errors, beside the shares of nodes; see ``ErrorProof``.
_SIZES = ("tolerance", "budget", "direct", "scale")

#: Measurements of errors as a lock file has them: pairs of numbers.
Pairs = tuple[tuple[float, float], ...]


def proof_row(certificate: Certificate | None) -> dict[str, Any]:
    """Return a certificate, without its errors, as a row of a lock file; empty without one."""
    proof = {} if certificate is None else asdict(certificate)
    return {key: proof[key] for key in FIELDS if proof.get(key) is not None}


def certificate_of(row: Table, errors: ErrorProof | None = None) -> Certificate:
    """Return the certificate from its row in a lock file.

    Args:
        row: the row.
        errors: the errors for which the certificate holds; None for a strict plan.

    Raises:
        LockError: a key is missing or unknown, or its value is invalid.
    """
    row.only(*FIELDS)
    if row.get("objective", str) not in OBJECTIVES:
        raise row.error("objective", f"must be one of {', '.join(OBJECTIVES)}")
    needed = {field.name for field in fields(Certificate) if field.default is MISSING}
    values: dict[str, Any] = {
        key: row.get(key, kind) for key, kind in FIELDS.items() if key in row.data or key in needed
    }
    return Certificate(**values | {"basis": basis_of(row), "errors": errors})


def errors_row(certificate: Certificate | None) -> dict[str, Any]:
    """Return the errors of approximate nodes and their measurements as a row of a lock file.

    The row is empty without a certificate or without approximate nodes.
    """
    proof = certificate.errors if certificate is not None else None
    if proof is None or not proof.shares:
        return {}
    row: dict[str, Any] = {key: getattr(proof, key) for key in _SIZES}
    row |= {"measured": proof.measured} if proof.measured is not None else {}
    return row | {"nodes": [asdict(share) for share in proof.shares]}


def errors_of(row: Table) -> ErrorProof | None:
    """Return the errors of approximate nodes from their row in a lock file; None if it is empty.

    Raises:
        LockError: a key is missing or unknown, or its value is invalid.
    """
    if not row.data:
        return None
    row.only(*_SIZES, "measured", "nodes")
    shares = [_share(share) for share in row.tables("nodes")]
    measured = _size(row, "measured") if "measured" in row.data else None
    direct = _size(row, "direct") if "direct" in row.data else 0.0
    scale = _size(row, "scale") if "scale" in row.data else 1.0
    tolerance, budget = _size(row, "tolerance"), _size(row, "budget")
    return ErrorProof(tolerance, budget, tuple(shares), measured, direct, scale)


def _share(row: Table) -> Share:
    row.only(*(field.name for field in fields(Share)))
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
    pairs = row.get(key, list, [])
    if not all(map(_is_pair, pairs)):
        raise row.error(key, "must be a list of pairs of numbers")
    return tuple((float(first), float(second)) for first, second in pairs)


def _is_pair(value: object) -> bool:
    numbers = isinstance(value, Sequence) and [type(number) in (int, float) for number in value]
    return bool(numbers) and numbers == [True, True]
