"""Mistakes between values of one listener, of the clients' limits or of memory, and with what is on disk."""

import os
import ssl
import stat
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from gateway.config.certificates import FileError, load_authorities, load_pair
from gateway.config.edge_fields import MemoryFields, TlsServerFields
from gateway.config.fields import AdminFields, ConfigFields
from gateway.config.kinds import Reader
from gateway.config.mistakes import Place
from gateway.config.model import UnixListener
from gateway.config.policy_fields import IdempotencyFields, LimitFields
from gateway.config.resolve import ResolvedRoute
from gateway.config.shapes import Field, Section
from gateway.config.units import format_size

ROOM = 4
"""How many of the largest bodies should fit into memory at once."""


def check_edges(reader: Reader, root: Section, routes: Sequence[ResolvedRoute]) -> None:
    admin = root.sub(ConfigFields.ADMIN)
    _check_socket(reader, root, ConfigFields.LISTEN)
    _check_socket(reader, admin, AdminFields.LISTEN)
    _check_socket(reader, root, ConfigFields.WEBHOOK_LISTEN)
    if root.given(ConfigFields.TLS):
        _check_tls(reader, root.sub(ConfigFields.TLS))
    if admin.given(AdminFields.TLS):
        _check_tls(reader, admin.sub(AdminFields.TLS))
    _check_folder(reader, root.sub(ConfigFields.MEMORY))
    _check_memory(reader, root.sub(ConfigFields.MEMORY), routes)


def _check_tls(reader: Reader, tls: Section) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if tls.sound(TlsServerFields.CERT_FILE, TlsServerFields.KEY_FILE):
        cert_file, key_file = tls.get(TlsServerFields.CERT_FILE), tls.get(TlsServerFields.KEY_FILE)
        assert cert_file is not None
        places = {cert_file: tls.place_of(TlsServerFields.CERT_FILE)}
        if key_file is not None:
            places.setdefault(key_file, tls.place_of(TlsServerFields.KEY_FILE))
        try_files(reader, lambda: load_pair(context, cert_file, key_file or cert_file), places)
    client_ca_file = tls.get(TlsServerFields.CLIENT_CA_FILE)
    if client_ca_file is not None:
        try_files(reader, lambda: load_authorities(context, client_ca_file), {client_ca_file: tls.place_of(TlsServerFields.CLIENT_CA_FILE)})


def try_files(reader: Reader, load: Callable[[], None], places: dict[str, Place]) -> None:
    """Report what `load` finds wrong with a file, at the place that names the file."""
    try:
        load()
    except FileError as error:
        reader.report(places[error.path], str(error))


def _check_socket(reader: Reader, section: Section, field: Field[Any]) -> None:
    listen = section.get(field)
    if section.sound(field) and isinstance(listen, UnixListener):
        folder = os.path.dirname(listen.path)
        if (what := no_folder(folder)) is not None:
            reader.report(section.place_of(field), f"{folder} {what}; make it (mkdir -p) for the user of the gateway, or name another")
        elif no_folder(listen.path) is None:
            reader.report(section.place_of(field), f"{listen.path} is a folder; name a socket in it, as in unix:{listen.path}/gateway.sock")


def no_folder(path: str) -> str | None:
    """Why this is no folder, as the end of a sentence; None if it is one."""
    try:
        return None if stat.S_ISDIR(os.stat(path).st_mode) else "is not a folder"
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be used as a folder ({error.strerror})"


def _check_folder(reader: Reader, memory: Section) -> None:
    folder = memory.get(MemoryFields.SPILL_DIRECTORY)
    if folder is None:
        return
    place = memory.place_of(MemoryFields.SPILL_DIRECTORY)
    if (what := no_folder(folder)) is not None:
        reader.report(place, f"{folder} {what}; make it (mkdir -p), or leave this out for the system's temporary directory")
        return
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        words = f"no file can be made in {folder} by this user ({error.strerror})"
        reader.report(place, f"{words}; give it the folder (chown), or name another")


def largest_body(routes: Sequence[ResolvedRoute], *fields: str) -> tuple[int, str, Place] | None:
    """The greatest of these limits of all guarded routes: its size, the words for it and its place. None if none can be judged."""
    found: list[tuple[int, str, Place]] = []
    for one in routes:
        if one.idempotency is None or one.route.policy is None:
            continue
        limits = one.idempotency.sub(IdempotencyFields.LIMITS)
        for field in (LimitFields.RESPONSE_BODY, LimitFields.REQUEST_BODY):
            if field.name in fields and limits.sound(field):
                size = limits.get(field)
                found.append((size, f"the {field.name} of route `{one.route.id}`, {format_size(size)}", limits.place_of(field)))
    return max(found, key=lambda one: one[0], default=None)


def total_and(memory: Section, limit: Place) -> tuple[Place, str]:
    """Where to say that memory.total is too small for a limit: at what the file gives, and its name where the place does not say it."""
    total = format_size(memory.get(MemoryFields.TOTAL))
    if memory.given(MemoryFields.TOTAL):
        return memory.place_of(MemoryFields.TOTAL), total
    return limit, f"memory.total, {total},"


def _check_memory(reader: Reader, memory: Section, routes: Sequence[ResolvedRoute]) -> None:
    """An answer is whole in memory when it is committed and when it is replayed; a request body need not be."""
    largest = largest_body(routes, "response_body")
    if not memory.sound(MemoryFields.TOTAL) or largest is None:
        return
    size, words, place = largest
    total = memory.get(MemoryFields.TOTAL)
    if size > total:
        remedy = f"make memory.total at least {format_size(ROOM * size)}, or the limit smaller"
        where, subject = total_and(memory, place)
        reader.report(where, f"{subject} is less than {words}: such an answer could never be kept; {remedy}")
