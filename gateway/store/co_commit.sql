-- Functions by which an upstream whose database is the gateway's takes part in its own transactions. They may be called by the role that they
-- are granted to, and touch nothing but the record that the token names.
--
-- A token (`gateway.core.attempt_token`) is checked against the owner of the attempt, which is random: nobody can make one. The record is
-- locked by the first of these calls until the transaction ends, so an attempt that owns it then owns it at the commit.
--
--   IG001   superseded: the attempt owns the record no more, or it has ended. Roll back.
--   IG002   the route does not take part (`participate: {co_commit: true}`), or no gateway has started with it yet.
--   22023   an argument is not what it should be.
--   54000   the answer, or the data of a point, is larger than what is kept.

SELECT set_config('search_path', format('%I, pg_temp', n.nspname), true)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = 'gateway_records'::regclass;


-- The record and the route of the attempt that the token names, locked until the transaction ends.
CREATE OR REPLACE FUNCTION gateway_attempt(token text, OUT held gateway_records, OUT route gateway_participants)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    raw bytea;
    scope text;
    key text;
    size integer;
BEGIN
    BEGIN
        raw := decode(rpad(translate(token, '-_', '+/'), (length(token) + 3) / 4 * 4, '='), 'base64');
        size := get_byte(raw, 17) * 256 + get_byte(raw, 18);
        scope := convert_from(substring(raw FROM 20 FOR size), 'UTF8');
        key := convert_from(substring(raw FROM 20 + size), 'UTF8');
    EXCEPTION WHEN others THEN
        raw := NULL;
    END;
    IF raw IS NULL OR get_byte(raw, 0) <> 1 THEN
        RAISE EXCEPTION 'this is no token of an attempt' USING ERRCODE = '22023';
    END IF;
    SELECT r.* INTO held
    FROM gateway_records r
    WHERE r.scope_id = scope AND r.idempotency_key = key AND r.owner = substring(raw FROM 2 FOR 16)
        AND r.status IN ('in_progress', 'unknown') AND NOT r.observed
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the attempt is superseded: roll back' USING ERRCODE = 'IG001';
    END IF;
    SELECT p.* INTO route FROM gateway_participants p WHERE p.route_id = held.route_id AND p.co_commit;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the route % does not take part', held.route_id USING ERRCODE = 'IG002';
    END IF;
END $$;


-- The bytes that the data of a point has in its field (`gateway.core.recovery_point.field_value`): an escape for each character that is not
-- ASCII, and two beyond the first plane.
CREATE OR REPLACE FUNCTION gateway_field_length(data jsonb) RETURNS integer
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT octet_length(
        regexp_replace(regexp_replace(data::text, '[\U00010000-\U0010FFFF]', repeat('x', 12), 'g'), '[^\u0001-\u007E]', repeat('x', 6), 'g')
    )
$$;


