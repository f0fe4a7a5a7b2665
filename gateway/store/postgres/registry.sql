-- What scopes and fingerprint policies mean, and who serves them: see registry.py and holding.py.


-- name: scopes
SELECT scope, principal, key_settings, secret_check, routes FROM gateway_scopes ORDER BY scope


-- name: live_records
-- Records that have expired and are to become a tombstone count as long as that would: they refuse a second run already.
-- A scope's ids are `<scope>:<principal>`; ';' follows ':' in the byte order that the primary key is kept in.
-- Counted up to $2. Above it, what is asked of all is asked of the index on expiry and of those of the states without one.
WITH seen AS MATERIALIZED (
    SELECT count(*) AS found, bool_or(live.expires_at IS NULL) AS endless, max(live.expires_at) AS last
    FROM (
        SELECT expires_at + coalesce(gone_for, '0') AS expires_at
        FROM gateway_records
        WHERE scope_id >= $1::text || ':' AND scope_id < $1::text || ';'
            AND (expires_at IS NULL OR expires_at > expiry_now() OR (gone_for IS NOT NULL AND expires_at + gone_for > expiry_now()))
        LIMIT $2::bigint
    ) AS live
)
SELECT
    found,
    CASE WHEN endless OR found < $2::bigint THEN endless ELSE
        EXISTS (
            SELECT FROM gateway_records
            WHERE status = 'in_progress' AND scope_id >= $1::text || ':' AND scope_id < $1::text || ';'
        ) OR EXISTS (
            SELECT FROM gateway_records
            WHERE status = 'unknown' AND scope_id >= $1::text || ':' AND scope_id < $1::text || ';'
        )
    END AS endless,
    CASE WHEN found < $2::bigint THEN last ELSE (
        SELECT expires_at + coalesce(gone_for, '0')
        FROM gateway_records
        WHERE expires_at IS NOT NULL AND scope_id >= $1::text || ':' AND scope_id < $1::text || ';'
        ORDER BY expires_at DESC
        LIMIT 1
    ) END AS last
FROM seen


-- name: register_scopes
INSERT INTO gateway_scopes (scope, principal, key_settings, secret_check, routes)
SELECT *
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS claim (scope, principal, key_settings, secret_check, routes)
ON CONFLICT (scope) DO UPDATE
SET principal = excluded.principal,
    key_settings = excluded.key_settings,
    secret_check = excluded.secret_check,
    routes = excluded.routes,
    changed_at = now()


-- name: register_policies
INSERT INTO gateway_fingerprint_policies (digest, version, policy)
SELECT * FROM unnest($1::bytea[], $2::smallint[], $3::text[]) AS claim (digest, version, policy)
ON CONFLICT (digest) DO NOTHING


-- name: fingerprint_policy
SELECT version, policy FROM gateway_fingerprint_policies WHERE digest = $1


-- name: live_tombstones
-- Of this scope, or of one that nobody wrote down. Counted up to $2.
SELECT count(*) AS found, max(expires_at) AS last
FROM (
    (SELECT expires_at FROM gateway_tombstones WHERE scope = $1 AND expires_at > expiry_now() ORDER BY expires_at DESC LIMIT $2::bigint)
    UNION ALL
    (SELECT expires_at FROM gateway_tombstones WHERE scope IS NULL AND expires_at > expiry_now() ORDER BY expires_at DESC LIMIT $2::bigint)
) AS live


-- name: scopes_digest
-- A digest of all that the registry says: while it stays, nobody need read more.
SELECT md5(coalesce(string_agg(
    md5(scope) || md5(principal) || md5(key_settings) || md5(secret_check) || md5(routes), '' ORDER BY scope
), ''))
FROM gateway_scopes


-- name: other_holders
SELECT claims, held_until FROM gateway_scope_holders WHERE held_until > lapse_now() AND holder <> $1


-- name: keep_holding
UPDATE gateway_scope_holders SET held_until = now() + make_interval(secs => $2::float8) WHERE holder = $1 RETURNING true AS held


-- name: hold
INSERT INTO gateway_scope_holders (holder, claims, held_until)
VALUES ($1, $2, now() + make_interval(secs => $3::float8))
ON CONFLICT (holder) DO UPDATE SET claims = excluded.claims, held_until = excluded.held_until


-- name: let_go
DELETE FROM gateway_scope_holders WHERE holder = $1


-- name: forget_holders
DELETE FROM gateway_scope_holders WHERE held_until <= lapse_now() - interval '1 hour'
