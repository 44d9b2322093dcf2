-- +goose Up
-- The timeline of the server when the epoch began. A server that was promoted, or recovered to a point in time, is on a
-- later timeline, and may lack what followers have seen.
ALTER TABLE feed ADD COLUMN timeline bigint NOT NULL DEFAULT 0;
-- +goose StatementBegin
CREATE FUNCTION feed_timeline() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
EXCEPTION WHEN OTHERS THEN
    RETURN 0; -- Aurora does not tell it, and its failovers lose nothing
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN -- which has no feed
        UPDATE feed SET timeline = feed_timeline();
    END IF;
END $$;
-- +goose StatementEnd
INSERT INTO compatible_migrations VALUES (9);

-- +goose Down
DELETE FROM compatible_migrations WHERE version = 9;
DROP FUNCTION feed_timeline;
ALTER TABLE feed DROP COLUMN timeline;