CREATE OR REPLACE FUNCTION gateway_fence(token text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM gateway_attempt(token);
END $$;


CREATE OR REPLACE FUNCTION gateway_advance(token text, point text, data jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    attempt record;
BEGIN
    IF (point ~ '^[a-z0-9_.-]{1,50}$') IS NOT TRUE THEN
        RAISE EXCEPTION 'a recovery point is 1 to 50 lower-case letters, digits, and _ . -' USING ERRCODE = '22023';
    ELSIF jsonb_typeof(data) <> 'object' THEN
        RAISE EXCEPTION 'the data of a recovery point is an object' USING ERRCODE = '22023';
    ELSIF gateway_field_length(data) > 4096 THEN
        RAISE EXCEPTION 'the data of a recovery point has at most 4096 bytes, six for each character that is not ASCII' USING ERRCODE = '54000';
    END IF;
    attempt := gateway_attempt(token);
    UPDATE gateway_records r
    SET version = r.version + 1,
        recovery_point = point,
        recovery_data = data::json,
        locked_until = CASE WHEN r.status = 'in_progress' THEN greatest(r.locked_until, now() + (attempt.route).lease) END,
        reconcile_after = CASE
            WHEN r.status = 'in_progress' THEN greatest(r.locked_until, now() + (attempt.route).lease) + r.max_execution
            ELSE r.reconcile_after
        END
    WHERE r.scope_id = (attempt.held).scope_id AND r.idempotency_key = (attempt.held).idempotency_key;
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail)
    VALUES (
        (attempt.held).scope_id,
        (attempt.held).idempotency_key,
        (attempt.held).record_id,
        'upstream',
        'advanced',
        jsonb_build_object('point', point, 'attempt', (attempt.held).attempt)
    );
END $$;


-- Fields of an answer in the form of `gateway.store.postgres.rows.encode_headers`, without those that are never kept
-- (`gateway.core.field_names`), with a Date if there is none.
CREATE OR REPLACE FUNCTION gateway_fields(headers jsonb) RETURNS bytea
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    field jsonb;
    name text;
    value bytea;
    kept bytea := '';
    dated boolean := false;
BEGIN
    IF jsonb_typeof(headers) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'headers are an array of [name, value] pairs' USING ERRCODE = '22023';
    END IF;
    FOR field IN SELECT * FROM jsonb_array_elements(headers) LOOP
        IF (jsonb_typeof(field) = 'array' AND jsonb_array_length(field) = 2) IS NOT TRUE
            OR jsonb_typeof(field -> 0) <> 'string' OR jsonb_typeof(field -> 1) <> 'string'
        THEN
            RAISE EXCEPTION 'headers are an array of [name, value] pairs' USING ERRCODE = '22023';
        END IF;
        name := field ->> 0;
        IF name !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+$' THEN
            RAISE EXCEPTION 'the name of a header field is not a token' USING ERRCODE = '22023';
        ELSIF (field ->> 1) ~ '[\u0001-\u0008\u000a-\u001f\u007f]' THEN
            RAISE EXCEPTION 'the value of the header field % holds a control character', name USING ERRCODE = '22023';
        END IF;
        BEGIN
            value := convert_to(btrim(field ->> 1, E' \t'), 'LATIN1');
        EXCEPTION WHEN untranslatable_character THEN
            RAISE EXCEPTION 'the value of the header field % is not ISO-8859-1', name USING ERRCODE = '22023';
        END;
        IF lower(name) = ANY (ARRAY[
            'close', 'connection', 'proxy-connection', 'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'http2-settings',
            'proxy-authorization', 'proxy-authenticate', 'content-length', 'set-cookie', 'www-authenticate', 'authentication-info',
            'proxy-authentication-info', 'proxy-status', 'retry-after', 'ratelimit', 'server-timing', 'alt-svc', 'traceparent', 'tracestate',
            'via', 'x-request-id', 'request-id', 'idempotent-replayed', 'original-request'
        ]) OR lower(name) ~ '^(ratelimit-|x-ratelimit-|x-rate-limit-)' THEN
            CONTINUE;
        END IF;
        dated := dated OR lower(name) = 'date';
        kept := kept || int4send(octet_length(name)) || int4send(octet_length(value)) || convert_to(name, 'LATIN1') || value;
    END LOOP;
    IF NOT dated THEN
        value := convert_to(to_char(now() AT TIME ZONE 'UTC', 'Dy, DD Mon YYYY HH24:MI:SS "GMT"'), 'LATIN1');
        kept := kept || int4send(4) || int4send(octet_length(value)) || convert_to('Date', 'LATIN1') || value;
    END IF;
    RETURN kept;
END $$;


CREATE OR REPLACE FUNCTION gateway_complete(token text, status integer, headers jsonb DEFAULT '[]', body bytea DEFAULT '') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    attempt record;
    fields bytea := gateway_fields(headers);
    answer bytea := coalesce(body, '');
BEGIN
    IF (gateway_complete.status BETWEEN 200 AND 599) IS NOT TRUE THEN
        RAISE EXCEPTION 'the status of an answer is 200 to 599' USING ERRCODE = '22023';
    ELSIF gateway_complete.status IN (204, 304) AND answer <> '' THEN
        RAISE EXCEPTION 'an answer of status % has no body', gateway_complete.status USING ERRCODE = '22023';
    END IF;
    attempt := gateway_attempt(token);
    IF octet_length(answer) > (attempt.route).longest_answer THEN
        RAISE EXCEPTION 'the answer has more bytes than limits.response_body, %', (attempt.route).longest_answer USING ERRCODE = '54000';
    END IF;
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = 'completed',
        completed_by = 'upstream',
        response_status_code = gateway_complete.status,
        response_reason = convert_to(
            CASE gateway_complete.status WHEN 200 THEN 'OK' WHEN 201 THEN 'Created' WHEN 202 THEN 'Accepted' WHEN 204 THEN 'No Content' ELSE '' END,
            'LATIN1'
        ),
        response_headers = fields,
        response_body = answer,
        response_body_encoding = 0,
        response_body_length = octet_length(answer),
        response_body_digest = sha256(answer),
        response_schema_version = 1,
        locked_until = NULL,
        reconcile_after = NULL,
        unknown_since = NULL,
        dead_lettered_at = NULL,
        doubtful_until = NULL,
        request_sealed = NULL,
        evidence = NULL,
        completed_at = now(),
        expires_at = now() + (attempt.route).retention,
        gone_for = (attempt.route).gone_for,
        keep_for = (attempt.route).keep_for
    WHERE r.scope_id = (attempt.held).scope_id AND r.idempotency_key = (attempt.held).idempotency_key;
END $$;


REVOKE ALL ON FUNCTION
    gateway_attempt(text), gateway_field_length(jsonb), gateway_fields(jsonb), gateway_fence(text), gateway_advance(text, text, jsonb), gateway_complete(text, integer, jsonb, bytea)
FROM PUBLIC;

DO $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), :role);
    EXECUTE format(
        'GRANT EXECUTE ON FUNCTION gateway_fence(text), gateway_advance(text, text, jsonb), gateway_complete(text, integer, jsonb, bytea) TO %I',
        :role
    );
END
$$;
