"""Keys that verify tokens: files of public ones (RFC 7517), and shared secrets."""

import json
import re
from importlib.util import find_spec

from gateway.config.certificates import FileError
from gateway.runtime.local_files import LocalFileError, TooLarge, read_local

MAX_FILE = 512 * 1024
_PUBLIC = re.compile(rb"-----BEGIN [A-Z0-9 ]+-----|(?:ssh|ecdsa|sk-ssh)-[a-z0-9@.-]+ AAAA")


def missing_library() -> str | None:
    """What is not installed of that which verifies tokens: it is an extra. None if it is all there."""
    return next((name for name in ("jwt", "cryptography") if find_spec(name) is None), None)


def looks_public(secret: bytes) -> bool:
    """Whether a shared secret is a key or a certificate in PEM form or in that of OpenSSH."""
    return _PUBLIC.search(secret) is not None


def usable_algorithms(path: str) -> frozenset[str]:
    """The algorithms for which a JWK Set has a key that verifies signatures. Raises FileError if it is none, or holds
    what is private.
    """
    from gateway.principal.keys import read_key_set  # noqa: PLC0415 - it loads the cryptography, which nothing else here needs

    try:
        raw = read_local(path, MAX_FILE)
    except TooLarge:
        raise FileError(path, f"cannot use {path}: it is larger than 512KiB") from None
    except LocalFileError as error:
        raise FileError(path, f"cannot read {path}: {error}") from None
    try:
        keys = read_key_set(raw)
    except ValueError:
        raise FileError(path, f'cannot use {path}: it is no JWK Set, {{"keys": [...]}} in JSON (RFC 7517 section 5)') from None
    if any("d" in key or "k" in key for key in json.loads(raw)["keys"]):
        raise FileError(path, f"{path} holds a private or secret key; keep here what the issuer publishes, public keys alone")
    return frozenset[str]().union(*(key.algorithms for key in keys))
