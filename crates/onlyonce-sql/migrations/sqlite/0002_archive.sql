-- Where finished records go when they have expired, if asked: a slot may be here more than once.
CREATE TABLE {table}_archive (
    slot         BLOB    NOT NULL,
    state        TEXT    NOT NULL,
    token        BLOB    NOT NULL,
    fingerprint  BLOB    NOT NULL,
    attempt      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    completed_at INTEGER,
    expired_at   INTEGER NOT NULL,
    archived_at  INTEGER NOT NULL,
    replays      INTEGER NOT NULL,
    operation    TEXT    NOT NULL,
    actor        TEXT,
    hint         TEXT    NOT NULL,
    meta         BLOB    NOT NULL,
    response     BLOB
);

CREATE INDEX {table}_archive_slot ON {table}_archive (slot);
CREATE INDEX {table}_archive_at ON {table}_archive (archived_at);
