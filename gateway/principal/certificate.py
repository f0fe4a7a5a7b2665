"""The subject of a client's certificate as bytes that stay the same as long as the subject does. Pure, but for asking OpenSSL for it.

Neither the text that OpenSSL makes of a subject will do, since later versions know names for more attributes, nor its DER alone, since
one text has several types of string there (RFC 5280 section 4.1.2.4) and a renewed certificate may use another.
"""

import ssl
from collections.abc import Iterator

from gateway.core.scope import length_prefixed

_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_CODECS = {
    0x0C: "utf-8",  # UTF8String
    0x12: "ascii",  # NumericString
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # TeletexString, as everybody reads it
    0x16: "ascii",  # IA5String
    0x1A: "ascii",  # VisibleString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}


def certificate_subject(connection: ssl.SSLObject | ssl.SSLSocket | None) -> bytes | None:
    """The subject of the peer's certificate; None without TLS, without a certificate, or if its subject is empty.

    Its answer holds for the connection. Only for servers that demand certificates: then OpenSSL has verified it.
    """
    der = None if connection is None else connection.getpeercert(binary_form=True)
    return None if der is None else subject_of(der)


def subject_of(certificate: bytes) -> bytes | None:
    """The subject of a DER certificate (RFC 5280 section 4.1), injective in its attributes' types and texts, in their order.

    None if it is empty, or the bytes are no certificate.
    """
    try:
        names = [length_prefixed(sorted(_attributes(members))) for members in _relative_names(certificate)]
    except (IndexError, ValueError):
        return None
    return length_prefixed(names) if names else None


def _relative_names(certificate: bytes) -> Iterator[bytes]:
    """The contents of each set of attributes in the subject."""
    tbs = _expect(_SEQUENCE, _expect(_SEQUENCE, certificate))
    elements = [element for element in _elements(tbs) if element[0] != _VERSION]
    tag, subject = elements[4]  # serialNumber, signature, issuer, validity, subject
    if tag != _SEQUENCE:
        raise ValueError("no subject")
    for member_tag, members in _elements(subject):
        if member_tag != _SET:
            raise ValueError("no relative name")
        yield members


def _attributes(members: bytes) -> Iterator[bytes]:
    for tag, attribute in _elements(members):
        (type_tag, kind), (value_tag, value) = _elements(attribute)
        if tag != _SEQUENCE or type_tag != _OID:
            raise ValueError("no attribute")
        codec = _CODECS.get(value_tag)
        yield length_prefixed([kind, value.decode(codec).encode()] if codec else [kind, value, b"%d" % value_tag])


def _expect(tag: int, data: bytes) -> bytes:
    """The contents of the first element, which must have this tag."""
    found, contents = next(_elements(data), (None, b""))
    if found != tag:
        raise ValueError("another element was expected")
    return contents


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The (tag, contents) of DER elements one after the other. Raises IndexError or ValueError where they end early."""
    place = 0
    while place < len(data):
        tag, length = data[place], data[place + 1]
        place += 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise ValueError("a length that no certificate has")
            length = int.from_bytes(data[place : place + size], "big")
            place += size
        if place + length > len(data):
            raise ValueError("an element that ends behind its bytes")
        yield tag, data[place : place + length]
        place += length
