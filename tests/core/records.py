"""Records and fingerprints to judge, each different from the rest only where a test says so."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from gateway.core.model import Fingerprint, Record, RecordKey, Status, StoredResponse

FINGERPRINT = Fingerprint(1, b"p" * 16, b"f" * 32)
OTHERS = {
    "digest": replace(FINGERPRINT, digest=b"g" * 32),
    "policy": replace(FINGERPRINT, policy=b"q" * 16),
    "version": replace(FINGERPRINT, version=2),
}
"""Fingerprints that are not the record's."""

RESPONSE = StoredResponse(201, b"Created", ((b"Location", b"/v1/charges/7"),), b"{}", 2, b"d" * 32)


def record(status: Status, **facts: Any) -> Record:
    """A record in this state; a completed one has its response unless told otherwise."""
    facts.setdefault("response", RESPONSE if status is Status.COMPLETED else None)
    return Record(RecordKey("charges:none", "k"), UUID(int=7), 3, status, FINGERPRINT, b"o" * 16, 1, "request-1", **facts)
