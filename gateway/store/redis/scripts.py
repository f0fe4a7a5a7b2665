"""The Lua scripts, as they are sent."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    """`sha` is what EVALSHA wants."""

    text: bytes
    sha: bytes


def _load(name: str) -> Script:
    text = files("gateway.store").joinpath("lua", name).read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


ACQUIRE = _load("acquire.lua")
SETTLE = _load("settle.lua")
ADMIT = _load("admit.lua")
ADMITTED = _load("admitted.lua")
