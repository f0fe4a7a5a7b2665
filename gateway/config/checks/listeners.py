"""Listeners, clients' limits and memory: mistakes between their values and with what is on disk, and what is rarely
meant.
"""

import os
import ssl
import stat
import tempfile
from collections.abc import Sequence

from gateway.config.addresses import Listener, UnixListener, overlap
from gateway.config.checks.common import Findings, ResolvedRoute, check_tls, warn_of_expiry
from gateway.config.mistakes import Place
from gateway.config.names import ADMIN, CLIENT, CONFIG, LIMITS, MEMORY, POLICY, PROGRESS, TLS_SERVER
from gateway.config.section import Section
from gateway.core.headers import Forwarding
from gateway.core.setting import setting_of
from gateway.core.units import format_size

ROOM = 4
"""How many of the largest bodies should fit into memory at once."""


def check_listeners(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    admin, memory = root.sub(CONFIG.admin), root.sub(CONFIG.memory)
    yield from _check_admin(root, admin)
    yield from _check_webhook_listener(root, admin)
    yield from _check_socket(root, CONFIG.listen)
    yield from _check_socket(admin, ADMIN.listen)
    yield from _check_socket(root, CONFIG.webhook_listen)
    yield from _check_progress_listener(root, admin)
    for section, tls in ((root, CONFIG.tls), (admin, ADMIN.tls)):
        if section.given(tls):
            names = {"cert": TLS_SERVER.cert_file, "key": TLS_SERVER.key_file, "authorities": TLS_SERVER.client_ca_file}
            yield from check_tls(section.sub(tls), ssl.PROTOCOL_TLS_SERVER, **names)
    yield from _check_folder(memory)
    yield from _check_memory(memory, routes)


def _check_admin(root: Section, admin: Section) -> Findings:
    listen = admin.get(ADMIN.listen)
    if not admin.sound(ADMIN.listen):
        return
    if admin.sound(ADMIN.token, ADMIN.users) and not listen.loopback and _knows_nobody(admin):
        yield admin.place_of(ADMIN.token), f"is required, or `admin.users`, since {listen} can be reached from other machines"
    if (shared := _shared(root, CONFIG.listen, "listen", listen)) is not None:
        yield admin.place_of(ADMIN.listen), shared


def _knows_nobody(admin: Section) -> bool:
    return admin.get(ADMIN.token) is None and not admin.each(ADMIN.users) and not admin.given(ADMIN.oidc)


def _check_webhook_listener(root: Section, admin: Section) -> Findings:
    listen, place = root.get(CONFIG.webhook_listen), root.place_of(CONFIG.webhook_listen)
    if listen is None or not root.sound(CONFIG.webhook_listen):
        return
    if (shared := _shared(root, CONFIG.listen, "listen", listen)) is not None:
        yield place, f"{shared}; leave this out to take webhooks there"
    if (shared := _shared(admin, ADMIN.listen, "admin.listen", listen)) is not None:
        yield place, f"{shared}; providers have no business there"


def _check_progress_listener(root: Section, admin: Section) -> Findings:
    progress = root.sub(CONFIG.progress)
    if not root.given(CONFIG.progress) or progress.lost or not progress.sound(PROGRESS.listen):
        return
    if not progress.has(PROGRESS.listen):
        yield progress.place_of(PROGRESS.listen), "is required: an address such as 127.0.0.1:9465"
        return
    listen, place = progress.get(PROGRESS.listen), progress.place_of(PROGRESS.listen)
    others = ((root, CONFIG.listen, "listen"), (root, CONFIG.webhook_listen, "webhook_listen"), (admin, ADMIN.listen, "admin.listen"))
    for section, setting, name in others:
        if setting is not None and (shared := _shared(section, setting, name, listen)) is not None:
            yield place, f"{shared}; upstreams have a listener of their own"
    yield from _check_socket(progress, PROGRESS.listen)


def _shared(section: Section, setting: Listener, name: str, listen: Listener) -> str | None:
    """What `listen` and the listener of another setting share, in words; None if both can be listened on."""
    other = section.get(setting)
    if not section.sound(setting) or not overlap(other, listen):
        return None
    return f"{listen} is the address of `{name}` too" if other == listen else f"{listen} is one of the addresses of `{name}`, {other}"


def _check_socket(section: Section, setting: Listener | None) -> Findings:
    listen, place = section.get(setting), section.place_of(setting)
    if section.sound(setting) and isinstance(listen, UnixListener):
        folder = os.path.dirname(listen.path)
        if (what := _no_folder(folder)) is not None:
            yield place, f"{folder} {what}; make it (mkdir -p) for the user of the gateway, or name another"
        elif _no_folder(listen.path) is None:
            yield place, f"{listen.path} is a folder; name a socket in it, as in unix:{listen.path}/gateway.sock"


def _no_folder(path: str) -> str | None:
    """Why this is no folder, as the end of a sentence; None if it is one."""
    try:
        return None if stat.S_ISDIR(os.stat(path).st_mode) else "is not a folder"
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be used as a folder ({error.strerror})"


def _check_folder(memory: Section) -> Findings:
    folder, place = memory.get(MEMORY.spill_directory), memory.place_of(MEMORY.spill_directory)
    if folder is None:
        return
    if (what := _no_folder(folder)) is not None:
        yield place, f"{folder} {what}; make it (mkdir -p), or leave this out for the system's temporary directory"
        return
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        words = f"no file can be made in {folder} by this user ({error.strerror})"
        yield place, f"{words}; give it the folder (chown), or name another"


def _largest_body(routes: Sequence[ResolvedRoute], *settings: int) -> tuple[int, str, Place] | None:
    """The greatest of these limits of all guarded routes: its size, the words for it and its place. None if none can be
    judged.
    """
    found: list[tuple[int, str, Place]] = []
    for one in routes:
        limits = None if one.idempotency is None else one.idempotency.sub(POLICY.limits)
        for setting in settings:
            if limits is not None and limits.sound(setting):
                size, name = limits.get(setting), setting_of(setting).name
                found.append((size, f"the {name} of route `{one.route.id}`, {format_size(size)}", limits.place_of(setting)))
    return max(found, key=lambda one: one[0], default=None)


def _total_and(memory: Section, limit: Place) -> tuple[Place, str]:
    """Where to say that memory.total is too small for a limit: at what the file gives, and its name where the place
    does not say it.
    """
    total = format_size(memory.get(MEMORY.total))
    if memory.given(MEMORY.total):
        return memory.place_of(MEMORY.total), total
    return limit, f"memory.total, {total},"


def _check_memory(memory: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    """An answer is whole in memory when it is committed and when it is replayed; a request body need not be."""
    largest = _largest_body(routes, LIMITS.response_body)
    if not memory.sound(MEMORY.total) or largest is None:
        return
    size, words, place = largest
    if size > memory.get(MEMORY.total):
        where, subject = _total_and(memory, place)
        remedy = f"make memory.total at least {format_size(ROOM * size)}, or the limit smaller"
        yield where, f"{subject} is less than {words}: such an answer could never be kept; {remedy}"


def warn_of_listeners(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    yield from _warn_of_forwarding(root)
    yield from _warn_of_clients(root.sub(CONFIG.client))
    yield from _warn_of_memory(root.sub(CONFIG.memory), routes)
    for tls in (root.sub(CONFIG.tls), root.sub(CONFIG.admin).sub(ADMIN.tls)):
        yield from warn_of_expiry(tls, TLS_SERVER.cert_file, TLS_SERVER.client_ca_file)


def _warn_of_forwarding(root: Section) -> Findings:
    proxies = root.get(CONFIG.trusted_proxies)
    for network in proxies:
        if network.prefixlen == 0:
            words = "is everybody: each client is believed about who it is, whatever it writes"
            yield root.place_of(CONFIG.trusted_proxies), f"{network} {words}; name the networks of the proxies in front"
    if root.get(CONFIG.forwarded) is Forwarding.NONE and proxies:
        words = "none: upstreams learn nothing about the client, although `trusted_proxies` are believed about it"
        yield root.place_of(CONFIG.forwarded), words


def _warn_of_clients(client: Section) -> Findings:
    total, each = client.get(CLIENT.max_connections), client.get(CLIENT.max_connections_per_address)
    if each > total:
        place = client.place_of(CLIENT.max_connections_per_address)
        yield place, f"{each} is greater than max_connections ({total}), and so never counts"


def _warn_of_memory(memory: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    largest = _largest_body(routes, LIMITS.response_body, LIMITS.request_body)
    if largest is None or memory.get(MEMORY.total) >= ROOM * largest[0]:
        return
    size, words, place = largest
    where, subject = _total_and(memory, place)
    fills = f"{subject} is less than {ROOM} times {words}: a few such bodies fill it, then work gets 503"
    yield where, f"{fills}; {format_size(ROOM * size)} or more would do"
