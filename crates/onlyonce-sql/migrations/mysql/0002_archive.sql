-- Where finished records go when they have expired, if asked: a slot may be here more than once.
CREATE TABLE IF NOT EXISTS {table}_archive (
    id           BIGINT         NOT NULL PRIMARY KEY AUTO_INCREMENT,
    slot         VARBINARY(32)  NOT NULL,
    state        CHAR(1)        CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token        VARBINARY(16)  NOT NULL,
    fingerprint  VARBINARY(33)  NOT NULL,
    attempt      BIGINT         NOT NULL,
    created_at   BIGINT         NOT NULL,
    completed_at BIGINT,
    expired_at   BIGINT         NOT NULL,
    archived_at  BIGINT         NOT NULL,
    replays      BIGINT         NOT NULL,
    operation    MEDIUMTEXT     NOT NULL,
    actor        MEDIUMTEXT,
    hint         VARCHAR(16)    NOT NULL,
    meta         MEDIUMBLOB     NOT NULL,
    response     LONGBLOB,
    KEY {table}_archive_slot (slot),
    KEY {table}_archive_at (archived_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
