-- +goose Up
-- A file has no timeline.
INSERT INTO compatible_migrations VALUES (9);

-- +goose Down
DELETE FROM compatible_migrations WHERE version = 9;
