-- Takes the row of a claim inside a transaction of the application, if the token still holds it.
WITH v AS MATERIALIZED (
    SELECT slot, token, clock_timestamp() AS now, {lock} AS held
    FROM (SELECT $1::bytea AS slot, $2::bytea AS token) AS r
)
SELECT v.slot
FROM v CROSS JOIN LATERAL (
    SELECT FROM {table} AS r WHERE r.slot = v.slot AND {held}
    FOR NO KEY UPDATE OF r
) AS f
