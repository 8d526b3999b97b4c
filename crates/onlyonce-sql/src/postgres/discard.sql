-- An operator drops a record whose outcome is unknown or whose lease lapsed, and no other: M. F has
-- another state, A is absent.
WITH v AS MATERIALIZED (
    SELECT $1::bytea AS slot, clock_timestamp() AS now
),
here AS MATERIALIZED (
    SELECT v.*, r.*
    FROM v LEFT JOIN LATERAL (
        SELECT {record}, CASE
                WHEN NOT {live} THEN 'A'
                WHEN busy OR NOT {resolvable} THEN 'F'
                ELSE 'M'
            END AS verdict
        FROM {table} AS r CROSS JOIN LATERAL (SELECT {alive} AS busy OFFSET 0) AS b
        WHERE r.slot = v.slot
        OFFSET 0
    ) AS r ON true
),
mine AS MATERIALIZED (
    SELECT v.slot, v.now
    FROM here AS v CROSS JOIN LATERAL (
        SELECT FROM {table} AS r WHERE r.slot = v.slot AND {live} AND {resolvable}
        FOR NO KEY UPDATE OF r SKIP LOCKED
    ) AS f
    WHERE v.verdict = 'M'
),
done AS (
    UPDATE {table} AS r SET {forgotten}
    FROM mine AS v WHERE r.slot = v.slot
    RETURNING r.slot
)
SELECT slot, coalesce(verdict, 'A') AS verdict, {columns}
FROM here WHERE verdict IS DISTINCT FROM 'M'
UNION ALL SELECT slot, 'S', {nulls} FROM done
