"""`health`: whether the gateway of a configuration is there, for those who start and watch it."""

# ruff: noqa: PLC0415, D301 - the command imports what it runs when it runs; a real backspace is click's mark for text not to be wrapped

import http.client
import os
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.operate.commands.shared import FAILURE, UNAVAILABLE, config_option, fail, reported

if TYPE_CHECKING:
    from gateway.config import Listener

TIMEOUT = 2.5
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nobody listens here


@click.command()
@config_option()
@click.option("--live", is_flag=True, help="Whether it is alive (/livez), rather than ready (/readyz).")
def health(config: Path, live: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Ask the gateway of a configuration whether it is ready, on this machine.

    \b
      idempotency-gateway health --config gateway.yaml
      idempotency-gateway health --config gateway.yaml --live

    Only the `admin` section is read. Exit codes: 0 it is, 1 it says that it is not (and why), 69 no answer.
    """
    with reported():
        from gateway.config.load import load_admin

        listener, secure = load_admin(config, os.environ)
    try:
        status, text = _ask(listener, "/livez" if live else "/readyz", secure=secure)
    except (OSError, http.client.HTTPException) as error:
        fail(f"{listener}: {getattr(error, 'strerror', None) or error or 'no answer'}", UNAVAILABLE)
    if status != 200:
        fail(text, FAILURE)
    click.echo(text)


def _ask(listener: "Listener", path: str, *, secure: bool) -> tuple[int, str]:
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT)
    connection.sock = _connect(listener, secure=secure)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace").strip()
    finally:
        connection.close()


def _connect(listener: "Listener", *, secure: bool) -> socket.socket:
    sock = _plain(listener)
    if not secure:
        return sock
    # Nothing secret is sent, and the certificate is for the names that others know this machine by.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with sock:  # which hands its descriptor over, or is closed
        return context.wrap_socket(sock)


def _plain(listener: "Listener") -> socket.socket:
    from gateway.config import TcpListener

    if isinstance(listener, TcpListener):
        return socket.create_connection((_ANY.get(listener.host, listener.host), listener.port), TIMEOUT)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(TIMEOUT)
    try:
        sock.connect(listener.path)
    except BaseException:
        sock.close()
        raise
    return sock
