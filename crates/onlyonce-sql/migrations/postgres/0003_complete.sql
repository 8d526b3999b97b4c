-- Completes a record inside a transaction of any program that was handed its lease. It runs with the
-- rights of its owner: a caller needs EXECUTE on it, and none on the tables.
CREATE OR REPLACE FUNCTION {complete}(lease text, status integer, headers jsonb, body bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $complete$
DECLARE
    the_slot  bytea;
    the_token bytea;
    the_time  timestamptz;
    fields    jsonb;
    head      bytea;
    found     record;
BEGIN
    IF lease IS NULL OR lease !~ '^[0-9a-f]{96}$' THEN
        RAISE EXCEPTION 'onlyonce: this is not a lease' USING ERRCODE = 'ONCE2',
            HINT = 'pass on the value of the request header Onlyonce-Lease as it came';
    END IF;
    IF status IS NULL OR status NOT BETWEEN 200 AND 599 THEN
        RAISE EXCEPTION 'onlyonce: the status must be a number from 200 to 599'
            USING ERRCODE = 'ONCE3';
    END IF;
    headers := coalesce(headers, '{}');
    body := coalesce(body, '');
    IF jsonb_typeof(headers) <> 'object' THEN
        RAISE EXCEPTION 'onlyonce: the headers must be a JSON object' USING ERRCODE = 'ONCE3';
    END IF;
    IF EXISTS (SELECT FROM jsonb_object_keys(headers) AS name
               WHERE name !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]+$' OR length(name) > 1000) THEN
        RAISE EXCEPTION 'onlyonce: a member of the headers has a name that is no header name'
            USING ERRCODE = 'ONCE3';
    END IF;
    SELECT coalesce(jsonb_object_agg(f.key, f.list), '{}') INTO fields FROM (
        SELECT key, CASE jsonb_typeof(value) WHEN 'array' THEN value
                    ELSE jsonb_build_array(value) END AS list
        FROM jsonb_each(headers)
    ) AS f;
    IF EXISTS (SELECT FROM jsonb_each(fields) AS f CROSS JOIN jsonb_array_elements(f.value) AS e
               WHERE jsonb_typeof(e.value) <> 'string'
                  OR e.value #>> '{}' ~ '[\u0001-\u0008\u000a-\u001f\u007f]') THEN
        RAISE EXCEPTION 'onlyonce: the value of a header must be a text without control characters, or a list of such texts'
            USING ERRCODE = 'ONCE3';
    END IF;
    head := convert_to(jsonb_build_object('status', status, 'headers', fields)::text, 'UTF8');
    IF octet_length(head) > 65536 OR octet_length(body) > 16777216 THEN
        RAISE EXCEPTION 'onlyonce: the answer is too large: its headers take at most 64 KiB, its body 16 MiB'
            USING ERRCODE = 'ONCE3';
    END IF;

    the_slot := decode(substr(lease, 1, 64), 'hex');
    the_token := decode(substr(lease, 65), 'hex');
    -- Until this transaction ends the claim counts as alive, whatever its lease says.
    PERFORM pg_advisory_xact_lock(('x' || substr(lease, 1, 16))::bit(64)::int8);
    SELECT r.state, r.expires_at INTO found FROM {table} AS r
        WHERE r.slot = the_slot AND r.token = the_token FOR NO KEY UPDATE;
    the_time := clock_timestamp();
    IF found.state IN ('D', 'F') THEN
        RAISE EXCEPTION 'onlyonce: this lease has completed its record already' USING ERRCODE = 'ONCE1',
            HINT = 'roll back: the answer that was stored first is the one that retries get';
    END IF;
    IF found.state IS DISTINCT FROM 'P' OR found.expires_at <= the_time THEN
        RAISE EXCEPTION 'onlyonce: the lease is lost: this attempt was given up, overtaken or forgotten'
            USING ERRCODE = 'ONCE1', HINT = 'roll back: another attempt decides on the answer';
    END IF;
    UPDATE {table} AS r SET
        state = CASE WHEN status >= 400 THEN 'F' ELSE 'D' END,
        response = convert_to('1P1' || lpad(to_hex(octet_length(head)), 8, '0')
                              || lpad(to_hex(octet_length(body)), 8, '0'), 'UTF8') || head || body,
        completed_at = the_time,
        expires_at = the_time + r.tail
    WHERE r.slot = the_slot;
END
$complete$;

-- The tables are found where they are now, and not in a schema of the caller's choice.
DO $path$
DECLARE
    place text;
BEGIN
    SELECT n.nspname INTO place FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = to_regclass('{table}');
    EXECUTE format('ALTER FUNCTION {complete}(text, integer, jsonb, bytea) SET search_path = %I, pg_temp',
                   place);
END
$path$;

REVOKE ALL ON FUNCTION {complete}(text, integer, jsonb, bytea) FROM PUBLIC;
