"""Authorities and certificates for tests, in files as a configuration names them."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Authority:
    """Somebody who signs certificates; the file `ca` is what others trust. Each certificate's file holds its key too."""

    folder: Path
    name: str
    signer: trustme.CA = field(default_factory=trustme.CA)

    @property
    def ca(self) -> Path:
        path = self.folder / f"{self.name}-ca.pem"
        if not path.exists():
            self.signer.cert_pem.write_to_path(str(path))
        return path

    def issue(self, name: str, *identities: str) -> Path:
        """A certificate for servers and clients in a file named after `name`, made anew in place if it was there."""
        path = self.folder / f"{self.name}-{name}.pem"
        issued = self.signer.issue_cert(*(identities or ("localhost", "127.0.0.1")), common_name=name)
        path.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        return path

    def trusting(self, shown: Path | None = None) -> ssl.SSLContext:
        """A client's context that trusts this authority alone, and shows a certificate if there is one to show."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if shown is not None:
            context.load_cert_chain(shown)
        return context

    def serving(self, pair: Path, *, asking: bool = False) -> ssl.SSLContext:
        """A server's context; `asking` demands a certificate of this authority from each client."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca) if asking else None)
        context.load_cert_chain(pair)
        if asking:
            context.verify_mode = ssl.CERT_REQUIRED
        return context
