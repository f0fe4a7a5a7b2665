"""The callers whom an operator names are those whom requests with the same values make."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.policy import Policy
from gateway.core.principal_source import (
    BasicPrincipal,
    CertificatePrincipal,
    Combine,
    ForwardAuthPrincipal,
    HeaderPrincipal,
    JwksUrl,
    JwtPrincipal,
    PrincipalSource,
)
from gateway.core.scope import scope_of
from gateway.principal.named import parts_named
from gateway.principal.parts import basic_part, header_part

A, B = HeaderPrincipal("X-A"), HeaderPrincipal("X-B")


@given(st.binary(min_size=1), st.binary(min_size=1))
def test_all_sources_make_one_caller(one: bytes, two: bytes) -> None:
    """In the policy's order; with another number of values there is none."""
    both = Policy("pay", (A, B))
    assert parts_named(both, [one, two]) == [[header_part("X-A", one), header_part("X-B", two)]]
    assert parts_named(both, [one]) == []
    turned = parts_named(Policy("pay", (B, A)), [one, two])
    assert scope_of("s", turned[0], b"k" * 16) != scope_of("s", parts_named(both, [one, two])[0], b"k" * 16)


def test_the_first_source_that_is_there() -> None:
    """A value may be of any of them."""
    first = Policy("pay", (A, BasicPrincipal()), combine=Combine.FIRST)
    assert parts_named(first, [b"u:p:q"]) == [[header_part("X-A", b"u:p:q")], [basic_part(b"u", b"p:q")]]


def test_a_scope_takes_the_parts_of_every_source() -> None:
    """A source whose kind `KINDS` does not have would fail at each request, and at no start."""
    sources: tuple[PrincipalSource, ...] = (
        A,
        BasicPrincipal(),
        CertificatePrincipal(),
        JwtPrincipal(("sub",), JwksUrl("https://login.example/keys"), ("RS256",), issuer="https://login.example"),
        ForwardAuthPrincipal("auth", "/verify", "X-User"),
    )
    assert {type(source) for source in sources} == set(get_args(PrincipalSource))
    for source in sources:
        ((part,),) = parts_named(Policy("pay", (source,)), [b"alice"])
        assert scope_of("s", [part], b"k" * 16).id.startswith("s:")
