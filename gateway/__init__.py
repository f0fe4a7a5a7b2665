"""The idempotency gateway: a reverse proxy that gives any HTTP API the `Idempotency-Key` contract."""

from typing import TYPE_CHECKING

__version__: str
"""Of the package as it was installed. Looked up when it is first asked for, which `--help` does not."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(name)
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - see above

        try:
            found = version("idempotency-gateway")
        except PackageNotFoundError:  # sources that were never installed
            found = "0.1.dev0"
        globals()["__version__"] = found
        return found
