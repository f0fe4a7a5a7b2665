"""Configuration: a YAML file and the environment become one frozen `Config`, or all of their mistakes at once."""

from gateway.config.addresses import Listener, TcpListener, UnixListener
from gateway.config.load import load, load_admin
from gateway.config.mistakes import ConfigErrors, Mistake, Place
from gateway.config.model import (
    Admin,
    ClientSettings,
    Config,
    DrainSettings,
    MemorySettings,
    OidcSettings,
    PostgresSettings,
    RedisSettings,
    SessionSettings,
    TlsClient,
    TlsServer,
    UpstreamConfig,
    UpstreamHealth,
    UpstreamTimeouts,
    User,
)
from gateway.config.redact import redact
from gateway.config.schema import json_schema
from gateway.config.table import dialect_table, route_table, settings_table

__all__ = [
    "Admin",
    "ClientSettings",
    "Config",
    "ConfigErrors",
    "DrainSettings",
    "Listener",
    "MemorySettings",
    "Mistake",
    "OidcSettings",
    "Place",
    "PostgresSettings",
    "RedisSettings",
    "SessionSettings",
    "TcpListener",
    "TlsClient",
    "TlsServer",
    "UnixListener",
    "UpstreamConfig",
    "UpstreamHealth",
    "UpstreamTimeouts",
    "User",
    "dialect_table",
    "json_schema",
    "load",
    "load_admin",
    "redact",
    "route_table",
    "settings_table",
]
