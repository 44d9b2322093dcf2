-- +goose Up
-- Without the id, which is SQLite's row key: each index ends with it. If an index named it, SQLite would not search
-- by it among the rows of one time.
CREATE INDEX plants_created_at ON plants (created_at);
INSERT INTO compatible_migrations VALUES (7);

-- +goose Down
DROP INDEX plants_created_at;
DELETE FROM compatible_migrations WHERE version = 7;
