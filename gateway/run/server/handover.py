"""How a supervisor hands its configuration over to workers: as it was accepted, never as a file that may have changed
since.

What is handed over is the resolved `Config` and the contents of the TLS files that it names, since a context is loaded
from files. A worker keeps those in files of its own that exist in memory alone.
"""

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeVar

from gateway.config import Config, TlsClient, TlsServer
from gateway.config.certificates import MAX_FILE
from gateway.runtime.local_files import read_local

Tls = TypeVar("Tls", TlsServer, TlsClient)

_FILES = ("cert_file", "key_file", "client_ca_file", "ca_file")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An accepted configuration. `files` are the contents of its TLS files, by path."""

    config: Config
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, config: Config) -> "Snapshot":
        """Read what `config` names. Raises `LocalFileError`."""
        settings = [config.tls, config.admin.tls, *(upstream.tls for upstream in config.upstreams.values())]
        named = {path for one in settings if one is not None for path in _paths(one).values()}
        return cls(config, {path: read_local(path, MAX_FILE) for path in named})

    def pack(self) -> bytes:
        """For a worker of the same program: `unpack` reads it."""
        return pickle.dumps(self)


def unpack(packed: bytes) -> Snapshot:
    """What `Snapshot.pack` made. The bytes must be one's own supervisor's."""
    snapshot = pickle.loads(packed)  # noqa: S301 - over a pipe or a private socket, from the process that started this one
    assert isinstance(snapshot, Snapshot)
    return snapshot


class Unpacked:
    """Configurations out of snapshots, whose TLS settings name files in memory. Equal contents are one file: equal
    settings stay equal.
    """

    def __init__(self) -> None:
        self._files: dict[bytes, str] = {}

    def config(self, snapshot: Snapshot) -> Config:
        """The configuration of a snapshot."""
        config, files = snapshot.config, snapshot.files
        return replace(
            config,
            tls=None if config.tls is None else self._in_memory(config.tls, files),
            admin=config.admin if config.admin.tls is None else replace(config.admin, tls=self._in_memory(config.admin.tls, files)),
            upstreams={
                name: upstream if upstream.tls is None else replace(upstream, tls=self._in_memory(upstream.tls, files))
                for name, upstream in config.upstreams.items()
            },
        )

    def _in_memory(self, settings: Tls, files: Mapping[str, bytes]) -> Tls:
        paths: dict[str, Any] = {name: self._path(files[path]) for name, path in _paths(settings).items()}
        return replace(settings, **paths)

    def _path(self, content: bytes) -> str:
        digest = sha256(content).digest()
        if digest not in self._files:
            self._files[digest] = f"/proc/self/fd/{memory_file(content)}"
        return self._files[digest]


def memory_file(content: bytes) -> int:
    """A descriptor, at its beginning, of a file that takes no room on any disk. No child inherits it unless its parent
    passes it on.
    """
    descriptor = os.memfd_create("idempotency-gateway")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _paths(settings: TlsServer | TlsClient) -> dict[str, str]:
    """The files that TLS settings name, by field."""
    return {name: path for name in _FILES if (path := getattr(settings, name, None)) is not None}
