-- +goose Up
-- SQLite's log has all rows that are inserted: no row brings its position along.
INSERT INTO compatible_migrations VALUES (8);

-- +goose Down
DELETE FROM compatible_migrations WHERE version = 8;
