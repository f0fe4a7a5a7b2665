"""`python -m gateway.run.worker`: a worker, with what its supervisor left in its environment (see `gateway.run.supervisor`)."""

# ruff: noqa: PLC0415 - the collector is told what is coming before the imports, which are nearly all of a start

import os
import sys

from gateway.runtime import collector


def main() -> int:
    collector.look_seldom()
    from gateway.observe import logs
    from gateway.run.server.process import Process, run
    from gateway.run.server.worker import ACCEPT_CLOCK, ACCEPT_SCOPE_CHANGE, CONFIG_FD, Worker, config_of

    with os.fdopen(int(os.environ[CONFIG_FD]), "rb") as snapshot:
        config = config_of(snapshot.read())
    logs.configure("INFO")
    process = Process(config, worker=Worker.of(os.environ))
    return run(process, accept_scope_change=ACCEPT_SCOPE_CHANGE in sys.argv, accept_clock=ACCEPT_CLOCK in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
