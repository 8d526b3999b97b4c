-- One record that is not over.
WITH v AS MATERIALIZED (SELECT $1::bytea AS slot, clock_timestamp() AS now)
SELECT v.slot, {record}
FROM v JOIN {table} AS r ON r.slot = v.slot
    CROSS JOIN LATERAL (SELECT {alive} AS busy OFFSET 0) AS b
WHERE {live}
