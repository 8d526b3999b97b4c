-- One row a slot. state: P pending, D done, F failed, U outcome unknown, R released. A released
-- row is absent for readers; it only remembers which tokens are dead, and until when.
-- Moments and durations are milliseconds, moments counted from 1970.
CREATE TABLE {table} (
    slot         BLOB    NOT NULL PRIMARY KEY,
    state        TEXT    NOT NULL CHECK (state IN ('P', 'D', 'F', 'U', 'R')),
    token        BLOB    NOT NULL,
    fingerprint  BLOB    NOT NULL,
    rerun        INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    completed_at INTEGER,
    lease_until  INTEGER,
    expires_at   INTEGER NOT NULL,
    tail         INTEGER NOT NULL,
    replays      INTEGER NOT NULL,
    operation    TEXT    NOT NULL,
    actor        TEXT,
    hint         TEXT    NOT NULL,
    meta         BLOB    NOT NULL,
    dead         BLOB    NOT NULL,
    -- when the row may be swept: its record has expired, and no token in `dead` is dead any more
    sweep_at     INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    response     BLOB
);

-- Finds what to sweep, and counts without reading any answer.
CREATE INDEX {table}_sweep ON {table} (sweep_at, state, expires_at, bytes);

-- What everyone who uses these records has agreed on: the first offer is kept.
CREATE TABLE {table}_agreed (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;
