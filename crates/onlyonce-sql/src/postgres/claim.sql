-- Claims many slots at once. $1 and following: what is asked for, one element per slot.
-- `here` judges each slot on what is there: X the token was given back before, T somebody has it or it
-- is done, C it can be had. `free` locks the rows of C, skipping those that another claim has just now;
-- `made` inserts where there was no row; `took` begins anew (N), goes on with its own (O) or takes over
-- what lapsed (L), and tells what was there before: a finished record that was over ends here. A slot that is in none of the results was taken in between: its caller asks again.
WITH v AS MATERIALIZED (
    SELECT *, clock_timestamp() AS now
    FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bool[], $5::int8[], $6::int8[],
                $7::bytea[], $8::text[], $9::text[], $10::text[])
        AS v (slot, token, fingerprint, rerun, lease, keep, meta, operation, actor, hint)
),
here AS MATERIALIZED (
    SELECT v.*, r.*
    FROM v LEFT JOIN LATERAL (
        SELECT {record}, busy, CASE
                WHEN {dead} THEN 'X'
                WHEN busy THEN 'T'
                WHEN {fresh} THEN 'C'
                WHEN {yields} THEN 'C'
                ELSE 'T'
            END AS verdict
        FROM {table} AS r CROSS JOIN LATERAL (SELECT {busy} AS busy OFFSET 0) AS b
        WHERE r.slot = v.slot
        OFFSET 0
    ) AS r ON true
),
free AS MATERIALIZED (
    SELECT v.slot, v.token, v.fingerprint, v.rerun, v.lease, v.keep, v.meta, v.operation, v.actor,
           v.hint, v.now, f.*
    FROM here AS v CROSS JOIN LATERAL (
        SELECT CASE WHEN {fresh} THEN 'N' WHEN r.token = v.token THEN 'O' ELSE 'L' END AS how,
               r.meta AS overtook, {record}
        FROM {table} AS r CROSS JOIN (SELECT false AS busy) AS b
        WHERE r.slot = v.slot AND NOT {dead} AND ({fresh} OR {yields})
        FOR NO KEY UPDATE OF r SKIP LOCKED
    ) AS f
    WHERE v.verdict = 'C'
),
made AS (
    INSERT INTO {table} (slot, created_at, lease_until, expires_at, tail, attempt, state, rerun,
                         token, fingerprint, operation, actor, hint, meta)
    SELECT slot, now, now + lease * {us}, now + lease * {us} + keep * {us}, keep * {us}, 1, 'P',
           rerun, token, fingerprint, operation, actor, hint, meta
    FROM here WHERE verdict IS NULL ORDER BY slot
    ON CONFLICT (slot) DO NOTHING
    RETURNING slot
),
took AS (
    UPDATE {table} AS r SET
        state = 'P',
        token = v.token,
        lease_until = v.now + v.lease * {us},
        expires_at = v.now + v.lease * {us} + CASE how WHEN 'O' THEN r.tail ELSE v.keep * {us} END,
        tail = CASE how WHEN 'O' THEN r.tail ELSE v.keep * {us} END,
        created_at = CASE how WHEN 'N' THEN v.now ELSE r.created_at END,
        completed_at = NULL,
        attempt = CASE how WHEN 'N' THEN 1 WHEN 'O' THEN r.attempt
                  ELSE LEAST(r.attempt, 2147483646) + 1 END,
        replays = CASE how WHEN 'O' THEN r.replays ELSE 0 END,
        rerun = CASE how WHEN 'O' THEN r.rerun ELSE v.rerun END,
        fingerprint = CASE how WHEN 'O' THEN r.fingerprint ELSE v.fingerprint END,
        operation = CASE how WHEN 'O' THEN r.operation ELSE v.operation END,
        actor = CASE how WHEN 'O' THEN r.actor ELSE v.actor END,
        hint = CASE how WHEN 'O' THEN r.hint ELSE v.hint END,
        meta = CASE how WHEN 'O' THEN r.meta ELSE v.meta END,
        response = NULL,
        dead_tokens = CASE WHEN r.dead_until > v.now THEN r.dead_tokens END,
        dead_deadlines = CASE WHEN r.dead_until > v.now THEN r.dead_deadlines END
    FROM free AS v WHERE r.slot = v.slot
    RETURNING r.slot, r.attempt, CASE how WHEN 'L' THEN v.overtook END AS overtook,
              (date_part('epoch', v.now - r.created_at) * 1000000)::int8 AS age,
              {carried}
),
{promise}
SELECT slot, verdict, NULL::int4 AS granted, NULL::bytea AS overtook, NULL::int8 AS age,
       {columns}
FROM here CROSS JOIN promise WHERE verdict IN ('T', 'X') AND promises >= 0
UNION ALL SELECT slot, 'G', 1, NULL, NULL, {nulls} FROM made
UNION ALL SELECT slot, 'G', attempt, overtook, age, {columns} FROM took
