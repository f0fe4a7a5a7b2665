-- Divides the large tables of a schema that is up to date into :partitions hash partitions, rows included. Each is made anew from its own
-- catalogue entries (columns, constraints, indexes, triggers, settings, grants), so that no table is declared twice.
--
-- A row is in the partition of its scope, a tombstone in that of its digest. A primary key that does not hold this column gets it in front:
-- Postgres demands it, and what was unique stays so, since all that one key identifies belongs to one scope.
--
-- All of them are locked until the end, and the rows are copied: gateways are stopped before.

DO $$
DECLARE
    wanted record;
    whole text;
    options text[];
    settings text;
    built text[];
BEGIN
    FOR wanted IN
        VALUES ('gateway_records', 'scope_id'), ('gateway_records_archive', 'scope_id'), ('gateway_tombstones', 'digest')
    LOOP
        whole := wanted.column1 || '_whole';
        EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', wanted.column1);
        options := ARRAY(
            SELECT unnest(reloptions) FROM pg_class WHERE oid = wanted.column1::regclass
            UNION ALL
            SELECT 'toast.' || unnest(t.reloptions)
            FROM pg_class c
            JOIN pg_class t ON t.oid = c.reltoastrelid
            WHERE c.oid = wanted.column1::regclass
        );
        settings := CASE WHEN cardinality(options) > 0 THEN format('WITH (%s)', array_to_string(options, ', ')) ELSE '' END;
        built := ARRAY(
            SELECT CASE
                WHEN i.indisprimary THEN format(
                    'ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (%s)',
                    wanted.column1,
                    c.relname,
                    array_to_string(array_remove(ARRAY[CASE WHEN NOT k.names @> ARRAY[wanted.column2] THEN wanted.column2 END], NULL) || k.names, ', ')
                )
                ELSE pg_get_indexdef(i.indexrelid)
            END
            FROM pg_index i
            JOIN pg_class c ON c.oid = i.indexrelid
            CROSS JOIN LATERAL (
                SELECT array_agg(quote_ident(a.attname) ORDER BY a.attnum) AS names FROM pg_attribute a WHERE a.attrelid = i.indexrelid
            ) AS k
            WHERE i.indrelid = wanted.column1::regclass
            ORDER BY i.indisprimary DESC, c.relname
        ) || ARRAY(
            SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = wanted.column1::regclass AND NOT tgisinternal ORDER BY tgname
        ) || ARRAY(
            SELECT format(
                'GRANT %s ON %I TO %s', a.privilege_type, c.relname, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
            )
            FROM pg_class c
            CROSS JOIN LATERAL aclexplode(c.relacl) AS a
            WHERE c.oid = wanted.column1::regclass AND a.grantee <> c.relowner
        ) || ARRAY(
            SELECT format('ALTER TABLE %I OWNER TO %s', relname, relowner::regrole) FROM pg_class WHERE oid = wanted.column1::regclass
        );
        EXECUTE format('ALTER TABLE %I RENAME TO %I', wanted.column1, whole);
        EXECUTE format(
            'CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE) PARTITION BY HASH (%I)',
            wanted.column1, whole, wanted.column2
        );
        FOR part IN 0 .. :partitions - 1 LOOP
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES WITH (MODULUS %s, REMAINDER %s) %s',
                wanted.column1 || '_p' || part, wanted.column1, :partitions, part, settings
            );
        END LOOP;
        EXECUTE format('INSERT INTO %I SELECT * FROM %I', wanted.column1, whole);
        EXECUTE format('DROP TABLE %I', whole);
        EXECUTE array_to_string(built, ';');
    END LOOP;
END
$$;
