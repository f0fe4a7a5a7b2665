"""What asks for another path, another method or another field than the gateway judged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.headers import Fields
from gateway.core.model import Headers
from gateway.core.overrides import (
    METHOD_FIELDS,
    PATH_FIELDS,
    fold,
    make_overrides,
    may_ask_in_body,
    methods_asked,
    methods_asked_in,
    nothing_misleads,
)
from gateway.core.policy import Participate, Policy
from gateway.core.principal_source import HeaderPrincipal

POLICY = Policy("pay", (HeaderPrincipal("X-Account-Id"),))
OVERRIDES = make_overrides([POLICY])
PLAIN: Headers = ((b"Host", b"h"), (b"X-Account-Id", b"a"), (b"client_id", b"7"), (b"X-Custom_Field", b"1"))


def cleaned(*more: tuple[bytes, bytes], refuse: bool = True) -> Headers | None:
    found = make_overrides([POLICY], refuse=refuse).clean(Fields((*PLAIN, *more)))
    return None if found is None else found.fields.lines


@pytest.mark.parametrize(
    "name", [b"SCRIPT_NAME", b"Script-Name", b"PATH_INFO", b"X-Original-URL", b"x_original_url", b"X-Rewrite-Url", b"X.Script.Name"]
)
def test_fields_that_rewrite_the_path_are_dropped(name: bytes) -> None:
    """Each in every spelling; unless the operator says that the upstream does not know them."""
    assert cleaned((name, b"/x")) == PLAIN
    assert cleaned((name, b"/x"), refuse=False) is None


@pytest.mark.parametrize(
    "name",
    [
        b"X_Account_Id",
        b"x_account-id",
        b"X.Account.Id",
        b"Idempotency_Key",
        b"Content_Length",
        b"Transfer_Encoding",
        b"X_HTTP_Method_Override",
    ],
)
@pytest.mark.parametrize("refuse", [True, False])
def test_doubles_are_dropped_and_told(name: bytes, refuse: bool) -> None:
    """Another spelling of a field that is judged does not reach the upstream, alone or beside the right one."""
    found = make_overrides([POLICY], refuse=refuse).clean(Fields((*PLAIN, (name, b"b"))))
    assert found is not None
    assert found.fields.lines == PLAIN
    assert found.doubles == {fold(name)}


def test_a_configured_spelling_is_no_double() -> None:
    """Where the route map names a field with an underscore, that is the field, and the hyphen is the double."""
    overrides = make_overrides([Policy("pay", (HeaderPrincipal("X_Account"),))])
    found = overrides.clean(Fields(((b"X_ACCOUNT", b"a"), (b"X-Account", b"b"))))
    assert found is not None
    assert found.fields.lines == ((b"X_ACCOUNT", b"a"),)


@given(st.lists(st.tuples(st.from_regex(rb"[A-Za-z0-9_.-]{1,12}", fullmatch=True), st.just(b"v"))).map(tuple))
def test_what_is_left_has_no_double(lines: Headers) -> None:
    """After cleaning nothing is found again, order is kept, and nothing else is touched."""
    found = OVERRIDES.clean(Fields(lines))
    left = lines if found is None else found.fields.lines
    assert OVERRIDES.clean(Fields(left)) is None
    assert [line for line in lines if line in left] == list(left)


@pytest.mark.parametrize(
    ("lines", "target", "want"),
    [
        (((b"X-HTTP-Method-Override", b"patch"),), b"/v1/pay", {"PATCH"}),
        (((b"x-http-method", b"PUT"), (b"X-Method-Override", b" delete , PATCH")), b"/v1/pay", {"PUT", "DELETE", "PATCH"}),
        ((), b"/v1/pay?a=1&_method=patch", {"PATCH"}),
        ((), b"/v1/pay?a=1;%5Fmetho%64=patch", {"PATCH"}),
        ((), b"/v1/pay?.method=put&[method=delete&%20_method=patch&_method%00x=get", {"PUT", "DELETE", "PATCH", "GET"}),
        ((), b"/v1/pay?method=patch&_methods=x&my_method=y&_method=", set()),
        (((b"X-HTTP-Method-Override", b""),), b"/_method=patch", set()),
    ],
)
def test_methods_asked(lines: Headers, target: bytes, want: set[str]) -> None:
    """By fields, and by the query as frameworks read it (PHP: dots, blanks and brackets are underscores)."""
    assert methods_asked("POST", Fields(lines), target) == want


spelled = st.from_regex(rb"[A-Za-z0-9-]{1,12}", fullmatch=True) | st.sampled_from(
    [*METHOD_FIELDS, *PATH_FIELDS, b"X_A", b"HOST", b"a" * 80]
)


@given(
    st.sampled_from(["POST", "HEAD"]),
    st.lists(st.tuples(spelled, st.just(b"put"))).map(tuple),
    st.sampled_from([b"/", b"/?a=1", b"/?_method=put", b"/?%5fmethod=put", b"/?.method=put", b"/?a=%20"]),
)
def test_where_nothing_misleads_nothing_is_found(method: str, lines: Headers, target: bytes) -> None:
    """The quick look passes no request in which the thorough ones find anything, at the first time and later."""
    fields = Fields(lines)
    for _ in range(2):
        if nothing_misleads(method, fields.names(), target):
            assert OVERRIDES.clean(fields) is None
            assert not methods_asked(method, fields, target)


def test_an_ordinary_request_misleads_nobody() -> None:
    """It takes the quick way, also when many clients have sent names of their own."""
    ordinary = Fields(((b"Host", b"h"), (b"Content-Type", b"a/b"), (b"Traceparent", b"00")))
    for number in range(1000):
        assert nothing_misleads("POST", Fields(((b"X-%d" % number, b""),)).names(), b"/a?b=1")
        assert nothing_misleads("POST", ordinary.names(), b"/a?b=1")
    assert not nothing_misleads("POST", Fields(((b"X_%d" % 1, b""),)).names(), b"/a")


MULTIPART = b'--b\r\nContent-Disposition: form-data; name="%b"\r\nContent-Type: text/plain\r\n\r\n%b\r\n--b--\r\n'


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"amount=1&_method=patch", {"PATCH"}),
        (b"amount=1&%5fmethod=patch", {"PATCH"}),
        (MULTIPART % (b"_method", b"patch"), {"PATCH"}),
        (MULTIPART % (b"amount", b"patch"), set()),
        (MULTIPART % (b" .method", b"patch"), {"PATCH"}),
        (MULTIPART % (b"_met\\hod", b"patch"), {"PATCH"}),
        (b"--b\r\nContent-Disposition: form-data; name='_method'\r\n\r\npatch\r\n--b--\r\n", {"PATCH"}),
        (b"--b\r\nContent-Disposition: form-data; name=_method\n" + b"X-A: b\n" * 20 + b"\npatch\n--b--\n", {"PATCH"}),
        (b'{"_method":"PATCH","amount":1}', {"PATCH"}),
        (b'{"\\u005fmethod":"PATCH"}', {"PATCH"}),
        (b'{"inner":{"_method":"PATCH"}}', set()),
        (b'{"_method":1}', set()),
        (b'{"_method":"PATCH","x":1e400}', {"PATCH"}),
        (b'{"\\u005Fmethod" : "P\\u0041TCH","x":NaN}', {"PATCH"}),
        (b'{"x":"\\ud800","_method":"PATCH"}', {"PATCH"}),
        (b'{"x":' + b"[" * 2000 + b"]" * 2000 + b',"_method":"PATCH"}', {"PATCH"}),
        (b"_method", set()),
        (b"", set()),
    ],
)
def test_methods_asked_in_a_body(body: bytes, want: set[str]) -> None:
    """In forms, in multipart and in JSON, whatever type it is sent under."""
    assert methods_asked_in(body) == want


@given(st.binary(max_size=200))
def test_any_body_has_an_answer(body: bytes) -> None:
    """Never an exception."""
    methods_asked_in(body)
    methods_asked("POST", Fields(((b"x-http-method", body),)), b"/?" + body)


@pytest.mark.parametrize(
    ("method", "kinds", "want"),
    [
        ("POST", [b"application/x-www-form-urlencoded; charset=utf-8"], True),
        ("POST", [b"text/plain", b"Multipart/Form-Data; boundary=b"], True),
        ("POST", [b"application/vnd.api+json"], True),
        ("POST", [], True),
        ("POST", [b"text/plain"], False),
        ("PUT", [b"application/x-www-form-urlencoded"], False),
    ],
)
def test_where_frameworks_look_for_a_method(method: str, kinds: list[bytes], want: bool) -> None:
    """In the body of a POST alone, if it is a form, JSON, or of no type."""
    assert may_ask_in_body(method, Fields(tuple((b"Content-Type", kind) for kind in kinds))) is want


TAKES_PART = Policy("ride", (), participate=Participate(progress=True))


@pytest.mark.parametrize(
    "name",
    [b"Idempotency-Token", b"IDEMPOTENCY_TOKEN", b"idempotency.attempt", b"Idempotency_Recovery_Point", b"idempotency-recovery-data"],
)
@pytest.mark.parametrize("refuse", [True, False])
def test_what_only_the_gateway_tells_an_upstream(name: bytes, refuse: bool) -> None:
    """No client's field of these names reaches an upstream that takes part, however it is spelled, on any route to it."""
    lines = (*PLAIN, (name, b"forged"))
    assert not nothing_misleads("POST", Fields(lines).names(), b"/")
    found = make_overrides([POLICY, TAKES_PART], refuse=refuse).clean(Fields(lines))
    assert found is not None
    assert found.fields.lines == PLAIN


def test_elsewhere_they_are_fields_like_others() -> None:
    assert cleaned((b"Idempotency-Token", b"mine")) is None
