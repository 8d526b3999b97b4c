-- How much is left of the leases of these tokens.
WITH v AS MATERIALIZED (
    SELECT *, clock_timestamp() AS now
    FROM unnest($1::bytea[], $2::bytea[]) AS v (slot, token)
)
SELECT v.slot, r.lease_left
FROM v LEFT JOIN LATERAL (
    SELECT {lease_left} AS lease_left
    FROM {table} AS r CROSS JOIN LATERAL (SELECT {alive} AS busy OFFSET 0) AS b
    WHERE r.slot = v.slot AND {held}
    OFFSET 0
) AS r ON true
