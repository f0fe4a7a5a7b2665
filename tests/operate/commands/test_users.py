"""Tokens for people, and commands that are given one."""

import re
from pathlib import Path

import pytest

from gateway.core.user_token import digest_of, is_token, write_digest
from tests.operate.commands.support import LEAST, run, write


def made(name: str, role: str) -> tuple[str, str]:
    """A token, and its line for the configuration."""
    done = run("users", "token", "--name", name, "--role", role)
    assert done.code == 0
    token, line = done.out.splitlines()
    return token, line.removeprefix("- ")


def test_a_token_and_its_line() -> None:
    """The token is random and of the one form; the line has its digest and not the token."""
    token, line = made("ana", "operator")
    assert is_token(token)
    assert line == f'{{name: "ana", role: operator, token_digest: "{write_digest(digest_of(token))}"}}'
    assert made("ana", "operator")[0] != token
    assert run("users", "token", "--name", "a:b", "--role", "admin").code == 2


def test_the_roles_are_listed() -> None:
    """One line each, as the table has them."""
    lines = run("users", "roles").out.splitlines()
    assert [line.split()[0] for line in lines] == ["viewer", "operator", "approver", "admin"]
    assert re.search(r"operator +.*resolve", lines[1])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("records", "list"), "Refused: the configuration has users, so say who you are: GATEWAY_TOKEN or --token."),
        (("records", "list", "--token", "hunter2"), "Refused: this is no user's token"),
        (("audit", "list"), "Refused: the configuration has users"),
        (("dead-letters", "proposals"), "Refused: the configuration has users"),
        (("records", "erase", "--scope-id", "a:b", "--reason", "r"), "Refused: the configuration has users"),
    ],
)
def test_with_users_commands_need_a_token(tmp_path: Path, command: tuple[str, ...], said: str) -> None:
    """Before anything is connected to."""
    path = write(tmp_path, f"{LEAST}admin: {{users: [{made('ana', 'viewer')[1]}]}}\n")
    done = run(*command, env={"GATEWAY_CONFIG": str(path)})
    assert (done.code, said in done.err) == (1, True), done


def test_a_role_that_is_too_low_is_told(tmp_path: Path) -> None:
    """By the role that is needed, before anything is connected to."""
    token, line = made("ana", "operator")
    path = write(tmp_path, f"{LEAST}admin: {{users: [{line}]}}\n")
    env = {"GATEWAY_CONFIG": str(path), "GATEWAY_TOKEN": token}
    done = run("records", "erase", "--scope-id", "a:b", "--reason", "r", env=env)
    assert (done.code, done.err.strip()) == (1, "Refused: This needs the role admin; ana has the role operator.")
