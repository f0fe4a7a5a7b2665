"""No spelling of a path walks around its guard, and no other path is kept from going its way."""

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.core.path_interpretations import Option, parts
from gateway.core.routes import Matched, RouteTable, split_target
from tests.core.tables import PAY, REFUND, REST, TABLE, guarded, match
from tests.core.walks import outcomes, routed

WALKS = rb"""
    /v1/pay/  //v1/pay  /v1//pay  /v1/pay//  /./v1/pay  /v1/./pay  /v1/pay/.  /x/../v1/pay  /v1/x/../pay
    /v1/p%61y  /%76%31/%70%61%79  /v1%2Fpay  /v1%2fpay  /v1/p%2561y  /v1%252Fpay  /v1/p%252561y  /v1/pay%2F
    /x/%2e%2e/v1/pay  /x/%2E./v1/pay  /x/..%2Fv1/pay  /x%2F..%2Fv1/pay  /x/%252e%252e/v1/pay  /v1/pay;x
    /v1/pay;x=1;y  /v1;x/pay  /;x/v1/pay  /v1/pay%3Bx  /x/..;/v1/pay  /x/..;y=1/v1/pay  /v1\pay  /v1%5Cpay
    /v1%255cpay  \v1\pay  /x/..\v1/pay  /v1/pay\  /\v1/pay  /v1/pay.  /v1/pay..  /v1/pay%2E  /v1/pay%20
    /v1/pay%20%20.  /v1./pay  /v1/%20pay  /v1/pay%00  /v1/pay%09  /v1/pay%0D%0A  /v1/pay%00.txt  /v1/pay%3Fx
    /v1/pay%23x  /v1/pay%253Fx  /v1/pay%3F/x  /v1/pay#x  /v1/pay#  /x#/../v1/pay  /v1/pay?a#b  /safe%3F/../v1/pay
    /safe%23/../v1/pay  /safe;/../v1/pay  /v1/x%2Fy/../pay  /v1/%2e%2e/../pay  /v1/pay;x%2Fy  /v1/pay;%2F..%2Fz
    //host/v1/pay  ///host/v1/pay  /\host/v1/pay  /%2Fhost/v1/pay  //host:80/v1/pay  http://host//v1/pay
    http://host//h/v1/pay  /V1/Pay  /v1/PAY  /V1/p%41y  /v1/P%41Y.  /v1/a%2Fb/refun%64  /v1/a%252Fb%2Frefund
    /v1/%20/refund/  /v1/a%2F%20/refund  /v1/pay%252525252F  /v1/;/pay  /v1/%2F/pay  /v1/%20/pay
    /v1/pay;x;y/z  /v1/pay;/x  /v1/pay%3B/x  /v1%c0%af/pay  /v1/p%ffay  /v1/pay%80  /v1/%fe/pay
""".split()


@pytest.mark.parametrize("target", WALKS)
def test_no_walk_around(target: bytes) -> None:
    """Each known way to spell a guarded path differently is refused, or guarded after all; it is never passed on unguarded."""
    held = {"refused", REFUND.id, PAY.id} if target == b"/v1/pay/" else {"refused", REFUND.id}
    assert match(target) in held
    assert match(target, RouteTable((PAY, REFUND))) in held


@pytest.mark.parametrize(
    "target",
    [b"http://any/v1/pay", b"HTTPS://u:p@any:1/v1/pay?x=1", b"/v1/pay?", b"/v1/pay?x=/../y;%2F%00//", b"/v1/pay?a=http://x/"],
)
def test_guarded_spellings(target: bytes) -> None:
    """An absolute-form, and any query, belong to the path's route."""
    assert match(target) == PAY.id


INNOCENT = [
    *rb"""
    /  /a%2Fb  /a%2Fb/%41/(x)%28y%29/%7e?q=%2F+%20&s=%27%3A  /%zz  /%  /a?x=%e9  /a;p=1  /a;p=1/b;q=2;r/c  //a
    /a//b/  /files/my%20file%20%231.txt  /caf%C3%A9  /caf%E9  /v1/payments  /v1/pay/history  /v2/pay  /v1  /v1/
    /x/v1/pay  /a.b/.c/d..e  /.well-known/x  /a%25b  /a%2525  /v1/a/refunds  /v1/a/b/refund  /a=b&c,d:e@f!$'()*+~
    /v1/pay%41  /v1;pay  /v1pay  /v1/p/ay  /a\b  /a%5Cb
""".split(),
    b"/\xff",
]


@pytest.mark.parametrize("target", INNOCENT)
def test_other_paths_pass(target: bytes) -> None:
    """A path that no upstream takes for a guarded one goes its way, however oddly it is written."""
    assert match(target) == "rest"
    assert split_target(target)[2] == target


