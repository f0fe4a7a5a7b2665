"""The part of the table about webhooks: where a provider tells what became of operations. As in `reconcile_fields`, what a route must say
is judged when all is filled in.
"""

from gateway.config import reconcile_texts, texts
from gateway.config.alternatives import Alternatives
from gateway.config.kinds import Choice, Duration, Size, Text
from gateway.config.named import files_of
from gateway.config.reconcile_fields import CALLER_BOUND, RULES
from gateway.config.shapes import Field, ListOf, Section, Struct
from gateway.core.reconcile.policy import OWN_KEY, PlainSignature, StandardSignature, StripeSignature, Webhook

_TOLERANCE = Duration("1s", "1d")
_PLAIN = PlainSignature("", ())
_WEBHOOK = Webhook("", _PLAIN, "", "", ())
_SECRET = Text("text", reconcile_texts.signing_secret, secret=True)
_STANDARD_SECRET = Text("text", reconcile_texts.standard_secret, secret=True)
_SECRETS = Alternatives(("secret", "secrets", "secret_files"), required=True, twins=frozenset({"secret"}))
_ONE = "The secret that the provider signs with."
_SEVERAL = "Several, any of which will do: the old and the new one while it changes."
_FILES = "Several, each in a file of its own."


class StripeFields:
    """`webhook.signature.stripe`."""

    SECRET = Field("secret", _SECRET, _ONE, twin=True)
    SECRETS = Field("secrets", ListOf(_SECRET, at_least=1, unique=False), _SEVERAL)
    SECRET_FILES = Field("secret_files", files_of(_SECRET), _FILES)
    TOLERANCE = Field("tolerance", _TOLERANCE, "By how much its time may differ from ours.", StripeSignature(()).tolerance)


class StandardFields:
    """`webhook.signature.standard`."""

    SECRET = Field("secret", _STANDARD_SECRET, f"{_ONE[:-1]}: whsec_ and base64.", twin=True)
    SECRETS = Field("secrets", ListOf(_STANDARD_SECRET, at_least=1, unique=False), _SEVERAL)
    SECRET_FILES = Field("secret_files", files_of(_STANDARD_SECRET), _FILES)
    TOLERANCE = Field("tolerance", _TOLERANCE, "By how much its time may differ from ours.", StandardSignature(()).tolerance)


class PlainFields:
    """`webhook.signature.hmac_sha256`."""

    HEADER = Field(
        "header", Text("a header name", texts.header_name, texts.HEADER_PATTERN), "The header field that holds it.", required=True
    )
    SECRET = Field("secret", _SECRET, _ONE, twin=True)
    SECRETS = Field("secrets", ListOf(_SECRET, at_least=1, unique=False), _SEVERAL)
    SECRET_FILES = Field("secret_files", files_of(_SECRET), _FILES)
    ENCODING = Field("encoding", Choice({word: word for word in ("hex", "base64")}), "How the digest is spelled.", _PLAIN.encoding)
    PREFIX = Field("prefix", Text("text", reconcile_texts.signature_prefix), "What stands before it, as in sha256=.", _PLAIN.prefix)


class SignatureFields:
    """`webhook.signature`."""

    STRIPE: Field[Section] = Field("stripe", Struct.of(StripeFields, _SECRETS), "Stripe-Signature: t=<unix seconds>,v1=<hex>.")
    STANDARD: Field[Section] = Field(
        "standard", Struct.of(StandardFields, _SECRETS), "Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature."
    )
    HMAC_SHA256: Field[Section] = Field("hmac_sha256", Struct.of(PlainFields, _SECRETS), "HMAC-SHA256 of the body in a header field.")


_SIGNATURES = Alternatives(("stripe", "standard", "hmac_sha256"), required=True)


class WebhookFields:
    """`routes[].idempotency.webhook`."""

    PATH = Field(
        "path", Text("a path", reconcile_texts.literal_path, r"^/"), "Where the provider posts its events, as in /webhooks/payments."
    )
    SIGNATURE: Field[Section] = Field(
        "signature",
        Struct.of(SignatureFields, _SIGNATURES, {"hmac": "hmac_sha256", "plain": "hmac_sha256", "standard_webhooks": "standard"}),
        "How its events are known to be its own.",
    )
    EVENT_ID = Field(
        "event_id",
        Text("a place", reconcile_texts.event_id, reconcile_texts.EVENT_ID_PATTERN),
        "Where an event's id is: a JSON pointer into it, or header:<name>. One that came before changes nothing.",
    )
    FIND = Field(
        "find",
        Text("a JSON pointer", reconcile_texts.inner_pointer, texts.POINTER_PATTERN),
        "Where in the event the text is by which the record is found.",
    )
    BY = Field(
        "by",
        Text("a name", reconcile_texts.captured, reconcile_texts.CAPTURED_PATTERN),
        "What that text is: key, the key as the upstream saw it, or the name of a captured value.",
        OWN_KEY,
    )
    CALLER_BOUND = Field(
        "caller_bound",
        CALLER_BOUND,
        "Who sees to it that a captured value finds the caller's own record: rules, which compare the event with {principal}; upstream, "
        "callers cannot name each other's.",
        "rules",
    )
    RULES: Field[tuple[Section, ...]] = Field("rules", RULES, "What an event means; the first that applies counts. It has no status.")
    LIMIT = Field("limit", Size("16MiB", "1KiB"), "The largest event that is taken; above it: 413.", _WEBHOOK.limit)
    REMEMBER = Field("remember", Duration("1m", "90d"), "How long an event's id is remembered.", _WEBHOOK.remember)


WEBHOOK = Struct.of(WebhookFields, meant={"id": "event_id", "url": "path"})
