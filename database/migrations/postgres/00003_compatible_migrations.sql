-- +goose Up
-- The migrations with which programs that do not know them still work, such as one that adds
-- a column that may be null. Such a migration inserts its number here, and deletes it in
-- its Down part. A program does not start if it finds an unknown one that is not here.
CREATE TABLE compatible_migrations (
    version bigint PRIMARY KEY
);

-- +goose Down
DROP TABLE compatible_migrations;
