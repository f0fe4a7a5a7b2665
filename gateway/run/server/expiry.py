"""When the certificates expire that a configuration uses."""

from collections.abc import Iterator, Mapping

from gateway.config import Config
from gateway.config.certificates import first_expiry


def expiries(config: Config) -> Mapping[str, float]:
    """By the setting that names the file, in seconds since 1970. Settings whose file holds no certificate are left out."""
    found = ((setting, first_expiry(file)) for setting, file in _files(config) if file is not None)
    return {setting: expiry for setting, expiry in found if expiry is not None}


def _files(config: Config) -> Iterator[tuple[str, str | None]]:
    for name, server in (("tls", config.tls), ("admin.tls", config.admin.tls)):
        if server is not None:
            yield f"{name}.cert_file", server.cert_file
            yield f"{name}.client_ca_file", server.client_ca_file
    for name, upstream in config.upstreams.items():
        if upstream.tls is not None:
            yield f"upstreams.{name}.tls.cert_file", upstream.tls.cert_file
            yield f"upstreams.{name}.tls.ca_file", upstream.tls.ca_file
