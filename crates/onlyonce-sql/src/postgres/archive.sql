,
-- Part of the sweep where there is an archive: what was done goes there first.
kept AS (
    INSERT INTO {table}_archive (slot, created_at, completed_at, expired_at, replays, attempt,
                                 state, token, fingerprint, operation, actor, hint, meta, response)
    SELECT slot, created_at, completed_at, expires_at, replays, attempt, state, token, fingerprint,
           operation, actor, hint, meta, response
    FROM gone WHERE state IN ('D', 'F')
)
