-- Gives many claims back at once: as not run, or as unknown. The token is remembered as dead for a lease,
-- in a row that is made for it if there is none, so that a claim of the same token that is still on its
-- way cannot be granted afterwards.
WITH v AS MATERIALIZED (
    SELECT *, clock_timestamp() AS now
    FROM unnest($1::bytea[], $2::bytea[], $3::bool[], $4::int8[]) AS v (slot, token, unknown, lease)
),
here AS MATERIALIZED (
    SELECT v.*, r.*
    FROM v LEFT JOIN LATERAL (
        SELECT {record}, CASE
                WHEN {held} OR NOT v.unknown THEN 'M'
                WHEN {live} THEN 'F'
                ELSE 'E'
            END AS verdict
        FROM {table} AS r CROSS JOIN LATERAL (SELECT false AS busy) AS b
        WHERE r.slot = v.slot
        OFFSET 0
    ) AS r ON true
),
mine AS MATERIALIZED (
    SELECT v.slot, v.token, v.unknown, v.lease, v.now, f.*
    FROM here AS v CROSS JOIN LATERAL (
        SELECT {record}, {held} AS held, {live} AS live
        FROM {table} AS r CROSS JOIN LATERAL (SELECT false AS busy) AS b
        WHERE r.slot = v.slot AND ({held} OR NOT v.unknown)
        FOR NO KEY UPDATE OF r SKIP LOCKED
    ) AS f
    WHERE v.verdict = 'M'
),
made AS (
    INSERT INTO {table} (slot, created_at, lease_until, expires_at, dead_until, tail, attempt,
                         state, rerun, token, fingerprint, operation, hint, meta, dead_tokens,
                         dead_deadlines)
    SELECT slot, now, now, now + lease * {us}, now + lease * {us}, interval '0', 0, 'R', false,
           token, '', '', '', '', ARRAY[token], ARRAY[now + lease * {us}]
    FROM here WHERE verdict IS NULL AND NOT unknown ORDER BY slot
    ON CONFLICT (slot) DO NOTHING
    RETURNING slot
),
ended AS (
    UPDATE {table} AS r SET
        state = CASE WHEN NOT held THEN r.state WHEN NOT unknown AND r.attempt <= 1 THEN 'R'
                     WHEN r.rerun THEN 'P' ELSE 'U' END,
        lease_until = CASE WHEN held THEN v.now ELSE r.lease_until END,
        expires_at = CASE WHEN r.state = 'R' OR (held AND NOT unknown AND r.attempt <= 1)
                          THEN GREATEST(r.dead_until, v.now + v.lease * {us})
                          ELSE r.expires_at END,
        operation = CASE WHEN held AND NOT unknown AND r.attempt <= 1 THEN '' ELSE r.operation END,
        actor = CASE WHEN held AND NOT unknown AND r.attempt <= 1 THEN NULL ELSE r.actor END,
        hint = CASE WHEN held AND NOT unknown AND r.attempt <= 1 THEN '' ELSE r.hint END,
        meta = CASE WHEN held AND NOT unknown AND r.attempt <= 1 THEN '' ELSE r.meta END,
        dead_until = GREATEST(r.dead_until, v.now + v.lease * {us}),
        (dead_tokens, dead_deadlines) = (
            SELECT array_agg(g.token ORDER BY g.n), array_agg(g.deadline ORDER BY g.n)
            FROM (
                SELECT d.token, d.deadline, d.n
                FROM unnest(r.dead_tokens, r.dead_deadlines) WITH ORDINALITY
                    AS d (token, deadline, n)
                WHERE d.deadline > v.now AND d.token <> v.token
                UNION ALL SELECT v.token, v.now + v.lease * {us}, 9223372036854775807
                ORDER BY 3 DESC LIMIT {dead_max}
            ) AS g
        )
    FROM mine AS v WHERE r.slot = v.slot
    RETURNING r.slot, CASE WHEN held THEN 'S' WHEN live THEN 'F' ELSE 'E' END AS verdict, {carried}
),
{promise}
SELECT slot, coalesce(verdict, 'E') AS verdict, {columns}
FROM here CROSS JOIN promise
WHERE (verdict IN ('F', 'E') OR (verdict IS NULL AND unknown)) AND promises >= 0
UNION ALL SELECT slot, 'E', {nulls} FROM made
UNION ALL SELECT slot, verdict, {columns} FROM ended
