-- A page of the records that are not over, the newest first, as the filters say.
WITH v AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT r.slot, {record}
FROM {table} AS r CROSS JOIN v CROSS JOIN LATERAL (SELECT false AS busy) AS b
    CROSS JOIN LATERAL (SELECT (date_part('epoch', r.created_at) * 1000)::int8 AS began) AS c
WHERE {live}
    AND ($2::text IS NULL OR $2::text = CASE WHEN {lapsed} THEN 'L' ELSE r.state::text END)
    AND ($3::text IS NULL OR $3::text = r.operation)
    AND ($4::text IS NULL OR $4::text = r.actor)
    AND ($5::text IS NULL OR $5::text = r.hint)
    AND r.created_at BETWEEN v.now - $7::int8 * interval '1 microsecond'
                         AND v.now - $6::int8 * interval '1 microsecond'
    AND (began < $9::int8 OR began = $9::int8 AND r.slot < $1::bytea)
ORDER BY began DESC, r.slot DESC LIMIT $8::int8
