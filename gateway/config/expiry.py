"""Certificates whose time is over, or has not come. The standard library shows these dates of a certificate in use alone; so they are
read from the certificate itself (RFC 5280 section 4.1), as far as is needed: what cannot be read is judged elsewhere.
"""

import datetime as dt
import re
import ssl
from collections.abc import Iterator

from gateway.config.certificates import MAX_FILE
from gateway.runtime.local_files import LocalFileError, read_local

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION = 0x30, 0xA0
_UTC_TIME = 0x17


def expiry_of(path: str) -> str | None:
    """A sentence about the first certificate of a PEM file that does not count today. None if there is none, or it cannot be read."""
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - certificates go by the time of day, and so do those who check them
    try:
        text = read_local(path, MAX_FILE).decode("ascii", "replace")
        for begin, end in map(_validity, _PEM.findall(text)):
            if end < now:
                return f"a certificate in {path} expired on {end:%Y-%m-%d}, and is refused since; renew it"
            if begin > now:
                return f"a certificate in {path} is not valid before {begin:%Y-%m-%d}; is this machine's clock right?"
    except (LocalFileError, ValueError, IndexError):
        return None
    return None


def _validity(pem: str) -> tuple[dt.datetime, dt.datetime]:
    """From when to when it counts. Raises ValueError or IndexError for what is no certificate."""
    certificate = _inside(ssl.PEM_cert_to_DER_cert(pem))
    fields = [one for one in _elements(_inside(certificate)) if one[0] != _VERSION]
    begin, end = _elements(fields[3][1])
    return _time(*begin), _time(*end)


def _time(tag: int, content: bytes) -> dt.datetime:
    """Two digits of a year from 50 on are of the last century (section 4.1.2.5.1)."""
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        return dt.datetime.strptime(("19" if text[:2] >= "50" else "20") + text, "%Y%m%d%H%M%SZ").replace(tzinfo=dt.UTC)
    return dt.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=dt.UTC)


def _inside(der: bytes) -> bytes:
    tag, content = next(_elements(der), (0, b""))
    if tag != _SEQUENCE:
        raise ValueError("no sequence")
    return content


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of DER elements, one after the other."""
    while der:
        tag, length, start = der[0], der[1], 2
        if length & 0x80:
            start = 2 + (length & 0x7F)
            length = int.from_bytes(der[2:start], "big")
        yield tag, der[start : start + length]
        der = der[start + length :]
