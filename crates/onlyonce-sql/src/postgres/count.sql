-- Adds replays to the records they were of, if these are not over. Not repeatable: it would count twice.
WITH v AS MATERIALIZED (
    SELECT *, clock_timestamp() AS now
    FROM unnest($1::bytea[], $2::int8[]) AS v (slot, replays)
),
here AS MATERIALIZED (
    SELECT v.slot, v.replays
    FROM v CROSS JOIN LATERAL (
        SELECT FROM {table} AS r WHERE r.slot = v.slot AND {live} FOR NO KEY UPDATE OF r
    ) AS f
)
UPDATE {table} AS r
SET replays = LEAST(r.replays, 9223372036854775807 - v.replays) + v.replays
FROM here AS v WHERE r.slot = v.slot
RETURNING r.slot, r.replays AS r_replays
