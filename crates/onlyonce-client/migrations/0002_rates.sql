-- What is held is counted as it changes, so that nobody has to count all of it for each operation.
CREATE TABLE held (
    only INTEGER PRIMARY KEY CHECK (only = 0),
    operations INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

INSERT INTO held
SELECT 0, COUNT(*), COALESCE(SUM(bytes), 0) FROM operations WHERE state <> 'done';

CREATE TRIGGER held_after_insert AFTER INSERT ON operations WHEN NEW.state <> 'done' BEGIN
    UPDATE held SET operations = operations + 1, bytes = bytes + NEW.bytes;
END;

CREATE TRIGGER held_after_delete AFTER DELETE ON operations WHEN OLD.state <> 'done' BEGIN
    UPDATE held SET operations = operations - 1, bytes = bytes - OLD.bytes;
END;

CREATE TRIGGER held_after_update AFTER UPDATE OF state, bytes ON operations
WHEN OLD.state <> NEW.state OR OLD.bytes <> NEW.bytes BEGIN
    UPDATE held SET
        operations = operations + (NEW.state <> 'done') - (OLD.state <> 'done'),
        bytes = bytes + (NEW.state <> 'done') * NEW.bytes - (OLD.state <> 'done') * OLD.bytes;
END;

-- What is due, and when the next is, is found without reading what else waits.
DROP INDEX operations_in_order;
CREATE INDEX operations_by_due ON operations (due_at, id) WHERE state = 'waiting';
CREATE INDEX operations_by_state ON operations (state, id);
