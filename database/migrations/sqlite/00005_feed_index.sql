-- +goose Up
-- SQLite needs no index for the feed: the positions are the keys of the log.
INSERT INTO compatible_migrations VALUES (5);

-- +goose Down
DELETE FROM compatible_migrations WHERE version = 5;
