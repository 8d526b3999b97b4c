-- Where a sweep moves finished records to, if asked: a slot may be here more than once.
CREATE TABLE {table}_archive (
    slot         bytea       NOT NULL,
    created_at   timestamptz NOT NULL,
    completed_at timestamptz,
    expired_at   timestamptz NOT NULL,
    archived_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    replays      bigint      NOT NULL,
    attempt      integer     NOT NULL,
    state        "char"      NOT NULL,
    token        bytea       NOT NULL,
    fingerprint  bytea       NOT NULL,
    operation    text        NOT NULL,
    actor        text,
    hint         text        NOT NULL,
    meta         bytea       NOT NULL,
    response     bytea
);

CREATE INDEX {table}_archive_slot ON {table}_archive (slot);
CREATE INDEX {table}_archive_at ON {table}_archive (archived_at);
