-- Deletes at most $1 rows that are over and remember no dead token any more, oldest first.
WITH due AS MATERIALIZED (
    SELECT slot FROM {table}
    WHERE expires_at <= statement_timestamp() AND dead_until <= statement_timestamp()
    ORDER BY expires_at LIMIT $1::int8
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM {table} AS r USING due WHERE r.slot = due.slot RETURNING r.*
){archive}
{told} FROM gone