@pytest.mark.parametrize("target", [b"/a/../b", b"/x/./y", b"/%2e%2e/x", b"/a/..;x/b", b"/%252e%252e/x", b"/a/b/%2E", b"/a%25252525b"])
def test_ambiguous_paths(target: bytes) -> None:
    """Dot segments and endless encoding are refused where a guard could be behind them, and pass where none can."""
    assert match(target) == "refused"
    assert match(target, RouteTable((REST,))) == "rest"
    assert match(target, method="GET") == "rest"
    assert match(target, RouteTable((guarded("/**"),))) == "guarded /**"


@st.composite
def spellings(draw: st.DrawFn) -> bytes:
    """A guarded path, misspelt in up to four of the ways that are known to work somewhere."""
    path = draw(st.sampled_from([b"/v1/pay", b"/v1/pay", b"/v1/a/refund", b"/v1/x"]))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(path)))
        kind = draw(st.sampled_from(["encode", "encode", "insert", "insert", "prefix", "suffix", "case", "slash"]))
        if kind == "encode" and at < len(path):
            escape = f"%{path[at]:02x}" if draw(st.booleans()) else f"%{path[at]:02X}"
            path = path[:at] + escape.encode() + path[at + 1 :]
        elif kind == "insert":
            path = (
                path[:at]
                + draw(st.sampled_from([b"/", b"/./", b"/x/../", b";p", b";a/b", b"/x%2Fy/..", b" ", b".", b"\0", b"?", b"%20", b"%2F"]))
                + path[at:]
            )
        elif kind == "prefix":
            path = draw(st.sampled_from([b"/", b"//host", b"/\\host", b"/x/..", b"/safe?/..", b"/;p", b"/%2e", b"/x%2f%2e%2e"])) + path
        elif kind == "suffix":
            path += draw(
                st.sampled_from([b"/", b".", b"%00", b"%00.txt", b";x%2Fy", b"%3Fq", b"%23f", b"/..", b"\\", b" ", b"%5c..", b"%252f"])
            )
        elif kind == "case":
            path = path[:at] + path[at:].swapcase()
        else:
            path = path.replace(b"/", draw(st.sampled_from([b"\\", b"%2F", b"%252f", b"%5C", b"//"])), draw(st.integers(1, 2)))
    encoded = path.replace(b"?", b"%3F").replace(b"#", b"%23").replace(b" ", b"%20").replace(b"\0", b"%00")
    return encoded if encoded.startswith(b"/") else b"/" + encoded


@given(spellings(), st.sampled_from([b"", b"http://h", b"HTTPS://u@h:1"]), st.sampled_from([b"", b"?x=/v1/pay"]))
@settings(max_examples=250)
@example(b"/safe%3F/../v1/pay", b"", b"")
@example(b"/v1/x%2Fy/../pay", b"", b"")
@example(b"/v1/a%252Fb%2Frefund", b"", b"")
@example(b"/v1/a%2F%20%2Frefund", b"", b"")
def test_no_upstream_runs_a_guarded_operation_unguarded(path: bytes, authority: bytes, query: bytes) -> None:
    """Whatever rewriting an upstream does, in whatever order: if it ends at a guarded operation, the request was not passed unguarded."""
    found = TABLE.match("POST", authority + path + query)
    if isinstance(found, Matched) and found.route.policy is None:
        for outcome in outcomes(path, limit=1500):
            for reading in routed(outcome):
                assert reading != ("v1", "pay"), outcome
                assert len(reading) != 3 or not (reading[0] == "v1" and reading[2] == "refund" and reading[1] not in {"", ".", ".."}), (
                    outcome
                )


@given(st.lists(st.sampled_from([*b"/v1pay%2Fe.;\\?#"]), max_size=24).map(bytes) | st.binary(max_size=24))
def test_matching_never_raises(path: bytes) -> None:
    """Any bytes at all have a verdict, and one that is the same each time."""
    assert TABLE.match("POST", path) == TABLE.match("POST", path)
    assert TABLE.match("POST", b"/" + path) == TABLE.match("POST", b"/" + path)


plain_paths = st.lists(st.from_regex(r"[a-z0-9_~-][a-z0-9_~-]{0,6}[a-z0-9_~-]", fullmatch=True), min_size=1, max_size=4)


@given(plain_paths)
def test_plain_paths_have_one_reading(names: list[str]) -> None:
    """An ordinary path is read in one way and goes to the first route that takes it as it stands."""
    path = "/" + "/".join(names)
    assert parts(path.encode()) == [(Option((name,)),) for name in names]
    assume(tuple(names) != ("v1", "pay") and (len(names), names[0], names[-1]) != (3, "v1", "refund"))
    assert match(path.encode()) == "rest"


@pytest.mark.parametrize(
    "path",
    [b"/" + b"%25" * 2700 + b"2525252541", b"/" + b"a%2F" * 2000, b"/" + b";%2F\\%3F" * 1000, b"/" + b"/%20" * 2000, b"/" + b"a;b/" * 1300],
)
def test_hostile_paths_are_refused(path: bytes) -> None:
    """A path with more doubtful characters or segments than any API has is refused."""
    assert match(path) == "refused"
