"""Settings that a user's trial found to be taken, and that cannot be meant."""

from pathlib import Path

import pytest

from gateway.config import ConfigErrors, load

TEXT = """
postgres: {{dsn: "postgresql://localhost/x"}}
digest_secret: 0123456789abcdef0123
upstreams: {{api: {{url: "http://api:1"}}}}
routes:
  - {{id: a, path: /a, upstream: api, idempotency: {{principal: none, {more}}}}}
"""


def mistakes(folder: Path, more: str) -> str:
    path = folder / "gateway.yaml"
    path.write_text(TEXT.format(more=more))
    with pytest.raises(ConfigErrors) as caught:
        load(path, {})
    return str(caught.value)


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Host", "Connection", "Content-Type", "Authorization"])
@pytest.mark.parametrize("field", ["forward_key_in", "key"])
def test_a_key_stands_in_no_field_with_a_meaning_of_its_own(tmp_path: Path, name: str, field: str) -> None:
    """The upstream could not be asked, or would misread the request."""
    assert "has a meaning of its own" in mistakes(tmp_path, f"{field}: {{header: {name}}}")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a*)*", "([a-z]{1,9}){2,}", "(x(y|z+)*)+", "((a+))+"])
def test_a_pattern_that_could_take_for_ever_is_refused(tmp_path: Path, pattern: str) -> None:
    """Any client could hold up the whole process with one key."""
    assert "repeats what repeats already" in mistakes(tmp_path, f'key: {{pattern: "{pattern}"}}')


@pytest.mark.parametrize("pattern", ["[a-z]+-[0-9]{4,8}", "(ab){3}[0-9]+", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "a?b*c+"])
def test_ordinary_patterns_are_taken(tmp_path: Path, pattern: str) -> None:
    """Repetitions side by side, and repetitions of what has one length."""
    path = tmp_path / "gateway.yaml"
    path.write_text(TEXT.format(more=f'key: {{pattern: "{pattern}"}}'))
    assert load(path, {}).routes[0].policy is not None


@pytest.mark.parametrize("line", ["principal: none", "mode: observe", "scope: b", "hints: []", "on_store_outage: forward"])
def test_a_dialect_decides_nothing_about_trust(tmp_path: Path, line: str) -> None:
    """Whom to trust, and whether to guard at all, is a route's own word."""
    (tmp_path / "own.yaml").write_text(f"name: own\nabout: Ours.\nidempotency:\n  {line}\n")
    assert "a route's own word" in mistakes(tmp_path, "dialect: ./own.yaml")


@pytest.mark.parametrize(
    "pattern",
    ["(?:a|aa)*b", "(?:a|aa){60}b", "(?:a?){60}", "a*b*c*d*e", "a?" * 30, "(?:[a-z]|[0-9]-)+", "(?>(?:a|aa)*)b", "(?=(?:a|aa)*b)x"],
)
def test_a_pattern_that_can_match_in_too_many_ways_is_refused(tmp_path: Path, pattern: str) -> None:
    """Whoever sends a key chooses how long a backtracking matcher tries."""
    assert "can match in too many ways" in mistakes(tmp_path, f'key: {{pattern: "{pattern}"}}')


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}",
            "(?:ord|pay|ref)_[0-9A-Za-z]{10,40}",
            "[^@]+@[^@]+[.][a-z]{2,}",
        ),
        *("[a-z]++(?:-[a-z]++)*+", "(?:[a-z]{3}-){4}[0-9]+", "(?=[a-z])[a-z0-9_-]+", "[A-Za-z0-9_-]+"),
    ],
)
def test_patterns_of_keys_as_people_write_them_are_taken(tmp_path: Path, pattern: str) -> None:
    """Prefixes, UUIDs, several parts; and what repeats repetitions without giving anything back."""
    path = tmp_path / "gateway.yaml"
    path.write_text(TEXT.format(more=f'key: {{pattern: "{pattern}"}}'))
    assert load(path, {}).routes[0].policy is not None
