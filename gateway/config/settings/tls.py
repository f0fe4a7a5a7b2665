"""TLS, on a listener and toward an upstream."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from gateway.config import addresses
from gateway.core.common_kinds import FILE
from gateway.core.kinds import Choice, Tag, Text, shorten
from gateway.core.setting import Shape


@dataclass(frozen=True)
class _TlsVersion(Choice):
    """A version of TLS: a word that looks like a number, quoted or not."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.TEXT, Tag.NUMBER})

    def spellings(self) -> list[object]:
        return [*self.words, *map(float, self.words)]

    def parse(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(f'"{shorten(text)}" is not spoken here; {" and ".join(self.words)} are')
        return text


_TLS_VERSION = _TlsVersion({word: word for word in ("1.2", "1.3")})


@dataclass(frozen=True, slots=True)
class TlsServer:
    """TLS on a listener. Paths are absolute; `key_file` is `cert_file` where one file holds both.

    With `client_ca_file` every client needs a certificate from one of its authorities. `stamp` digests the files'
    contents: settings that differ in nothing else mean a renewed certificate.
    """

    SHAPE: ClassVar = Shape(meant={"ca_file": "client_ca_file"})

    cert_file: Annotated[str, FILE, "PEM: the listener's certificate, then its issuers."]
    key_file: Annotated[str, FILE, "PEM: the certificate's key, without a passphrase. Default: `cert_file` holds it too."] = ""
    client_ca_file: Annotated[str | None, FILE, "PEM: with it every client needs a certificate from one of these authorities."] = None
    min_version: Annotated[str, _TLS_VERSION, "The oldest TLS version that is spoken."] = "1.2"
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class TlsClient:
    """TLS toward an upstream. Paths are absolute; `cert_file` and `key_file` are both given or both None, and may be
    one file.

    Without `ca_file` the system's authorities count; without `server_name` the target's own host is asked for and
    verified. `stamp` is as in `TlsServer`.
    """

    SHAPE: ClassVar = Shape(meant={"client_ca_file": "ca_file"})

    ca_file: Annotated[str | None, FILE, "PEM: the authorities that are trusted. Default: the system's."] = None
    cert_file: Annotated[str | None, FILE, "PEM: the certificate that the gateway shows, then its issuers."] = None
    key_file: Annotated[str | None, FILE, "PEM: the certificate's key, without a passphrase. Default: `cert_file` holds it too."] = None
    server_name: Annotated[
        str | None, Text("a host name", addresses.server_name), "The name asked for (SNI) and verified. Default: the target's host."
    ] = None
    min_version: Annotated[str, _TLS_VERSION, "The oldest TLS version that is spoken."] = "1.2"
    verify: Annotated[bool, "false: any certificate will do, also an attacker's."] = True
    stamp: str = ""
