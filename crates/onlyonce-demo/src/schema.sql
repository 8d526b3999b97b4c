CREATE TABLE IF NOT EXISTS submissions (
    id           TEXT PRIMARY KEY,
    intake       TEXT NOT NULL,
    owner        TEXT,
    state        TEXT NOT NULL,
    fields       TEXT NOT NULL,
    -- How many events it has; whoever adds one holds this row until it commits.
    events       BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    submitted_at BIGINT
);

CREATE TABLE IF NOT EXISTS submission_events (
    id            TEXT PRIMARY KEY,
    submission    TEXT NOT NULL,
    seq           BIGINT NOT NULL,
    type          TEXT NOT NULL,
    at            BIGINT NOT NULL,
    actor         TEXT,
    -- The keyed digest of the idempotency key, and how people see it.
    slot          TEXT,
    key_label     TEXT,
    -- Of a replay: what it repeated, and for which time.
    original      TEXT,
    replay_number BIGINT,
    UNIQUE (submission, seq)
);
CREATE INDEX IF NOT EXISTS submission_events_slot ON submission_events (slot);

CREATE TABLE IF NOT EXISTS audit_events (
    id         TEXT PRIMARY KEY,
    type       TEXT NOT NULL,
    at         BIGINT NOT NULL,
    actor      TEXT,
    slot       TEXT NOT NULL,
    operation  TEXT NOT NULL,
    metadata   TEXT NOT NULL,
    -- Of a key that was created: when it expires, until that was told.
    expires_at BIGINT
);
CREATE INDEX IF NOT EXISTS audit_events_slot ON audit_events (slot);
CREATE INDEX IF NOT EXISTS audit_events_expires ON audit_events (expires_at);
CREATE INDEX IF NOT EXISTS audit_events_at ON audit_events (at);

CREATE TABLE IF NOT EXISTS outbox (
    id           TEXT PRIMARY KEY,
    target       TEXT NOT NULL,
    body         TEXT NOT NULL,
    attempts     BIGINT NOT NULL,
    due_at       BIGINT NOT NULL,
    delivered_at BIGINT
);
CREATE INDEX IF NOT EXISTS outbox_due ON outbox (delivered_at, due_at);

CREATE TABLE IF NOT EXISTS inbox (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    at   BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS form_records (
    id         TEXT PRIMARY KEY,
    form       TEXT NOT NULL,
    context_id TEXT NOT NULL,
    data       TEXT NOT NULL,
    at         BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS business_records (
    id          TEXT PRIMARY KEY,
    record      TEXT NOT NULL,
    object_type TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS relationships (
    id       TEXT PRIMARY KEY,
    record   TEXT NOT NULL,
    business TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS resources (
    id      TEXT PRIMARY KEY,
    kind    TEXT NOT NULL,
    owner   TEXT,
    payload TEXT NOT NULL,
    at      BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS resources_owner ON resources (kind, owner, at);
