-- +goose Up
-- The feed of changes: see database/feed.go.
CREATE TABLE feed (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    epoch  TEXT    NOT NULL,
    origin TEXT    NOT NULL, -- of the epoch: another one in a backup
    kept   INTEGER NOT NULL  -- the position from which on all changes are retained
);
INSERT INTO feed VALUES (1, '', '', 0);
CREATE TABLE feed_marks (
    position INTEGER   PRIMARY KEY,
    at       TIMESTAMP NOT NULL
);

-- A log of the ids that were written, as SQLite has one writer at a time. Appending to it
-- takes half of the time of a column with an index. Positions are never used again, as the
-- last row stays.
CREATE TABLE plant_changes (
    position INTEGER PRIMARY KEY,
    id       INTEGER NOT NULL
);
-- +goose StatementBegin
CREATE TRIGGER plants_insert AFTER INSERT ON plants BEGIN INSERT INTO plant_changes VALUES (NULL, NEW.id); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER plants_update AFTER UPDATE ON plants BEGIN INSERT INTO plant_changes VALUES (NULL, NEW.id); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER plants_update_id AFTER UPDATE OF id ON plants BEGIN INSERT INTO plant_changes VALUES (NULL, OLD.id); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER plants_delete AFTER DELETE ON plants BEGIN INSERT INTO plant_changes VALUES (NULL, OLD.id); END;
-- +goose StatementEnd
INSERT INTO compatible_migrations VALUES (4);

-- +goose Down
DELETE FROM compatible_migrations WHERE version = 4;
DROP TRIGGER plants_insert;
DROP TRIGGER plants_update;
DROP TRIGGER plants_update_id;
DROP TRIGGER plants_delete;
DROP TABLE plant_changes;
DROP TABLE feed_marks;
DROP TABLE feed;
