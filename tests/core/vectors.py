"""Golden vectors. What they pin is stored in databases: a change here is a new fingerprint version, never an edit."""

import hashlib
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "vectors"


def load(name: str) -> list[dict[str, Any]]:
    """The cases of one file."""
    cases: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return cases


def octets(described: Any) -> bytes:
    """What a vector describes: a text, octets in hex, a list of such, one of them so many times, or what is made of a list of them: each
    after its length, or their SHA-256.
    """
    match described:
        case str():
            return described.encode()
        case {"hex": digits}:
            return bytes.fromhex(digits)
        case {"unit": unit, "times": times}:
            return octets(unit) * int(times)
        case {"prefixed": parts}:
            return b"".join(b"%d:%b," % (len(part), part) for part in map(octets, parts))
        case {"sha256": parts}:
            return hashlib.sha256(octets(parts)).digest()
        case _:
            return b"".join(map(octets, described))
