-- +goose Up
-- The feed of changes to {rows}: migration 4 says why.
CREATE TABLE {feed} (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    epoch  TEXT    NOT NULL,
    origin TEXT    NOT NULL,
    kept   INTEGER NOT NULL
);
INSERT INTO {feed} VALUES (1, '', '', 0);
CREATE TABLE {feed}_marks (
    position INTEGER   PRIMARY KEY,
    at       TIMESTAMP NOT NULL
);
CREATE TABLE {row}_changes (
    position INTEGER PRIMARY KEY,
    id       INTEGER NOT NULL
);
-- +goose StatementBegin
CREATE TRIGGER {rows}_insert AFTER INSERT ON {rows} BEGIN INSERT INTO {row}_changes VALUES (NULL, NEW.id); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER {rows}_update AFTER UPDATE ON {rows} BEGIN INSERT INTO {row}_changes VALUES (NULL, NEW.id); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER {rows}_update_id AFTER UPDATE OF id ON {rows} BEGIN INSERT INTO {row}_changes VALUES (NULL, OLD.id); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER {rows}_delete AFTER DELETE ON {rows} BEGIN INSERT INTO {row}_changes VALUES (NULL, OLD.id); END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER {rows}_insert;
DROP TRIGGER {rows}_update;
DROP TRIGGER {rows}_update_id;
DROP TRIGGER {rows}_delete;
DROP TABLE {row}_changes;
DROP TABLE {feed}_marks;
DROP TABLE {feed};
