-- +goose Up
-- The triggers name the schema of their tables: a program with another search_path would
-- fail, or write to the feed of another schema.
-- +goose StatementBegin
DO $do$
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN -- no triggers
        RETURN;
    END IF;
    EXECUTE format($sql$
        CREATE OR REPLACE FUNCTION %1$I.plants_update() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.changed := %1$I.feed_position(txid_current());
            IF NEW.id <> OLD.id THEN
                INSERT INTO %1$I.plant_deletions VALUES (OLD.id, NEW.changed) ON CONFLICT (id) DO UPDATE SET changed = excluded.changed;
            END IF;
            RETURN NEW;
        END $$;
        CREATE OR REPLACE FUNCTION %1$I.plants_delete() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO %1$I.plant_deletions SELECT id, %1$I.feed_position(txid_current()) FROM deleted
                ON CONFLICT (id) DO UPDATE SET changed = excluded.changed;
            RETURN NULL;
        END $$;
        CREATE OR REPLACE FUNCTION %1$I.plants_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE %1$I.feed SET epoch = replace(gen_random_uuid()::text, '-', '');
            RETURN NULL;
        END $$;
    $sql$, (SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = 'plants'::regclass));
END $do$;
-- +goose StatementEnd
INSERT INTO compatible_migrations VALUES (6);

-- +goose Down
-- The functions stay: they do the same.
DELETE FROM compatible_migrations WHERE version = 6;
