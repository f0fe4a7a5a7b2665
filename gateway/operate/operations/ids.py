"""Records by one word: what a person copies from a list into the next command, or into a path."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from gateway.core.model import RecordKey

_PREFIX = "rec_"


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


def _no_id() -> ValueError:
    return ValueError("this is no record id: copy it whole from a list, it begins with rec_")
