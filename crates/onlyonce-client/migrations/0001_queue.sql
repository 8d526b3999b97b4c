-- What a client wants done. Times are milliseconds since 1970 on the client's clock, but for
-- due_at: that counts on the clock of the process that owns the folder, and is 0 when it begins.

CREATE TABLE groups (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
    content BLOB NOT NULL,
    steps INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'undoing', 'undone')),
    ended_at INTEGER
) STRICT;

CREATE TABLE operations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    -- spare: a compensation that is not needed so far
    state TEXT NOT NULL CHECK (state IN ('waiting', 'spare', 'done', 'failed')),
    content BLOB NOT NULL,
    method TEXT NOT NULL,
    url TEXT NOT NULL,
    headers TEXT NOT NULL,
    body BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    group_id INTEGER REFERENCES groups (id),
    -- The order within a group: all its steps, then their compensations backwards.
    rank INTEGER NOT NULL DEFAULT 0,
    is_undo INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    due_at INTEGER NOT NULL DEFAULT 0,
    -- The first attempt that may have had an effect; written before it is made.
    sent_at INTEGER,
    ended_at INTEGER,
    cause TEXT,
    detail TEXT,
    status INTEGER,
    answer BLOB
) STRICT;

CREATE INDEX operations_in_order ON operations (state, id, due_at, group_id, rank, bytes);
CREATE INDEX operations_by_end ON operations (ended_at) WHERE state = 'done';
CREATE INDEX operations_by_content ON operations (content);
CREATE INDEX operations_by_group ON operations (group_id, rank) WHERE group_id IS NOT NULL;
CREATE INDEX groups_by_end ON groups (ended_at) WHERE ended_at IS NOT NULL;
