-- +goose Up
-- The feed of changes: see database/feed.go. What is older has the position 0.
CREATE TABLE feed (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch  text    NOT NULL,
    origin text    NOT NULL, -- of the epoch: see database/postgres/feed.go
    kept   bigint  NOT NULL  -- the position from which on all changes are retained
);
INSERT INTO feed VALUES (true, '', '', 0);
CREATE TABLE feed_marks (
    position bigint      PRIMARY KEY,
    at       timestamptz NOT NULL
);
CREATE TABLE plant_deletions (
    id      bigint PRIMARY KEY,
    changed bigint NOT NULL
);
CREATE INDEX plant_deletions_changed ON plant_deletions (changed, id);
-- The rows that an import copied have the position 0, and are here.
CREATE TABLE plant_imports (
    position bigint   NOT NULL,
    first    bigint   NOT NULL, -- the numbers of the first and last row here in the import
    last     bigint   NOT NULL,
    ids      bigint[] NOT NULL,
    PRIMARY KEY (position, last)
);
ALTER TABLE plant_imports ALTER COLUMN ids SET STORAGE EXTERNAL; -- compressing takes longer than the rest of an import

-- The position of a transaction. It is the only place that has the offset, which grows when a
-- dump is restored. PostgreSQL inlines it.
CREATE FUNCTION feed_position(transaction bigint) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT transaction + 0';

ALTER TABLE plants ADD COLUMN changed bigint NOT NULL DEFAULT 0;

-- +goose StatementBegin
CREATE FUNCTION plants_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed := feed_position(txid_current());
    IF NEW.id <> OLD.id THEN
        INSERT INTO plant_deletions VALUES (OLD.id, NEW.changed) ON CONFLICT (id) DO UPDATE SET changed = excluded.changed;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION plants_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO plant_deletions SELECT id, feed_position(txid_current()) FROM deleted
        ON CONFLICT (id) DO UPDATE SET changed = excluded.changed;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION plants_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE feed SET epoch = replace(gen_random_uuid()::text, '-', '');
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Citus has no triggers on distributed tables, so there is no feed.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
        RETURN;
    END IF;
    ALTER TABLE plants ALTER COLUMN changed SET DEFAULT feed_position(txid_current());
    CREATE TRIGGER plants_update BEFORE UPDATE ON plants FOR EACH ROW EXECUTE FUNCTION plants_update();
    CREATE TRIGGER plants_delete AFTER DELETE ON plants REFERENCING OLD TABLE AS deleted
        FOR EACH STATEMENT EXECUTE FUNCTION plants_delete();
    CREATE TRIGGER plants_truncate AFTER TRUNCATE ON plants FOR EACH STATEMENT EXECUTE FUNCTION plants_truncate();
END $$;
-- +goose StatementEnd
INSERT INTO compatible_migrations VALUES (4);

-- +goose Down
DELETE FROM compatible_migrations WHERE version = 4;
ALTER TABLE plants DROP COLUMN changed;
-- With their triggers: Citus rejects DROP TRIGGER, even with IF EXISTS.
DROP FUNCTION plants_update, plants_delete, plants_truncate, feed_position CASCADE;
DROP TABLE plant_imports;
DROP TABLE plant_deletions;
DROP TABLE feed_marks;
DROP TABLE feed;
