-- One row a slot. state: P pending, D done, F failed, U outcome unknown, R released. A released
-- row is absent for readers; it only remembers which tokens are dead, and until when.
CREATE TABLE {table} (
    slot           bytea       PRIMARY KEY,
    created_at     timestamptz NOT NULL,
    completed_at   timestamptz,
    lease_until    timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    dead_until     timestamptz NOT NULL DEFAULT '-infinity',
    tail           interval    NOT NULL,
    replays        bigint      NOT NULL DEFAULT 0,
    attempt        integer     NOT NULL,
    state          "char"      NOT NULL CHECK (state IN ('P', 'D', 'F', 'U', 'R')),
    rerun          boolean     NOT NULL,
    token          bytea       NOT NULL,
    fingerprint    bytea       NOT NULL,
    operation      text        NOT NULL,
    actor          text,
    hint           text        NOT NULL,
    meta           bytea       NOT NULL,
    response       bytea,
    dead_tokens    bytea[],
    dead_deadlines timestamptz[]
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- What sweeping needs, and no more: every further index makes every completion dearer.
CREATE INDEX {table}_expires ON {table} (expires_at);

-- What everyone who uses these records has agreed on: the first offer is kept.
CREATE TABLE {table}_agreed (
    name  text  PRIMARY KEY,
    value bytea NOT NULL
);
