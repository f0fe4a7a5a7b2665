"""What several checks share."""

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from gateway.config.certificates import FileError, expiry_of, load_authorities, load_pair
from gateway.config.mistakes import Place
from gateway.config.section import Section
from gateway.core.policy import Policy, Route

Findings: TypeAlias = Iterator[tuple[Place, str]]

WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE", "OPTIONS", "TRACE"})


@dataclass(frozen=True, slots=True)
class ResolvedRoute:
    """A route, where it was written, and its policy section with `defaults` and the dialect filled in (None:
    unguarded).

    Settings whose mistakes were reported hold their defaults in `route`; ask the sections whether one is sound.
    """

    route: Route
    section: Section
    idempotency: Section | None

    @property
    def guard(self) -> tuple[Section, Policy] | None:
        """The policy, and where it was written."""
        if self.idempotency is None or self.route.policy is None:
            return None
        return self.idempotency, self.route.policy


def check_tls(tls: Section, purpose: "ssl._SSLMethod", *, cert: str | None, key: str | None, authorities: str | None) -> Findings:
    """Try the files of a section about TLS. `cert`, `key` and `authorities` are its settings."""
    context = ssl.SSLContext(purpose)
    cert_file, key_file, ca_file = tls.get(cert), tls.get(key), tls.get(authorities)
    if cert_file and tls.sound(cert, key):
        places = {key_file: tls.place_of(key), cert_file: tls.place_of(cert)}
        yield from _try(lambda: load_pair(context, cert_file, key_file or cert_file), places)
    if ca_file:
        yield from _try(lambda: load_authorities(context, ca_file), {ca_file: tls.place_of(authorities)})


def _try(load: Callable[[], None], places: dict[str | None, Place]) -> Findings:
    """What `load` finds wrong with a file, at the place that names the file."""
    try:
        load()
    except FileError as error:
        yield places[error.path], str(error)


def warn_of_expiry(tls: Section, *files: str | None) -> Findings:
    for file in files:
        path = tls.get(file)
        if path is not None and (found := expiry_of(path)):
            yield tls.place_of(file), found
