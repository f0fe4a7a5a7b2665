"""Puts a key into a field, a query or a body of a forwarded request, and takes it out again.

`gateway.core.headers.to_upstream` has made the request. All that is not the key stays as it is, byte for byte.
"""

from dataclasses import replace
from typing import assert_never
from urllib.parse import quote

from gateway.core.forms import decode_parameter, is_form
from gateway.core.headers import wire_name
from gateway.core.key import field_value
from gateway.core.key_policy import BodyKey, FormKey, ForwardKey, HeaderKey, KeyPlace, QueryKey
from gateway.core.model import Headers
from gateway.core.policy import Policy
from gateway.core.splice import JsonText
from gateway.core.value import value

_DIGESTS = frozenset({b"content-digest", b"repr-digest", b"digest", b"content-md5"})
"""Fields that a changed body makes untrue (RFC 9530, and what came before it)."""


@value
class Parts:
    """The parts of a request in which a key can stand. `target` is in origin-form. `body` None: the body is not in
    memory, and stays as it is. `text` is that body as JSON, if a caller has read it already.
    """

    headers: Headers
    target: bytes
    body: bytes | None
    text: JsonText | None = None


def carry(parts: Parts, policy: Policy, key: str, derived: str) -> Parts | None:
    """The request with the key as `forward_key` and `forward_key_in` say. `derived` is the text of
    `gateway.core.scope.derived_key`, asked for under `forward_key: derived` alone.

    A key that moves to another place, or that the route keeps back, leaves the field or the query that it came in. It
    never leaves a body: a body changes only for an upstream that wants its key there. None if the body cannot take the
    key; the gateway then refuses the request before it reserves a record.
    """
    came, goes = policy.key.place, policy.key_goes_to
    match policy.forward_key:
        case ForwardKey.NONE:
            return take(came, parts)
        case ForwardKey.AS_RECEIVED:
            return parts if _same(goes, came) else put(goes, key, take(came, parts))
        case ForwardKey.DERIVED:
            return put(goes, derived, parts if _same(goes, came) else take(came, parts))
        case _:
            assert_never(policy.forward_key)


def goes_as_it_came(policy: Policy) -> bool:
    """Whether the upstream gets the key where and as the client sent it: then `carry` has nothing to do."""
    return policy.forward_key is ForwardKey.AS_RECEIVED and _same(policy.key_goes_to, policy.key.place)


def changes_body(policy: Policy) -> bool:
    """Whether the upstream gets the key in a member or field of the body that the client did not fill in so."""
    goes = policy.key_goes_to
    same = policy.forward_key is ForwardKey.AS_RECEIVED and goes == policy.key.place
    return isinstance(goes, BodyKey | FormKey) and policy.forward_key is not ForwardKey.NONE and not same


def _same(one: KeyPlace, other: KeyPlace) -> bool:
    if isinstance(one, HeaderKey) and isinstance(other, HeaderKey):
        return set(map(_folded_name, one.names)) == set(map(_folded_name, other.names))
    return one == other


def put(place: KeyPlace, key: str, parts: Parts) -> Parts | None:
    """The request with this key in this place, once, whatever stood there before. None if the body cannot take it
    (`JsonText`).

    Fields with a digest of a body that was changed are left out.
    """
    match place:
        case HeaderKey():
            return replace(parts, headers=in_headers(parts.headers, place.names, field_value(key)))
        case QueryKey(name):
            return replace(parts, target=in_target(parts.target, name, key))
        case BodyKey(pointer):
            text = parts.text if parts.text is not None and parts.text.body is parts.body else None
            return _with_body(parts, None if parts.body is None else (text or JsonText(parts.body)).with_text(pointer, key))
        case FormKey(name):
            readable = parts.body is not None and is_form(parts.headers)
            return _with_body(parts, _in_pairs(parts.body, name, key) if readable and parts.body is not None else None)
        case _:
            assert_never(place)


def _with_body(parts: Parts, body: bytes | None) -> Parts | None:
    if body is None:
        return None
    return replace(parts, headers=tuple([field for field in parts.headers if field[0].lower() not in _DIGESTS]), body=body)


def take(place: KeyPlace, parts: Parts) -> Parts:
    """The request without what stands in this field or query parameter. A body is left as it is."""
    match place:
        case HeaderKey():
            return replace(parts, headers=not_named(parts.headers, *place.names))
        case QueryKey(name):
            return replace(parts, target=_without_parameter(parts.target, name))
        case BodyKey() | FormKey():
            return parts
        case _:
            assert_never(place)


def in_headers(headers: Headers, names: tuple[str, ...], value: bytes) -> Headers:
    """The field lines with one of these names: in the place of the first one there was, else at the end, under the
    first name.
    """
    spelled = {_folded_name(name): name.encode() for name in reversed(names)}
    result: list[tuple[bytes, bytes]] = []
    there = False
    for field in headers:
        mine = spelled.get(_folded(field[0].lower()))
        if mine is None:
            result.append(field)
        elif not there:
            there = True
            result.append((mine, value))
    return tuple(result) if there else (*result, (names[0].encode(), value))


def not_named(headers: Headers, *names: str) -> Headers:
    """The field lines without those of these names, in whatever spelling an upstream may take for one."""
    unwanted = set(map(_folded_name, names))
    return tuple([field for field in headers if _folded(field[0].lower()) not in unwanted])


def _folded_name(name: str) -> bytes:
    return _folded(wire_name(name))


def _folded(name: bytes) -> bytes:
    """A name as CGI and WSGI tell it: they know no difference between a hyphen and an underscore."""
    return name.replace(b"_", b"-")


def in_target(target: bytes, name: str, key: str) -> bytes:
    """The target with one parameter of this name: the first one there was gets the new value, others go; else it is
    added at the end.
    """
    path, _, query = target.partition(b"?")
    return path + b"?" + _in_pairs(query, name, key)


def _in_pairs(pairs: bytes, name: str, key: str) -> bytes:
    """The same of a query, or of a form."""
    value = quote(key, safe="").encode()
    kept: list[bytes] = []
    there = False
    for pair in pairs.split(b"&"):
        spelled = pair.partition(b"=")[0]
        if not _spells(spelled, name):
            kept.append(pair)
        elif not there:
            there = True
            kept.append(spelled + b"=" + value)
    if not there:
        added = quote(name, safe="").encode() + b"=" + value
        kept[-1:] = [kept[-1], added] if kept[-1] else [added]
    return b"&".join(kept)


def _without_parameter(target: bytes, name: str) -> bytes:
    path, _, query = target.partition(b"?")
    pairs = query.split(b"&")
    kept = [pair for pair in pairs if not _spells(pair.partition(b"=")[0], name)]
    if len(kept) == len(pairs):
        return target
    return path + b"?" + b"&".join(kept) if kept else path


def _spells(spelled: bytes, name: str) -> bool:
    return decode_parameter(spelled) == name.encode()
