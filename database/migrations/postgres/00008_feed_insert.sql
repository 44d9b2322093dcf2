-- +goose Up
-- A row that another program inserts with a position, as from a backup or a copy of the table, gets that of its
-- transaction instead. The service's own rows have it, or its negative if they are in plant_imports, so that the
-- condition spares them the trigger. Its number is the offset of feed_position, which it cannot call: PostgreSQL
-- would inline it again for each statement. While the number is out of date, the function decides.
-- +goose StatementBegin
DO $do$
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN -- no triggers
        RETURN;
    END IF;
    EXECUTE format($sql$
        CREATE FUNCTION %1$s.plants_insert() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF abs(NEW.changed) <> %1$s.feed_position(txid_current()) THEN
                UPDATE %1$s.plants SET changed = 0 WHERE id = NEW.id; -- plants_update sets the position
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER plants_insert AFTER INSERT ON plants FOR EACH ROW WHEN (abs(NEW.changed) <> txid_current() + %2$s)
            EXECUTE FUNCTION %1$s.plants_insert();
    $sql$, (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'plants'::regclass), feed_position(0));
END $do$;
-- +goose StatementEnd
INSERT INTO compatible_migrations VALUES (8);

-- +goose Down
DELETE FROM compatible_migrations WHERE version = 8;
DROP FUNCTION IF EXISTS plants_insert CASCADE; -- with its trigger
