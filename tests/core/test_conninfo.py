"""DSNs in each spelling that libpq reads."""

from urllib.parse import parse_qs, quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.conninfo import Conninfo, DsnError, Target, complete, parse_dsn
from gateway.core.conninfo_files import password_of, service_of
from gateway.core.histories import Histories, History

ONE, TWO = Target("one", 5432), Target("two", 5433)


def read(dsn: str, **environment: str) -> Conninfo:
    return complete(parse_dsn(dsn), {}, environment)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:p%40@one:5432,two:5433/db?sslmode=require",
        "postgres://u:p@@one,two:5433/db?sslmode=require",
        "postgresql://u:p%40@/db?host=one,two&port=5432,5433&sslmode=require",
        "postgresql:///?host=one,two&port=,5433&user=u&password=p%40&dbname=db&ssl=true",
        "postgresql://?host=one,two&port=5432,5433&user=u&password=p%40&database=db&sslmode=require",
        "postgresql://nobody@nowhere:1/other?host=one,two&port=5432,5433&user=u&password=p@&dbname=db&sslmode=require",
        "host=one,two port=5432,5433 user=u password=p@ dbname=db sslmode=require",
        r" host = 'one,two' port=5432,5433 user=\u password='p\@' dbname='db' sslmode=require ",
    ],
)
def test_the_spellings_of_one_dsn(dsn: str) -> None:
    """As libpq reads them, and with a bare @ in a password, which it does not."""
    parameters = {"user": "u", "password": "p@", "dbname": "db", "sslmode": "require"}
    assert read(dsn) == Conninfo((ONE, TWO), None, False, None, "", parameters)


@pytest.mark.parametrize(
    ("dsn", "targets"),
    [
        ("postgresql://[::1]:2,[fe80::1%eth0]/db", [Target("::1", 2), Target("fe80::1%eth0", 5432)]),
        ("host=::1,two port=7", [Target("::1", 7), Target("two", 7)]),
        ("postgresql://%2Frun%2Fpostgresql,/db?host=/run/a,/run/b", [Target("/run/a", 5432), Target("/run/b", 5432)]),
        ("postgresql://%2Frun%2Fpostgresql:6/db", [Target("/run/postgresql", 6)]),
        ("postgresql://", [Target(None, 5432)]),
        ("dbname=db", [Target(None, 5432)]),
    ],
)
def test_hosts_of_all_kinds(dsn: str, targets: list[Target]) -> None:
    """IPv6, sockets, and none."""
    assert list(read(dsn).targets) == targets


def test_the_environment_and_a_service_fill_in() -> None:
    """The DSN counts before the service, the service before the environment."""
    assert read("postgresql:///db", PGHOST="one,two", PGPORT="5432,5433", PGUSER="u").targets == (ONE, TWO)
    told = complete({"dbname": "db"}, {"host": "one", "dbname": "x", "user": "u"}, {"PGHOST": "two", "PGUSER": "v", "PGOPTIONS": "-c a=b"})
    assert told.targets == (ONE,)
    assert told.parameters == {"dbname": "db", "user": "u", "options": "-c a=b"}


def test_what_concerns_the_choice_of_a_host() -> None:
    """None of it reaches the driver; settings of the server do."""
    told = read("host=one target_session_attrs=primary load_balance_hosts=random connect_timeout=3 passfile=/p keepalives=1 search_path=x")
    assert told == Conninfo((ONE,), "primary", True, 3.0, "/p", {"search_path": "x"})
    assert read("host=one connect_timeout=-1 channel_binding=prefer gssencmode=disable").parameters == {}


