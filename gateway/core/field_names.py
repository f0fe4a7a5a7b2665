"""The tables of the header policy: field names, in lower case, by what becomes of the fields. `gateway.core.headers` applies them."""

HOP_BY_HOP = frozenset(
    {
        b"close",
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
        b"proxy-authorization",
        b"proxy-authenticate",
    }
)
"""Fields about one connection. `Content-Length` is not among them, but each hop computes its own framing: see `FRAMING`.

Trailer fields are not forwarded (RFC 9110 section 6.5 allows that), so neither `Trailer` nor `TE`, which asks for them, is. `Close` is
no field at all: its name is reserved, so that no `Connection: close` strips one (section 9.6).
"""

FRAMING = frozenset({b"content-length", b"transfer-encoding"})

PER_EXCHANGE = frozenset(
    {
        b"set-cookie",
        b"www-authenticate",
        b"authentication-info",
        b"proxy-authentication-info",
        b"proxy-status",
        b"retry-after",
        b"ratelimit",
        b"server-timing",
        b"alt-svc",
        b"traceparent",
        b"tracestate",
        b"via",
        b"x-request-id",
        b"request-id",
    }
)
"""Fields that speak about one exchange, or hand out a session: passed on with the first answer, never stored."""

PER_EXCHANGE_FAMILIES = (b"ratelimit-", b"x-ratelimit-", b"x-rate-limit-")
"""Beginnings of names of which the same is true; everybody has a `Remaining-Something` of their own."""

OURS = frozenset({b"idempotent-replayed", b"original-request"})
"""Fields that only the gateway may send downstream; an upstream's own copies are removed."""

TAKING_PART = frozenset({b"idempotency-token", b"idempotency-attempt", b"idempotency-recovery-point", b"idempotency-recovery-data"})
"""Fields that only the gateway may send to an upstream that takes part; a client's are removed, in every spelling."""

FORWARDED = frozenset({b"forwarded", b"x-real-ip", b"x-real_ip", b"x_real-ip", b"x_real_ip"})
FORWARDED_FAMILIES = (b"x-forwarded-", b"x-forwarded_", b"x_forwarded-", b"x_forwarded_")
"""What hops before us say about the client, by name and by beginning of name; believed only from trusted proxies, else removed. An
underscore is a hyphen to many an upstream, as in CGI. What a trusted proxy says cannot be nominated away: its client may have written
the `Connection` line.
"""

WRITTEN = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"})
"""Those of the family that this hop may write itself. The others pass from any peer where a route goes by them (its principal, say)."""

REPLACED = frozenset({b"host", b"expect", b"via", b"x-request-id"})
"""Fields that are ours to write toward the upstream. `Via` keeps what earlier hops wrote; we have answered `Expect` ourselves."""

ALWAYS_KEPT = frozenset({b"authorization", b"host", b"content-type", b"content-encoding", b"cookie", b"early-data"})
"""Fields of a request that naming them in `Connection` does not strip: they say what it means, whose it is, or that it may be a repeated
one (RFC 8470 section 5.1).
"""

CLIENT_ADDRESSES = frozenset({b"x-forwarded-for", b"x-real-ip"})
"""Those of the forwarded family that go on as they stand, or not at all, whatever they say."""

_ONE_BY_ONE = frozenset({b"host", b"expect", b"via", b"max-forwards", b"content-type", b"content-encoding"})
STEER = (HOP_BY_HOP | FORWARDED | _ONE_BY_ONE) - CLIENT_ADDRESSES
"""Fields that say how a message is read, what a hop does with it, or for whom it came. They are never among those that `VARY`, and neither
is another field of the forwarded family.
"""

VARY = frozenset(
    {
        b"content-length",
        b"date",
        b"etag",
        b"idempotency-key",
        b"x-idempotency-key",
        b"x-request-id",
        b"request-id",
        b"x-client-request-id",
        b"x-correlation-id",
        b"correlation-id",
        b"traceparent",
        b"tracestate",
        b"baggage",
        b"b3",
        b"x-b3-traceid",
        b"x-b3-spanid",
        b"x-b3-parentspanid",
        b"uber-trace-id",
        b"sentry-trace",
        b"x-amzn-trace-id",
        b"x-amzn-requestid",
        b"x-cloud-trace-context",
        b"x-datadog-trace-id",
        b"x-datadog-parent-id",
        b"newrelic",
        b"content-digest",
        b"content-md5",
        b"digest",
        b"dpop",
        b"signature",
        b"signature-input",
        b"x-signature",
        b"x-timestamp",
        b"x-amz-date",
        b"x-amz-content-sha256",
        b"x-envoy-upstream-service-time",
        b"x-runtime",
        b"x-response-time",
        b"authorization",
        b"cookie",
        b"x-api-key",
        b"x-forwarded-for",
        b"x-real-ip",
        b"true-client-ip",
        b"cf-connecting-ip",
        b"cf-ray",
        b"x-request-start",
    }
)
"""Fields whose values differ from message to message, or from client to client: of the others nearly all are the same
(`gateway.core.head_shapes`). The fields in which a route looks for its key, or for who asks, come to them.
"""

SELECTING = frozenset(
    {
        b"soapaction",
        b"x-amz-target",
        b"x-http-method-override",
        b"x-http-method",
        b"x-method-override",
        b"x-original-url",
        b"x-rewrite-url",
        b"content-disposition",
        b"content-language",
        b"content-location",
        b"content-range",
        b"range",
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"if-range",
        b"if",
        b"if-schedule-tag-match",
        b"depth",
        b"destination",
        b"lock-token",
        b"overwrite",
        b"slug",
        b"upload-complete",
        b"upload-concat",
        b"upload-defer-length",
        b"upload-length",
        b"upload-metadata",
        b"upload-offset",
        b"x-amz-copy-source",
        b"x-amz-copy-source-range",
        b"x-goog-copy-source",
        b"x-ms-copy-source",
    }
)
"""Fields of a request that say which operation it is, on what, or under which condition: part of what it means (`gateway.core.fingerprint`)
wherever a request has one. SOAP and the RPC of AWS name the operation in a field; overrides name method and path; a range, an offset and a
file's name say where a body goes; conditions (RFC 9110 section 13, WebDAV's `If`) make of one request two; WebDAV and stores of objects
name what is copied, and whither. Not among them: what may differ between two attempts of one operation (credentials, dates, signatures,
trace ids), what is about the answer's form (`Accept`, `Prefer`), and fields of single APIs, which a route names in `headers`.

Part of fingerprint version 3: another list is another version.
"""

HOST = "host"
"""What `ignore_headers` calls the host that a request is for."""

DROPPABLE = frozenset({HOST} | {name.decode() for name in SELECTING})
"""What `ignore_headers` may name: all that version 3 of the fingerprint covers without being asked to."""
