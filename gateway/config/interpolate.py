"""Environment variables in values: `${VAR}`, `${VAR:-default}`, `${VAR:?message}`; `$$` is a dollar sign.

It runs on scalars after YAML parsing, so no variable can add a key, a line or a list item. As in a shell, `:-` and `:?`
treat an empty variable like an unset one, and `${VAR}` takes it. Defaults and messages are literal and end at the first
`}`; nothing nests. Any other dollar sign is itself. A value that is nothing but `$VAR`, as a shell writes it, is
refused: the text of a secret would be the name that everybody knows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r"\$\$|\$\{(?P<inside>[^}]*)\}|\$\{", re.DOTALL)
_SHELL = re.compile(r"(?:[A-Za-z]+ )?\$[A-Z_][A-Z0-9_]*")
"""Also behind the scheme of a credential, as in `Bearer $TOKEN`."""
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<operator>[-?])(?P<word>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Interpolated:
    """`from_env` says whether a variable or its default took part: such a text has no type of its own and takes its
    field's.
    """

    text: str
    from_env: bool


def interpolate(text: str, env: Mapping[str, str]) -> Interpolated:
    """Put the values of variables into `text`. Raises ValueError that names every variable that is missing and every
    bad `${`, or says how a variable is written.
    """
    if "$" not in text:
        return Interpolated(text, from_env=False)
    if _SHELL.fullmatch(text):
        raise ValueError("`$VAR` is text and no variable; write ${VAR} for its value, or $$VAR for this very text")
    problems: list[str] = []
    used = False

    def replace(token: re.Match[str]) -> str:
        nonlocal used
        if token[0] == "$$":
            return "$"
        used = True
        try:
            return _value(token, env)
        except ValueError as problem:
            problems.append(str(problem))
            return ""

    result = _TOKEN.sub(replace, text)
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return Interpolated(result, from_env=used)


def _value(token: re.Match[str], env: Mapping[str, str]) -> str:
    inside = _INSIDE.fullmatch(token["inside"]) if token["inside"] is not None else None
    if inside is None or "${" in (inside["word"] or ""):
        raise ValueError("`${` must be ${VAR}, ${VAR:-default} or ${VAR:?message}, without nesting; write $$ for a dollar sign")
    name, operator, word = inside["name"], inside["operator"], inside["word"]
    value = env.get(name)
    match operator:
        case "-":
            return value or word
        case "?":
            if not value:
                raise ValueError(f"the environment variable {name} is not set" + (f": {word}" if word else ""))
            return value
        case _:
            if value is None:
                raise ValueError(f"the environment variable {name} is not set; ${{{name}:-default}} would give it a default")
            return value
