"""A release is cut by `scripts/release`: the changelog gets its version, and nothing of what it said is lost."""

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts._changelog import UNRELEASED, Refused, cut, released

ROOT = Path(__file__).resolve().parents[2]
DAY = dt.date(2026, 11, 29)
TEXT = "# Changelog\n\nAll changes.\n\n## Unreleased\n\n### Added\n\n- One.\n\n## 1.2.0 - 2026-01-02\n\n- Older.\n"


def test_what_was_unreleased_is_the_version() -> None:
    """Under a new, empty section for what comes next."""
    begun = TEXT.replace("## Unreleased\n", "## Unreleased\n\n## 1.3.0 - 2026-11-29\n")
    assert cut(TEXT, "1.3.0", DAY) == begun
    assert released(begun) == ["1.3.0", "1.2.0"]


@pytest.mark.parametrize(
    ("text", "version", "words"),
    [
        (TEXT, "v1.3.0", "no version"),
        (TEXT, "1.3", "no version"),
        (TEXT, "1.03.0", "no version"),
        (TEXT, "1.2.0", "does not come after 1.2.0"),
        (TEXT, "1.1.9", "does not come after 1.2.0"),
        (cut(TEXT, "1.3.0", DAY), "1.4.0", "nothing is unreleased"),
        ("# Changelog\n", "1.0.0", "not one section"),
        (f"{TEXT}\n{UNRELEASED}", "1.3.0", "not one section"),
    ],
)
def test_what_is_no_release_is_refused(text: str, version: str, words: str) -> None:
    """In words that say why."""
    with pytest.raises(Refused, match=words):
        cut(text, version, DAY)


@given(st.lists(st.tuples(*[st.integers(0, 30)] * 3), min_size=1, max_size=6, unique=True).map(sorted))
def test_releases_follow_each_other(versions: list[tuple[int, int, int]]) -> None:
    """Each in its turn, by number and not by letters; all lines stay in order."""
    text = f"# Changelog\n\n{UNRELEASED}"
    said: list[str] = []
    for version in versions:
        name = ".".join(map(str, version))
        said.insert(0, f"- What {name} brings.")
        text = cut(text.replace(UNRELEASED, f"{UNRELEASED}\n{said[0]}\n"), name, DAY)
        with pytest.raises(Refused):
            cut(text.replace(UNRELEASED, f"{UNRELEASED}\n- More.\n"), name, DAY)
    assert [line for line in text.splitlines() if line.startswith("- ")] == said
    assert released(text) == [".".join(map(str, version)) for version in reversed(versions)]


def test_the_command_changes_the_file_or_says_why(tmp_path: Path) -> None:
    """Of this project's own changelog, a copy."""
    copy = tmp_path / "CHANGELOG.md"
    ours = (ROOT / "CHANGELOG.md").read_text("utf-8")
    copy.write_text(ours, "utf-8")

    def release(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "scripts" / "release"), *arguments, "--changelog", str(copy)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert release("999.0.0", "--date", "2026-11-29").returncode == 0
    assert copy.read_text("utf-8") == cut(ours, "999.0.0", DAY)
    again = release("999.0.0")
    assert (again.returncode, again.stderr) == (1, "scripts/release: 999.0.0 does not come after 999.0.0\n")
