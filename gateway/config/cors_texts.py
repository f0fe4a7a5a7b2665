"""Origins, as browsers write them (Fetch standard, section 3.2)."""

import re

ORIGIN_PATTERN = r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s]+)$"

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s,*]+")
_DEFAULTS = {"http": ":80", "https": ":443"}


def origin(text: str) -> str:
    """`*`, or scheme, host and, if it is not the scheme's own, port."""
    if text == "*":
        return text
    plain = text.lower()
    scheme, _, host = plain.partition("://")
    if not _ORIGIN.fullmatch(plain) or not plain.isascii():
        raise ValueError(f'"{text[:70]}" is no origin; write scheme, host and perhaps a port, as in https://shop.example, or *')
    if host.endswith(_DEFAULTS.get(scheme, "/")):
        raise ValueError(f"browsers leave out the port that is the scheme's own; write {scheme}://{host.rpartition(':')[0]}")
    return plain
