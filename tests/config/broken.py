"""Broken configurations, made from those that the project ships: each value replaced, left out, doubled or moved.

A *case* is a document (plain data, or text for what plain data cannot say) and a word about what was done to it. `judge` loads one as
`check` does, and tells what is wrong with how it ends. `python -m tests.config.broken --minutes 10` tries cases at random.
"""

import argparse
import copy
import json
import os
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
import yaml

from gateway.config import Config, ConfigErrors, load, redact, route_table, settings_table
from gateway.core.kinds import Kind, ListOf, MapOf, SectionOf
from gateway.core.setting import settings_of
from tests.config.jwks import ec_key, rsa_key, write_keys
from tests.tls.authority import write_authority, write_pair

EXAMPLES = Path(__file__).parents[2] / "config"
MISTAKE = re.compile(r"(?P<file>[^\n]*?)(:[1-9][0-9]*:[1-9][0-9]*: (?P<path>[^\n]*?: )?|: )(?P<message>\S[^\n]*)")
SECRET = "0123456789abcdef" * 4
CONFIG = SectionOf(Config)
Step = str | int
Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """What a file says, and what was done to make it so."""

    text: str
    done: str


def wrong_values(folder: Path) -> list[Any]:
    """Values of each kind, and of each sort of wrong within it. `folder` is one that `furnish` has filled."""
    return [
        *(None, True, False, 0, -1, 1, 7, 10**30, -(10**30), 1.5, -0.0, 1e308),
        *(
            "",
            " ",
            "x",
            "é☃",
            "\t",
            "a" * 300,
            "a/b",
            "/",
            "//",
            "/**/x",
            "/{a}/{a}",
            "/v1/**",
            "\u2028",
            "'",
            '"',
            "#",
            "- x",
            "{}",
            "&a",
            "*a",
        ),
        *("0", "-1", "1e9", "NaN", "30s", "0s", "-5s", "9999999d", "1ms", "1MiB", "99999GiB", "0B", "12:30", "yes", "null", "~"),
        *("${MISSING}", "${", "${}", "${A:?why}", "${A:-}", "$$", "${A:-${B}}"),
        *(
            "none",
            "Authorization",
            "Host",
            "X-Account-Id",
            "POST",
            "post",
            "CONNECT",
            "ietf",
            "stripe-v1",
            "./none.yaml",
            "reconcile",
            "resend",
        ),
        *(
            "http://x",
            "https://x:0",
            "http://x:99999",
            "http://[::1",
            "http://x/?q",
            "ftp://x",
            "unix:",
            "unix:/",
            ":0",
            "::1",
            "1.2.3.4:5",
        ),
        *("redis://", "redis://x:y", "postgresql://", "postgresql://a:b@[::", "10.0.0.0/8", "10.0.0.1/8", "::/0"),
        *(str(folder / name) for name in ("pipe", "folder", "empty", "binary", "huge", "gateway.pem", "keys.json", "no/such", "n" * 300)),
        *("/dev/zero", "/dev/null", "/proc/self/mem"),
        *([], [[]], [None], ["x"], ["x", "x"], [{}], [1], {}, {"x": 1}, {"": ""}, {"header": "X"}, {"jwt": {}}, {"é": None}),
    ]