@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ("mysql://db/gateway", "looks like"),
        ("postgres//u:s3cret@h/db?x=y", "looks like"),
        ("host", "looks like"),
        ("host=h 's3cret", "looks like"),
        ("password='s3cret", "looks like"),
        ("postgresql://::1/db", "looks like"),
        ("postgresql://one:x/db", "looks like"),
        ("postgresql://one:70000/db", "looks like"),
        ("postgresql://one/db?s3cret", "looks like"),
        ("postgresql://one/db%00", "looks like"),
        ("host=one,two port=1,2,3", "as many ports"),
        ("host=one hostaddr=192.0.2.1", "hostaddr: "),
        ("host=one channel_binding=require", "channel_binding: "),
        ("host=one require_auth=scram-sha-256", "require_auth: "),
        ("host=one target_session_attrs=standby", "cannot be written"),
        ("host=one target_session_attrs=s3cret", "is any, primary or read-write"),
        ("host=one load_balance_hosts=s3cret", "is disable or random"),
        ("host=one connect_timeout=s3cret", "whole number"),
        ("host=@s3cret", "abstract socket"),
    ],
)
def test_what_cannot_be_used_is_refused(dsn: str, words: str) -> None:
    """With a remedy, and without a word of the DSN: what was misread may be its password."""
    with pytest.raises(DsnError, match=words) as refused:
        read(dsn)
    assert "s3cret" not in str(refused.value)


TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=12)


@given(TEXTS, TEXTS, TEXTS)
def test_any_value_survives_both_spellings_and_the_driver_s(user: str, password: str, database: str) -> None:
    """Quoted as each spelling wants it."""
    wanted = {"user": user, "password": password, "dbname": database}
    words = " ".join(
        f"{name}='{value.replace(chr(92), chr(92) * 2).replace(chr(39), chr(92) + chr(39))}'" for name, value in wanted.items()
    )
    uri = f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@one/{quote(database, safe='')}"
    for dsn in (words, uri):
        told = read(f"{dsn} host=one" if dsn is words else dsn)
        assert told.parameters == wanted
        driver = parse_qs(urlsplit(told.dsn(ONE, "any", None)).query, strict_parsing=True)
        assert driver == {name: [value] for name, value in (*wanted.items(), *DRIVER.items())}


DRIVER = {"host": "one", "port": "5432", "target_session_attrs": "any"}


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """And nothing else is raised."""
    for dsn in (text, f"postgresql://{text}", f"host={text}"):
        try:
            read(dsn)
        except DsnError:
            continue


def test_a_service_file() -> None:
    """Sections, comments; the first value of a name counts."""
    text = "# services\n[other]\nhost=two\n\n[pay]\n host=one\nport=5432\nport=9\ndbname=a b\n[pay]\nhost=three\n"
    assert service_of(text, "pay") == {"host": "one", "port": "5432", "dbname": "a b"}
    assert service_of(text, "else") is None
    with pytest.raises(DsnError):
        service_of("[pay]\nhost", "pay")


def test_a_password_file() -> None:
    """The first line that fits; a backslash takes a colon's or its own meaning away."""
    text = "# words\nbroken\none:5432:db:v:no\none:*:db:u:a\\:b\\\\c\n*:*:*:u:star\nlocalhost:*:*:*:sockets\n"
    assert password_of(text, ONE, "db", "u") == r"a:b\c"
    assert password_of(text, TWO, "db", "u") == "star"
    assert password_of(text, Target("/run/postgresql", 1), "db", "w") == "sockets"
    assert password_of(text, Target(None, 1), "db", "w") == "sockets"
    assert password_of(text, ONE, "db", "w") is None


@given(TEXTS, TEXTS)
def test_any_password_survives_its_file(password: str, user: str) -> None:
    """Escaped as libpq says. A file has lines, and they are stripped."""
    if password.strip() != password or user.strip() != user or len(f"{password}.{user}".splitlines()) > 1:
        return
    user, word = (text.replace("\\", "\\\\").replace(":", "\\:") for text in (user, password))
    assert password_of(f"*:*:*:{user}:{word}", ONE, "db", user.replace("\\:", ":").replace("\\\\", "\\")) in {password, None}


@given(st.lists(st.builds(History, st.integers(1, 2), st.integers(0, 4))))
def test_a_timeline_below_one_that_was_seen_is_a_former_primary_s(met: list[History]) -> None:
    """Of the same cluster; a standby has none."""
    histories = Histories()
    latest: dict[int, int] = {}
    for history in met:
        before = latest.get(history.system, 0)
        assert (histories.former(history) is not None) == (0 < history.timeline < before)
        assert histories.seen(history) == (0 < before < history.timeline)
        latest[history.system] = max(before, history.timeline)
