"""The configuration that `dev` writes when it is given none."""

HEAD = """\
# Written by `idempotency-gateway dev` at every start. To change it, copy it and start with --config.
listen: 127.0.0.1:{port}
admin: {{listen: 127.0.0.1:{admin_port}}}
postgres: {{dsn: "${{GATEWAY_POSTGRES_DSN}}", timeout: 5s}}      # a laptop's disk may pause
redis: {{url: "${{GATEWAY_REDIS_URL}}"}}
digest_secret: "${{GATEWAY_DIGEST_SECRET}}"
drain: {{delay: 0s, timeout: {drain}}}
"""

ENCRYPTION = """\
encryption_key: "${GATEWAY_ENCRYPTION_KEY}"     # an accepted request waits in Postgres, encrypted
"""

SAMPLE = """\
defaults:
  principal: [{header: Authorization}]
  lease: 5s
upstreams:
  sample:
    url: "${GATEWAY_UPSTREAM_URL}"
    timeouts: {connect: 2s, first_byte: 3s, read_idle: 3s, total: 5s}
    max_execution: 5s               # nothing in the tour executes later than that (X-Sample-Execute-After can)
  rides:
    url: "${GATEWAY_RIDES_URL}"
    timeouts: {connect: 2s, first_byte: 3s, read_idle: 3s, total: 5s}
    max_execution: 5s
routes:
  - id: create-charge
    methods: [POST]
    path: /v1/charges
    upstream: sample
    idempotency:
      execution: prefer             # a request with Prefer: respond-async gets 202 at once, and is run later
      forward_key: derived          # what the API sees, and is asked for: one key of two callers is two keys there
      reconcile:                    # an outcome in doubt is asked for by key, once the API has surely finished
        probe: lookup
        request: {method: GET, path: "/v1/charges?idempotency_key={key}"}
        rules:
          - when: [{pointer: /outcome/status, equals: 201}]
            verdict: executed       # the client gets what it missed
            answer: {status: 201, headers: {Location: "/v1/charges/{found:/outcome/body/id}"}, pointer: /outcome/body}
          - {when: [{pointer: /charges, not_empty: true}], verdict: executed, answer: {status: 201, pointer: /charges/0}}
          - {when: [{pointer: /outcome/status, exists: true}], verdict: executed, answer: {status: 402, pointer: /outcome/body}}
          - {when: [{pointer: /executions, equals: 0}], verdict: not_executed}
        looks: 2
        apart: 3s
        first: 2s
  - id: create-ride
    methods: [POST]
    path: /v1/rides
    upstream: rides
    idempotency:
      participate: {progress: true, co_commit: true}
      on_unknown: resume            # a retry goes on where a killed worker stopped
  - {id: rides, methods: [GET], path: /v1/rides, upstream: rides}
  - {id: create-refund, methods: [POST], path: /v1/refunds, upstream: sample, idempotency: {}}
  - {id: rest, path: /**, upstream: sample}
"""

OWN = """\
upstreams:
  api:
    url: "${GATEWAY_UPSTREAM_URL}"
routes:
  - id: writes
    methods: [POST, PATCH]
    path: /**
    upstream: api
    idempotency:
      key: {required: false}        # a request without a key passes, unguarded
      principal: [{header: Authorization}]
  - {id: rest, path: /**, upstream: api}
"""


def sample_map(port: int, admin_port: int, progress_port: int) -> str:
    """Guards the sample's charges, refunds and rides, with short times so that a tour of the failures takes seconds."""
    progress = f"progress: {{listen: 127.0.0.1:{progress_port}}}\n"
    return HEAD.format(port=port, admin_port=admin_port, drain="15s") + ENCRYPTION + progress + SAMPLE


def own_map(port: int, admin_port: int) -> str:
    """Guards every POST and PATCH of the user's API that carries a key."""
    return HEAD.format(port=port, admin_port=admin_port, drain="75s") + OWN
