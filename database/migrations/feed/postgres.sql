-- +goose Up
-- The feed of changes to {rows}: migrations 4 to 9 say why. What is older has the position 0.
CREATE TABLE {feed} (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch    text    NOT NULL,
    origin   text    NOT NULL,
    kept     bigint  NOT NULL,
    timeline bigint  NOT NULL DEFAULT 0
);
INSERT INTO {feed} VALUES (true, '', '', 0);
CREATE TABLE {feed}_marks (
    position bigint      PRIMARY KEY,
    at       timestamptz NOT NULL
);
CREATE TABLE {row}_deletions (
    id      bigint PRIMARY KEY,
    changed bigint NOT NULL
);
CREATE INDEX {row}_deletions_changed ON {row}_deletions (changed, id);
CREATE TABLE {row}_imports (
    position bigint   NOT NULL,
    first    bigint   NOT NULL,
    last     bigint   NOT NULL,
    ids      bigint[] NOT NULL,
    PRIMARY KEY (position, last)
);
ALTER TABLE {row}_imports ALTER COLUMN ids SET STORAGE EXTERNAL;
ALTER TABLE {rows} ADD COLUMN changed bigint NOT NULL DEFAULT 0;
CREATE INDEX {rows}_changed ON {rows} (changed, id) WHERE changed > 0;
-- +goose StatementBegin
DO $do$
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN -- no triggers
        RETURN;
    END IF;
    EXECUTE format($sql$
        CREATE FUNCTION %1$s.{rows}_insert() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF abs(NEW.changed) <> %1$s.feed_position(txid_current()) THEN
                UPDATE %1$s.{rows} SET changed = 0 WHERE id = NEW.id;
            END IF;
            RETURN NULL;
        END $$;
        CREATE FUNCTION %1$s.{rows}_update() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.changed := %1$s.feed_position(txid_current());
            IF NEW.id <> OLD.id THEN
                INSERT INTO %1$s.{row}_deletions VALUES (OLD.id, NEW.changed) ON CONFLICT (id) DO UPDATE SET changed = excluded.changed;
            END IF;
            RETURN NEW;
        END $$;
        CREATE FUNCTION %1$s.{rows}_delete() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO %1$s.{row}_deletions SELECT id, %1$s.feed_position(txid_current()) FROM deleted
                ON CONFLICT (id) DO UPDATE SET changed = excluded.changed;
            RETURN NULL;
        END $$;
        CREATE FUNCTION %1$s.{rows}_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE %1$s.{feed} SET epoch = replace(gen_random_uuid()::text, '-', '');
            RETURN NULL;
        END $$;
        CREATE TRIGGER {rows}_insert AFTER INSERT ON {rows} FOR EACH ROW WHEN (abs(NEW.changed) <> txid_current() + %2$s)
            EXECUTE FUNCTION %1$s.{rows}_insert();
    $sql$, (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = '{rows}'::regclass), feed_position(0));
    ALTER TABLE {rows} ALTER COLUMN changed SET DEFAULT feed_position(txid_current());
    CREATE TRIGGER {rows}_update BEFORE UPDATE ON {rows} FOR EACH ROW EXECUTE FUNCTION {rows}_update();
    CREATE TRIGGER {rows}_delete AFTER DELETE ON {rows} REFERENCING OLD TABLE AS deleted
        FOR EACH STATEMENT EXECUTE FUNCTION {rows}_delete();
    CREATE TRIGGER {rows}_truncate AFTER TRUNCATE ON {rows} FOR EACH STATEMENT EXECUTE FUNCTION {rows}_truncate();
END $do$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION IF EXISTS {rows}_insert, {rows}_update, {rows}_delete, {rows}_truncate CASCADE;
ALTER TABLE {rows} DROP COLUMN changed;
DROP TABLE {row}_imports;
DROP TABLE {row}_deletions;
DROP TABLE {feed}_marks;
DROP TABLE {feed};
