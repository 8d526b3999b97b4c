-- Completes a record inside a transaction of any program that was handed its lease: it inserts into
-- this view, which holds nothing. When it fails it has rolled the transaction back. The lease is given
-- as bytes, for not every SQLite can read hexadecimal digits.
DROP VIEW IF EXISTS {complete};
CREATE VIEW {complete} (lease, status, headers, body) AS SELECT NULL, NULL, NULL, NULL WHERE 0;

CREATE TRIGGER {complete}_insert INSTEAD OF INSERT ON {complete} BEGIN
    SELECT RAISE(ROLLBACK, 'onlyonce: this is not a lease: pass on the request header Onlyonce-Lease as 48 bytes, read from its 96 hexadecimal digits')
        WHERE typeof(NEW.lease) <> 'blob' OR length(NEW.lease) <> 48;
    SELECT RAISE(ROLLBACK, 'onlyonce: the status must be a number from 200 to 599')
        WHERE typeof(NEW.status) <> 'integer' OR NEW.status NOT BETWEEN 200 AND 599;
    SELECT RAISE(ROLLBACK, 'onlyonce: the body must be bytes or a text')
        WHERE typeof(NEW.body) NOT IN ('blob', 'text', 'null');
    SELECT RAISE(ROLLBACK, 'onlyonce: the answer is too large: its headers take at most 64 KiB, its body 16 MiB')
        WHERE length(CAST(NEW.headers AS BLOB)) > 65536 OR length(CAST(NEW.body AS BLOB)) > 16777216;
    SELECT RAISE(ROLLBACK, 'onlyonce: the headers must be a JSON object')
        WHERE NEW.headers IS NOT NULL
          AND CASE WHEN typeof(NEW.headers) = 'text' AND json_valid(NEW.headers)
                   THEN json_type(NEW.headers) ELSE '' END <> 'object';
    -- How a zero character is read differs between versions of SQLite.
    SELECT RAISE(ROLLBACK, 'onlyonce: the headers hold a zero character')
        WHERE instr(NEW.headers, '\u0000') > 0;
    SELECT RAISE(ROLLBACK, 'onlyonce: a member of the headers has a name that is no header name')
        FROM json_each(coalesce(NEW.headers, '{}')) AS f
        WHERE length(f.key) NOT BETWEEN 1 AND 1000
           OR f.key GLOB '*[^-!#$%&''*+.^_`|~0-9A-Za-z]*';
    SELECT RAISE(ROLLBACK, 'onlyonce: the value of a header must be a text without control characters, or a list of such texts')
        FROM json_each(coalesce(NEW.headers, '{}')) AS f
        JOIN json_each(CASE f.type WHEN 'array' THEN f.value ELSE json_array(f.value) END) AS e
        WHERE f.type NOT IN ('text', 'array') OR e.type <> 'text'
           OR e.value GLOB '*[' || char(1) || '-' || char(8) || char(10) || '-' || char(31)
                           || char(127) || ']*';
    SELECT RAISE(ROLLBACK, 'onlyonce: this lease has completed its record already')
        FROM {table} AS r
        WHERE r.slot = substr(NEW.lease, 1, 32) AND r.token = substr(NEW.lease, 33)
          AND r.state IN ('D', 'F');
    SELECT RAISE(ROLLBACK, 'onlyonce: the lease is lost: this attempt was given up, overtaken or forgotten')
        WHERE NOT EXISTS (
            SELECT 1 FROM {table} AS r
            WHERE r.slot = substr(NEW.lease, 1, 32) AND r.token = substr(NEW.lease, 33)
              AND r.state = 'P'
              -- The store's time goes by the clock since boot, which SQL cannot read: near enough.
              AND r.expires_at > coalesce((
                    SELECT c.store + max(0, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
                                            - c.wall)
                    FROM {table}_clock AS c), 0));
    -- It is kept as long as was promised with its last renewal: that needs no clock.
    UPDATE {table} SET
        state = CASE WHEN NEW.status >= 400 THEN 'F' ELSE 'D' END,
        response = (
            SELECT CAST('1P1' || printf('%08x%08x', length(CAST(head AS BLOB)), length(body))
                        || head || body AS BLOB)
            FROM (SELECT CAST(coalesce(NEW.body, x'') AS BLOB) AS body,
                '{"status":' || NEW.status || ',"headers":{' || coalesce((
                    SELECT group_concat('"' || f.key || '":'
                        || CASE f.type WHEN 'array' THEN f.value ELSE json_array(f.value) END)
                    FROM json_each(NEW.headers) AS f), '') || '}}' AS head)),
        completed_at = max(created_at, coalesce((
            SELECT c.store + max(0, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - c.wall)
            FROM {table}_clock AS c), created_at)),
        lease_until = NULL
    WHERE slot = substr(NEW.lease, 1, 32);
    UPDATE {table} SET bytes = length(response) WHERE slot = substr(NEW.lease, 1, 32);
END;
