"""Where workers' sockets are."""

import subprocess
import sys
from pathlib import Path

WITHOUT = """
import sys, tempfile
from pathlib import Path
from gateway.run.supervisor import supervise
tempfile.tempdir = sys.argv[2]
sys.exit(supervise(Path(sys.argv[1]), 2, accept_scope_change=False, accept_clock=False))
"""


def test_no_temporary_folder_is_told_of_as_that(tmp_path: Path) -> None:
    """As on a read-only root without a /tmp: the line says what is needed, and how to give it."""
    config = tmp_path / "gateway.yaml"
    config.write_text(
        'digest_secret: 0123456789abcdef\npostgres: {dsn: "postgresql://db/gateway"}\nupstreams: {api: {url: "http://api:8000"}}\n'
        "routes:\n  - {id: rest, path: /**, upstream: api}\n"
    )
    ended = subprocess.run([sys.executable, "-c", WITHOUT, config, "/nowhere/at/all"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "Workers need a temporary folder for their sockets: No such file or directory. Set TMPDIR" in ended.stderr
    assert "Traceback" not in ended.stderr
