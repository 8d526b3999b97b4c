-- When these records were last used, by all clocks, in milliseconds: in which boot of the machine and
-- how long after it (nothing where that is unknown), by the machine's date, and by the store's own
-- time, which all deadlines are moments of. One row.
CREATE TABLE {table}_clock (
    one   INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    boot  TEXT,
    since INTEGER NOT NULL,
    wall  INTEGER NOT NULL,
    store INTEGER NOT NULL
);
