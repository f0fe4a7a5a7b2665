"""The clients of docs/clients.md keep their promise: one key for all tries, and the word of `retry` obeyed."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.documents.test_prose import ROOT

PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")
LOST, BUSY, DONE, DOUBT, REUSED = "lost", "same-key", "done", "ask-upstream", "new-key"


@dataclass
class Script:
    """A server that answers each request with the next word: a lost connection, a refusal with that `retry`, or the operation's answer."""

    words: list[str]
    keys: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    script: Script
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.script.keys.append(self.headers["Idempotency-Key"])
        self.script.paths.append(self.path)
        word = self.script.words.pop(0)
        if word == LOST:
            self.close_connection = True
        elif word == DONE:
            self._answer(201, {"id": "pi_1", "object": "payment_intent"})
        else:
            self._answer(422 if word == REUSED else 409, {"type": "urn:x", "retry": word})

    def _answer(self, status: int, body: dict[str, str]) -> None:
        raw = json.dumps(body, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status == 201 else "application/problem+json")
        self.send_header("Content-Length", str(len(raw)))
        if body.get("retry") == BUSY:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Callable[[list[str]], tuple[str, Script]]]:
    """Makes a server with a script, which tells its base URL."""
    made: list[ThreadingHTTPServer] = []

    def make(words: list[str]) -> tuple[str, Script]:
        script = Script(words)
        one = ThreadingHTTPServer(("127.0.0.1", 0), type("Scripted", (Handler,), {"script": script}))
        threading.Thread(target=one.serve_forever, daemon=True).start()
        made.append(one)
        return f"http://127.0.0.1:{one.server_port}", script

    yield make
    for one in made:
        one.shutdown()
        one.server_close()


def block(language: str, mark: str) -> str:
    """The block of this language that holds `mark`."""
    texts: list[str] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (found,) = (text for text in texts if mark in text)
    return found


def run(text: str, base: str) -> dict[str, object]:
    scope: dict[str, object] = {}
    exec(compile(text.replace("http://127.0.0.1:8080", base), "clients.md", "exec"), scope)
    return scope


def test_httpx(server: Callable[[list[str]], tuple[str, Script]]) -> None:
    """A lost answer and a refusal that asks for it are repeated with the key; a doubt and a used key end at once."""
    base, script = server([LOST, BUSY, DONE])
    text = block("python", "import httpx")
    assert getattr(run(text, base)["answer"], "status_code", 0) == 201
    assert len(script.keys) == 3
    assert len(set(script.keys)) == 1
    base, script = server([DOUBT])
    with pytest.raises(LookupError):
        run(text, base)
    base, script = server([REUSED])
    assert getattr(run(text, base)["answer"], "status_code", 0) == 422


@pytest.mark.parametrize(("mark", "result"), [("import requests", "answer"), ("import stripe", "intent")])
def test_a_library_with_retries_of_its_own(mark: str, result: str, server: Callable[[list[str]], tuple[str, Script]]) -> None:
    """One key, whatever it repeats."""
    base, script = server([BUSY, DONE])
    assert run(block("python", mark), base)[result] is not None
    assert len(script.keys) == 2
    assert len(set(script.keys)) == 1


@pytest.mark.parametrize(
    ("language", "program", "suffix", "argv"),
    [
        ("js", "node", "mjs", ["node"]),
        ("java", "java", "java", ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1"]),
        ("go", "go", "go", ["go", "run"]),
    ],
)
def test_another_language(
    language: str, program: str, suffix: str, argv: list[str], server: Callable[[list[str]], tuple[str, Script]], tmp_path: Path
) -> None:
    """The same, where its program is at hand."""
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}")
    base, script = server([LOST, BUSY, DONE])
    text = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert text is not None
    source = text[1].replace("http://127.0.0.1:8080", base)
    if language == "js":
        source += f'\nconst done = await createCharge("{base}/v1/charges", "alice", {{ amount: 1 }}, "key-1");\nconsole.log(done.status);\n'
    file = tmp_path / f"Charges.{suffix}"
    file.write_text(source)
    done = subprocess.run([*argv, str(file), "key-1"], check=False, capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("201"), done.stderr
    assert script.keys == ["key-1"] * 3
