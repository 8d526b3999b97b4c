-- One record that is not over, and if it is finished, as durable as an answer that is replayed.
WITH v AS MATERIALIZED (SELECT $1::bytea AS slot, clock_timestamp() AS now),
here AS MATERIALIZED (
    SELECT v.slot, 'T' AS verdict, {record}
    FROM v JOIN {table} AS r ON r.slot = v.slot
        CROSS JOIN LATERAL (SELECT {alive} AS busy OFFSET 0) AS b
    WHERE {live}
),
{promise}
SELECT slot, {columns} FROM here CROSS JOIN promise WHERE promises >= 0
