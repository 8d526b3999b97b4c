-- Stores many answers at once, each only if its token still holds the slot. S is stored, F was decided
-- otherwise and comes with the record, A is absent. Filled in twice: for a batch, which skips rows that
-- are locked, and for a transaction of the application, which waits for them and says who it is.
WITH v AS MATERIALIZED (
    SELECT *, clock_timestamp() AS now{also}
    FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::bytea[], $5::int8[], $6::int8[])
        AS v (slot, token, state, response, keep, asked)
),
here AS MATERIALIZED (
    SELECT v.*, r.*
    FROM v LEFT JOIN LATERAL (
        SELECT {record}, CASE WHEN {held} THEN 'M' WHEN {live} THEN 'F' ELSE 'A' END AS verdict
        FROM {table} AS r CROSS JOIN LATERAL (SELECT false AS busy) AS b
        WHERE r.slot = v.slot
        OFFSET 0
    ) AS r ON true
),
mine AS MATERIALIZED (
    SELECT v.slot, v.state, v.response, v.keep, v.asked, v.now
    FROM here AS v CROSS JOIN LATERAL (
        SELECT FROM {table} AS r WHERE r.slot = v.slot AND {held}
        FOR NO KEY UPDATE OF r {wait}
    ) AS f
    WHERE v.verdict = 'M'
),
done AS (
    UPDATE {table} AS r SET
        state = v.state::"char",
        response = v.response,
        completed_at = v.now,
        -- What an operator has added while it ran counts on.
        expires_at = v.now + v.keep * {us} + GREATEST(r.tail - v.asked * {us}, interval '0')
    FROM mine AS v WHERE r.slot = v.slot
    RETURNING r.slot, (date_part('epoch', r.created_at) * 1000)::int8 AS created,
              (date_part('epoch', r.completed_at) * 1000)::int8 AS completed,
              (date_part('epoch', r.expires_at) * 1000)::int8 AS expires
),
{promise}
SELECT slot, coalesce(verdict, 'A') AS verdict, NULL::int8 AS created, NULL::int8 AS completed,
       NULL::int8 AS expires, {columns}
FROM here CROSS JOIN promise WHERE verdict IS DISTINCT FROM 'M' AND promises >= 0
UNION ALL SELECT slot, 'S', created, completed, expires, {nulls} FROM done
