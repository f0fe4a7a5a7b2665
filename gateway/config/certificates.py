"""Certificates, keys and authorities in PEM files: loaded into a TLS context, or refused with the file at fault and a
remedy.
"""

import datetime as dt
import hashlib
import re
import ssl
from collections.abc import Iterator
from typing import NoReturn

from gateway.runtime.local_files import LocalFileError, TooLarge, read_local

MAX_FILE = 4 * 1024 * 1024

_CERTIFICATE = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----")
_OTHER_KEY = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}
_WEAK = {"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"}


class FileError(ValueError):
    """`path` is the file at fault. `str()` names it and says what to do; it never shows what a file holds."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class _LockedError(Exception):
    """OpenSSL asked for a passphrase."""


def load_pair(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    """Load a certificate with its issuers, and its key (possibly the same file). Raises FileError; then `context` is
    not to be used.
    """
    if not _CERTIFICATE.search(_read(cert_file)):
        raise _unusable(cert_file, f"it holds no certificate in PEM form; convert one with: openssl x509 -inform DER -in {cert_file}")
    if not _KEY.search(_read(key_file)):
        remedy = "name the key's file in `key_file`" if key_file == cert_file else f"convert one with: openssl pkey -in {key_file}"
        raise _unusable(key_file, f"it holds no private key in PEM form; {remedy}")
    try:
        context.load_cert_chain(cert_file, key_file, password=_refuse)
    except _LockedError:
        remedy = f"store it without one: openssl pkey -in {key_file} -out PLAIN"
        raise _unusable(key_file, f"its key needs a passphrase, and nobody is there to type one; {remedy}") from None
    except ssl.SSLError as error:
        raise _blame(error, cert_file, key_file) from None
    except OSError as error:
        raise _unreadable(cert_file, error) from None


def load_authorities(context: ssl.SSLContext, path: str) -> None:
    """Trust the certificates of a file, one or more, besides those that `context` trusts already. Raises FileError, as
    above.
    """
    if not _CERTIFICATE.search(_read(path)):
        raise _unusable(path, "it holds no certificate in PEM form; put one or more authorities into it")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise _damaged(path, "certificate") from None
    except OSError as error:
        raise _unreadable(path, error) from None


def digest_files(*paths: str | None) -> str:
    """A short digest of the contents of these files, in order, that changes when any of them does. Empty if one cannot
    be read.
    """
    total = hashlib.sha256()
    try:
        for path in paths:
            content = b"" if path is None else _read(path)
            total.update(len(content).to_bytes(8, "big") + content)
    except FileError:
        return ""
    return total.hexdigest()[:32]


def _read(path: str) -> bytes:
    try:
        return read_local(path, MAX_FILE)
    except TooLarge:
        raise _unusable(path, "it is larger than 4MiB") from None
    except LocalFileError as error:
        raise FileError(path, f"cannot read {path}: {error}") from None


def _refuse() -> NoReturn:
    raise _LockedError


def _blame(error: ssl.SSLError, cert_file: str, key_file: str) -> FileError:
    """OpenSSL says what is wrong, but not where."""
    if error.reason in _OTHER_KEY:
        return _unusable(
            key_file,
            f"its key does not belong to the first certificate of {cert_file}; one's own certificate comes first, then its issuers",
        )
    if error.reason in _WEAK:
        return _unusable(cert_file, "a key or a signature in it is too weak to be trusted; use RSA of 2048 bits or more, or P-256")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert_file)
    except ssl.SSLError:
        return _damaged(cert_file, "certificate")
    return _damaged(key_file, "key")


def _damaged(path: str, what: str) -> FileError:
    return _unusable(path, f"a {what} in it is damaged; copy the file again")


def _unusable(path: str, why: str) -> FileError:
    return FileError(path, f"cannot use {path}: {why}")


def _unreadable(path: str, error: OSError) -> FileError:
    return FileError(path, f"cannot read {path}: {error.strerror or error}")


_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION = 0x30, 0xA0
_UTC_TIME = 0x17


def expiry_of(path: str) -> str | None:
    """A sentence about the first certificate of a PEM file that does not count today. None if there is none, or it
    cannot be read.
    """
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


def first_expiry(path: str) -> float | None:
    """When the first certificate of a PEM file expires, in seconds since 1970. None if there is none, or it cannot be
    read.
    """
    try:
        ends = [end for _, end in map(_validity, _PEM.findall(read_local(path, MAX_FILE).decode("ascii", "replace")))]
    except (LocalFileError, ValueError, IndexError):
        return None
    return min(ends).timestamp() if ends else None


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
