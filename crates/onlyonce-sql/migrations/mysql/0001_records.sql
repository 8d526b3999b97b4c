-- One row a slot. state: P pending, D done, F failed, U outcome unknown, R released. A released
-- row is absent for readers; it only remembers which tokens are dead, and until when.
-- Moments and durations are milliseconds, moments counted from 1970.
CREATE TABLE IF NOT EXISTS {table} (
    slot         VARBINARY(32)  NOT NULL PRIMARY KEY,
    state        CHAR(1)        CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token        VARBINARY(16)  NOT NULL,
    fingerprint  VARBINARY(33)  NOT NULL,
    rerun        TINYINT        NOT NULL,
    attempt      BIGINT         NOT NULL,
    created_at   BIGINT         NOT NULL,
    completed_at BIGINT,
    lease_until  BIGINT,
    expires_at   BIGINT         NOT NULL,
    tail         BIGINT         NOT NULL,
    replays      BIGINT         NOT NULL,
    operation    MEDIUMTEXT     NOT NULL,
    actor        MEDIUMTEXT,
    hint         VARCHAR(16)    NOT NULL,
    meta         MEDIUMBLOB     NOT NULL,
    dead         BLOB           NOT NULL,
    -- when the row may be swept: its record has expired, and no token in `dead` is dead any more
    sweep_at     BIGINT         NOT NULL,
    bytes        BIGINT         NOT NULL,
    -- goes up with every change, so that nobody overwrites what they have not seen
    revision     BIGINT         NOT NULL,
    response     LONGBLOB,
    -- finds what to sweep, and counts without reading any answer
    KEY {table}_sweep (sweep_at, state, expires_at, bytes)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What everyone who uses these records has agreed on: the first offer is kept.
CREATE TABLE IF NOT EXISTS {table}_agreed (
    name  VARBINARY(255) NOT NULL PRIMARY KEY,
    value LONGBLOB       NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
