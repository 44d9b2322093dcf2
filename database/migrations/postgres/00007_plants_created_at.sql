-- +goose NO TRANSACTION
-- +goose Up
-- Waits for running transactions, while all others continue. An interrupted attempt leaves an
-- unusable index.
SELECT set_config('plantstore.lock_timeout', current_setting('lock_timeout'), false), set_config('lock_timeout', '0', false);
DROP INDEX CONCURRENTLY IF EXISTS plants_created_at;
CREATE INDEX CONCURRENTLY plants_created_at ON plants (created_at, id);
SELECT set_config('lock_timeout', current_setting('plantstore.lock_timeout'), false);
INSERT INTO compatible_migrations VALUES (7) ON CONFLICT DO NOTHING;

-- +goose Down
SELECT set_config('plantstore.lock_timeout', current_setting('lock_timeout'), false), set_config('lock_timeout', '0', false);
DROP INDEX CONCURRENTLY IF EXISTS plants_created_at;
SELECT set_config('lock_timeout', current_setting('plantstore.lock_timeout'), false);
DELETE FROM compatible_migrations WHERE version = 7;
