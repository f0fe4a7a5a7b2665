"""`python -m gateway`: the same as the command `idempotency-gateway`."""

from gateway.cli import main

if __name__ == "__main__":
    main(prog_name="idempotency-gateway")
