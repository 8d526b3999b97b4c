-- Renews many leases at once: M where the token still holds its slot, L where the lease is lost, B
-- where a transaction of the holder has it ($4 asks for that).
WITH v AS MATERIALIZED (
    SELECT *, clock_timestamp() AS now
    FROM unnest($1::bytea[], $2::bytea[], $3::int8[]) AS v (slot, token, lease)
),
here AS MATERIALIZED (
    SELECT v.*, r.verdict
    FROM v LEFT JOIN LATERAL (
        SELECT CASE WHEN NOT {held} THEN 'L' WHEN $4::bool AND {locked} THEN 'B' ELSE 'M' END
            AS verdict
        FROM {table} AS r WHERE r.slot = v.slot
        OFFSET 0
    ) AS r ON true
),
mine AS MATERIALIZED (
    SELECT v.slot, v.lease, v.now
    FROM here AS v CROSS JOIN LATERAL (
        SELECT FROM {table} AS r WHERE r.slot = v.slot AND {held}
        FOR NO KEY UPDATE OF r SKIP LOCKED
    ) AS f
    WHERE v.verdict = 'M'
),
kept AS (
    UPDATE {table} AS r SET
        lease_until = v.now + v.lease * {us},
        expires_at = v.now + v.lease * {us} + r.tail
    FROM mine AS v WHERE r.slot = v.slot
    RETURNING r.slot
)
SELECT slot, coalesce(verdict, 'L') AS verdict FROM here WHERE verdict IS DISTINCT FROM 'M'
UNION ALL SELECT slot, 'K' FROM kept
