"""TLS contexts for both edges, from checked settings.

The interpreter's default ciphers, nothing below TLS 1.2, no compression. Contexts are made by hand, not by `create_default_context`:
that one writes session keys to a file if a variable of the environment asks for it, and is stricter about authorities from one Python
version to the next.
"""

import ssl
import time
from dataclasses import dataclass

from gateway.config.certificates import FileError, digest_files, load_authorities, load_pair
from gateway.config.settings.tls import TlsClient, TlsServer

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_PROTOCOLS = ["http/1.1"]


class TlsError(Exception):
    """A certificate, key or authority cannot be used. `str()` is a sentence that names the file and the remedy."""


def server_context(settings: TlsServer) -> ssl.SSLContext:
    """A listener's context. With `client_ca_file` a client without a certificate of these authorities gets no connection.

    Raises TlsError.
    """
    context = _new(ssl.PROTOCOL_TLS_SERVER, settings.min_version)
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        load_pair(context, settings.cert_file, settings.key_file)
        if settings.client_ca_file is not None:
            load_authorities(context, settings.client_ca_file)
    except FileError as error:
        raise TlsError(str(error)) from None
    _demand_certificates(context, demanded=settings.client_ca_file is not None)
    context.sni_callback = _Handshakes(context, digest_files(settings.client_ca_file))
    return context


def reload_server_context(context: ssl.SSLContext, settings: TlsServer) -> None:
    """Let handshakes that begin from now on go by `settings`; connections that are open go on as they are.

    `context` is one that `server_context` made. Raises TlsError; then nothing has changed. Must be called in the thread of the loop
    that `context` serves.
    """
    fresh = server_context(settings)
    old, new = context.sni_callback, fresh.sni_callback
    assert isinstance(old, _Handshakes)
    assert isinstance(new, _Handshakes)
    demanded = settings.client_ca_file is not None
    if demanded:
        new.since = old.since if new.authorities == old.authorities else _now()
    context.minimum_version = fresh.minimum_version  # this and the next are settled before the callback
    _demand_certificates(context, demanded=demanded)
    context.sni_callback = new


def client_context(settings: TlsClient | None) -> ssl.SSLContext:
    """A context toward an upstream; None for one that is trusted if the system's authorities vouch for it. Raises TlsError."""
    context = _new(ssl.PROTOCOL_TLS_CLIENT, "1.2" if settings is None else settings.min_version)
    if settings is None or (settings.ca_file is None and settings.verify):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings is None:
        return context
    try:
        if settings.ca_file is not None:
            load_authorities(context, settings.ca_file)
        if settings.cert_file is not None:
            load_pair(context, settings.cert_file, settings.key_file or settings.cert_file)
    except FileError as error:
        raise TlsError(str(error)) from None
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _new(protocol: int, min_version: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[min_version]
    context.options |= ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a file of authorities may name an intermediate one: that one is trusted
    context.set_alpn_protocols(_PROTOCOLS)
    return context


def _demand_certificates(context: ssl.SSLContext, *, demanded: bool) -> None:
    """With certificates there are no TLS 1.3 tickets: each would be one more way around the next list of authorities."""
    context.verify_mode = ssl.CERT_REQUIRED if demanded else ssl.CERT_NONE
    context.num_tickets = 0 if demanded else 2


@dataclass(slots=True)
class _Handshakes:
    """What OpenSSL calls for every client hello, with or without a server name: the context that handshakes of now go by.

    A context can learn another certificate or authority, but never forgets one: after RSA, an ECDSA certificate would stand beside the
    old one, and a removed authority would be trusted for ever. So a handshake is handed over to a fresh context. What stays with the
    first one is the store of sessions: one that began under other `authorities`, up to the second `since`, is not resumed.
    """

    context: ssl.SSLContext
    authorities: str
    since: int = 0

    def __call__(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        if connection.context is not self.context:
            connection.context = self.context
        session = connection.session if self.since and connection.session_reused else None
        if session is not None and session.time <= self.since:
            return ssl.ALERT_DESCRIPTION_ACCESS_DENIED  # the client forgets the session and shows its certificate the next time
        return None


def _now() -> int:
    return int(time.time())  # noqa: TID251 - OpenSSL stamps sessions with the system's clock
