"""What Redis URLs name."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.redis_url import FORMS, ClusterUrl, OneServer, SentinelUrl, parse_redis_url, spelled


@pytest.mark.parametrize("url", ["redis://cache", "rediss://:word@cache:6380/1?ssl_ca_certs=/ca.pem", "unix:///run/redis.sock?db=2"])
def test_one_server_is_for_the_driver_to_read(url: str) -> None:
    assert parse_redis_url(url) == OneServer(url)


def test_sentinels_and_their_primary() -> None:
    """Each has its own login; TLS and what is about the connection is for both, the database for the primary alone."""
    found = parse_redis_url(
        "rediss+sentinel://app:p%40ss@one,two:26380,[::1]/3?master=pay&sentinel_username=watch&sentinel_password=a%3Ab"
        "&ssl_ca_certs=/ca.pem&client_name=gateway"
    )
    assert isinstance(found, SentinelUrl)
    assert (found.hosts, found.master) == ((("one", 26379), ("two", 26380), ("::1", 26379)), "pay")
    assert found.sentinel.at(("::1", 26379)) == "rediss://watch:a%3Ab@[::1]:26379?ssl_ca_certs=%2Fca.pem&client_name=gateway"
    assert found.primary.at(("10.0.0.1", 6379)) == "rediss://app:p%40ss@10.0.0.1:6379/3?ssl_ca_certs=%2Fca.pem&client_name=gateway"


def test_sentinels_without_a_login() -> None:
    found = parse_redis_url("redis+sentinel://one/?master=pay&retry_on_timeout=no")
    assert isinstance(found, SentinelUrl)
    assert (found.sentinel.at(found.hosts[0]), found.primary.at(("two", 1))) == ("redis://one:26379", "redis://two:1/?retry_on_timeout=no")


def test_nodes_of_a_cluster() -> None:
    found = parse_redis_url("redis+cluster://app:word@one,two:7000/0")
    assert isinstance(found, ClusterUrl)
    assert (found.hosts, found.node.at(("three", 7001))) == ((("one", 6379), ("two", 7000)), "redis://app:word@three:7001")


MISTAKES = [
    ("http://cache", FORMS),
    ("redis+sentinel:one", FORMS),
    ("redis+both://one", FORMS),
    ("redis+cluster://", FORMS),
    ("redis+cluster://one,", FORMS),
    ("redis+cluster://one:port", FORMS),
    ("redis+cluster://one/1", "a Redis Cluster has no database but 0"),
    ("redis+cluster://one?db=secret", "a Redis Cluster has no database but 0"),
    ("redis+sentinel://one/secret?master=pay", "the path of a Redis URL is the number of a database, as in /0"),
    (
        "redis+sentinel://one,two/0",
        "Sentinels know several primaries: name yours, as in redis+sentinel://host1,host2/0?master=name",
    ),
]


@pytest.mark.parametrize(("url", "remedy"), MISTAKES)
def test_a_mistake_has_its_remedy(url: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        parse_redis_url(url)
    assert str(caught.value) == remedy


ADDRESSES = st.integers(0, 2**32 - 1).map(IPv4Address) | st.integers(0, 2**128 - 1).map(IPv6Address)
NAMES = st.text("abcxyz019-.", min_size=1, max_size=10)
HOSTS = st.lists(st.tuples(NAMES | ADDRESSES.map(str), st.integers(1, 65535)), min_size=1, max_size=4)


@given(HOSTS)
def test_hosts_are_read_as_they_are_spelled(hosts: list[tuple[str, int]]) -> None:
    found = parse_redis_url(f"redis+cluster://{','.join(map(spelled, hosts))}")
    assert isinstance(found, ClusterUrl)
    assert found.hosts == tuple(hosts)


@given(st.text(max_size=30), st.sampled_from(["redis+sentinel://", "redis+cluster://", "rediss+sentinel://one/0?master=", ""]))
def test_any_text_is_read_or_refused(text: str, start: str) -> None:
    """And no message repeats it."""
    try:
        parse_redis_url(start + text)
    except ValueError as error:
        said = str(error)
    else:
        said = ""
    assert len(text) < 8 or text not in said
