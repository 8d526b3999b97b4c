-- An operator settles a record whose outcome is unknown or whose lease lapsed, and no other: M. F has
-- another state, A is absent. How long nothing runs twice was promised with the claim, and is not
-- shortened.
WITH v AS MATERIALIZED (
    SELECT $1::bytea AS slot, $2::text AS state, $3::bytea AS response, $4::int8 AS keep,
           clock_timestamp() AS now
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
    SELECT v.slot, v.state, v.response, v.keep, v.now
    FROM here AS v CROSS JOIN LATERAL (
        SELECT FROM {table} AS r WHERE r.slot = v.slot AND {live} AND {resolvable}
        FOR NO KEY UPDATE OF r SKIP LOCKED
    ) AS f
    WHERE v.verdict = 'M'
),
done AS (
    UPDATE {table} AS r SET
        state = v.state::"char",
        response = v.response,
        completed_at = v.now,
        expires_at = GREATEST(r.expires_at, v.now + v.keep * {us})
    FROM mine AS v WHERE r.slot = v.slot
    RETURNING r.slot
)
SELECT slot, coalesce(verdict, 'A') AS verdict, {columns}
FROM here WHERE verdict IS DISTINCT FROM 'M'
UNION ALL SELECT slot, 'S', {nulls} FROM done