def furnish(folder: Path) -> dict[str, str]:
    """Put the files that the examples name, and some that are none, into `folder`. Returns the environment that names them."""
    authority = trustme.CA()
    write_pair(folder, "gateway", authority)
    write_pair(folder, "upstream-client", authority, "gateway@payments.example", both=True)
    write_authority(folder, "clients", authority)
    write_authority(folder, "internal-ca", authority)
    write_keys(folder / "keys.json", rsa_key(), ec_key())
    (folder / "secret").write_text("0123456789abcdef0123456789abcdef\n")
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "huge").write_bytes(b"x" * (5 * 1024 * 1024))
    os.mkfifo(folder / "pipe")
    listen = f"unix:{folder}/gateway.sock"
    names = re.findall(r"\$\{([A-Z_]+):\?", "".join(path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.yaml")))
    return {
        **dict.fromkeys(names, SECRET),
        "GATEWAY_POSTGRES_DSN": "postgresql://gateway@db/gateway",
        "GATEWAY_ADMIN_TOKEN": "token",
        "GATEWAY_ENCRYPTION_KEY": SECRET,
        "GATEWAY_TLS": str(folder),
        "GATEWAY_LISTEN": listen,
        "GATEWAY_SPILL": str(folder),
        "GATEWAY_DIGEST_SECRET_FILE": str(folder / "secret"),
    }


def examples() -> dict[str, Any]:
    """The shipped files as plain data, by name; variables stay as they are written."""
    return {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(EXAMPLES.glob("*.yaml"))}


def written(document: Any) -> str:
    """Plain data as a file: JSON is YAML, and has a line for each value."""
    return json.dumps(document, indent=1, ensure_ascii=False)


def fields(kind: Kind = CONFIG, at: Steps = ()) -> Iterator[Steps]:
    """Where each field of the table may stand: in the first item of its list, under one name of its mapping."""
    match kind:
        case SectionOf():
            for one in settings_of(kind.of):
                yield from ((*at, name) for name in one.names)
                yield from fields(one.kind, (*at, one.name))
        case ListOf():
            yield from fields(kind.item, (*at, 0))
        case MapOf():
            yield from fields(kind.section, (*at, "payments"))
        case _:
            return


def places(node: Any, at: Steps = ()) -> Iterator[Steps]:
    """The way to each value of a document, its root left out."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, child in children:
        yield (*at, step)
        yield from places(child, (*at, step))


def put(document: Any, way: Steps, value: Any) -> Any:
    """A copy in which `value` stands at `way`; what is in the way is replaced by what leads there."""
    made = copy.deepcopy(document)
    holder = made
    for step, after in zip(way, (*way[1:], None), strict=True):
        wanted: Any = [] if isinstance(after, int) else {}
        if isinstance(step, int):
            holder.extend([copy.deepcopy(wanted)] * (step + 1 - len(holder)))
        if after is None:
            holder[step] = value
        elif not isinstance(holder[step] if isinstance(step, int) else holder.get(step), type(wanted)):
            holder[step] = wanted
        holder = holder[step]
    return made


def look(document: Any, way: Steps) -> Any:
    for step in way:
        document = document[step]
    return document


def without(document: Any, way: Steps) -> Any:
    made = copy.deepcopy(document)
    del look(made, way[:-1])[way[-1]]
    return made


def renamed(item: Any) -> Any:
    """A second one of a list that is told apart from the first by its id, if it has one."""
    return {**item, "id": f"{item['id']}-again"} if isinstance(item, dict) and isinstance(item.get("id"), str) else item


class Breaker:
    """Makes cases out of the examples. `dice` decides everything, so that a seed tells a case again."""

    def __init__(self, dice: random.Random, folder: Path) -> None:
        self._dice = dice
        self._values = wrong_values(folder)
        self._examples = examples()
        self._ways: list[Callable[[Any], tuple[Any, str]]] = [
            *[self._replace] * 4, self._remove, self._repeat, self._move, self._rename, self._reorder
        ]  # fmt: skip

    def each_field(self, times: int) -> Iterator[Case]:
        """Every field of the table with `times` wrong values, in the smallest example."""
        base = self._examples["minimal.yaml"]
        for way in fields():
            for value in self._dice.sample(self._values, times):
                yield Case(written(put(base, way, value)), f"minimal.yaml: {way} is {value!r}")

    def any(self) -> Case:
        """One to three changes to one of the examples, or a scratch in its text."""
        name = self._dice.choice(list(self._examples))
        document, done = self._examples[name], []
        for _ in range(self._dice.choice((1, 1, 1, 2, 3))):
            document, what = self._dice.choice(self._ways)(document)
            done.append(what)
        text = written(document)
        if self._dice.random() < 0.1:
            text, what = self._scratch(text)
            done.append(what)
        return Case(text, f"{name}: {'; '.join(done)}")

    def _place(self, document: Any, *, inside: type | None = None) -> Steps | None:
        found = [way for way in places(document) if inside is None or isinstance(look(document, way[:-1]), inside)]
        return self._dice.choice(found) if found else None

    def _replace(self, document: Any) -> tuple[Any, str]:
        value = self._dice.choice(self._values)
        way = self._dice.choice(list(fields())) if self._dice.random() < 0.3 else self._place(document)
        return (
            (document, "nothing") if way is None or not isinstance(document, dict) else (put(document, way, value), f"{way} is {value!r}")
        )

    def _remove(self, document: Any) -> tuple[Any, str]:
        way = self._place(document)
        return (document, "nothing") if way is None else (without(document, way), f"{way} is left out")

    def _repeat(self, document: Any) -> tuple[Any, str]:
        way = self._place(document, inside=list)
        if way is None:
            return document, "nothing"
        made = copy.deepcopy(document)
        holder = look(made, way[:-1])
        item = copy.deepcopy(holder[way[-1]])
        holder.insert(self._dice.randrange(len(holder) + 1), renamed(item) if self._dice.random() < 0.7 else item)
        return made, f"{way} is there twice"

    def _move(self, document: Any) -> tuple[Any, str]:
        other = self._examples[self._dice.choice(list(self._examples))]
        source, target = self._place(other), self._place(document)
        if source is None or target is None:
            return document, "nothing"
        return put(document, target, copy.deepcopy(look(other, source))), f"{target} is what {source} is elsewhere"

    def _rename(self, document: Any) -> tuple[Any, str]:
        way = self._place(document, inside=dict)
        if way is None:
            return document, "nothing"
        name = self._dice.choice((f"{way[-1]}x", str(way[-1]).upper(), "", "<<", "é", "a b", "header", "x" * 100))
        return put(without(document, way), (*way[:-1], name), look(document, way)), f"{way} is called {name!r}"

    def _reorder(self, document: Any) -> tuple[Any, str]:
        way = self._place(document, inside=list)
        if way is None:
            return document, "nothing"
        made = copy.deepcopy(document)
        self._dice.shuffle(look(made, way[:-1]))
        return made, f"{way[:-1]} is in another order"

    def _scratch(self, text: str) -> tuple[str, str]:
        at = self._dice.randrange(len(text))
        mark = self._dice.choice(
            ("", "\t", "\x00", "}", "]", ":", '"', "\n", "&a ", "*a ", "!!python/object:x ", "? ", "\ufeff", "%YAML 9\n")
        )
        end = min(len(text), at + self._dice.choice((0, 1, 1, 40)))
        return text[:at] + mark + text[end:], f"characters {at} to {end} are {mark!r}"


def judge(case: Case, folder: Path, env: dict[str, str]) -> str | None:
    """What is wrong with how `check` ends for this case; None if it is accepted, or refused as it should be."""
    file = folder / "gateway.yaml"
    file.write_text(case.text, encoding="utf-8", errors="surrogatepass")
    try:
        config = load(file, env)
        route_table(config.routes)
        settings_table(config)
        redact(config)
        lines = [str(warning) for warning in config.warnings]
    except ConfigErrors as errors:
        lines = str(errors).splitlines()
        if not lines:
            return "it is refused without a word"
    except Exception:  # whatever it raises is what is looked for
        return traceback.format_exc()
    wrong = next((line for line in lines if not MISTAKE.fullmatch(line)), None)
    return None if wrong is None else f"this line is not `file:line:column: path: message`: {wrong!r}"


def main() -> int:
    """0: each case ended as it should; 1: one did not, and is told on stdout with its seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.config.broken", description="Load broken configurations, made at random.")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="where to begin (default: anywhere)")
    chosen = parser.parse_args()
    tried, found, until = 0, 0, time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = furnish(folder)
        while time.monotonic() < until and found < 10:
            breaker = Breaker(random.Random(chosen.seed + tried), folder)
            for case in [breaker.any() for _ in range(100)]:
                fault = judge(case, folder, env)
                if fault is not None:
                    found += 1
                    sys.stdout.write(f"seed {chosen.seed + tried}: {case.done}\n{fault}\n")
            tried += 1
    sys.stdout.write(f"{100 * tried} configurations, {found} of them not refused as they should be\n")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
