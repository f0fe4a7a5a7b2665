"""Records by one word: what a person copies from a list into the next command, or into a path.

The long word says which record it is. The short one is for people: it has to be looked for, and two records out of a million share one
with a probability of one in two thousand.
"""

import re
from base64 import b32decode, b32encode, urlsafe_b64decode, urlsafe_b64encode

from gateway.core.model import RecordKey

_PREFIX = "rec_"
_SHORT = re.compile(r"rec_[a-z2-7]{10}", re.ASCII)  # a long one has more letters: it names a scope id, of seven at least


def record_id_text(key: RecordKey) -> str:
    """`rec_` and the unpadded base64url (RFC 4648 section 5) of scope id, NUL, key. Names the key's record of any life."""
    return _PREFIX + urlsafe_b64encode(f"{key.scope_id}\0{key.key}".encode()).rstrip(b"=").decode()


def parse_record_id(text: str) -> RecordKey:
    """The inverse of `record_id_text`. Raises ValueError for anything that it did not make."""
    encoded = text.removeprefix(_PREFIX)
    try:
        scope_id, nul, key = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode().partition("\0")
    except ValueError:
        raise _no_id() from None
    found = RecordKey(scope_id, key)
    if not nul or not scope_id or "\0" in key or record_id_text(found) != text:
        raise _no_id()
    return found


def short_id_text(key: RecordKey) -> str:
    """`rec_` and ten letters and digits: the first 50 bits of the record's lookup digest."""
    return _PREFIX + b32encode(key.lookup_digest()[:10]).decode()[:10].lower()


def parse_short_id(text: str) -> tuple[bytes, bytes] | None:
    """Between which lookup digests, as far as these go, the record's lies; None for anything that is no short id."""
    if not _SHORT.fullmatch(text):
        return None
    letters = text.removeprefix(_PREFIX).upper()
    low, high = (b32decode(letters + last * 6)[:7] for last in ("A", "7"))
    return low, high


def _no_id() -> ValueError:
    return ValueError("this is no record id: copy it whole from a list, it begins with rec_")
