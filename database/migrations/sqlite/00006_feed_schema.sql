-- +goose Up
-- Triggers of SQLite always use the tables of their own schema.
INSERT INTO compatible_migrations VALUES (6);

-- +goose Down
DELETE FROM compatible_migrations WHERE version = 6;
