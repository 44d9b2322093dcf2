-- +goose Up
-- citus: distribute plants by id
CREATE TABLE plants (
    id         bigint      PRIMARY KEY,
    name       text        NOT NULL,
    tag        text        NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,

    -- In a database of encoding SQL_ASCII, char_length counts bytes; there the
    -- most that 255 characters of UTF-8 can take is 1020 bytes.
    CONSTRAINT plants_name_length CHECK (
        octet_length(name) BETWEEN 1 AND 1020
        AND (char_length(name) <= 255 OR getdatabaseencoding() = 'SQL_ASCII')
    ),
    CONSTRAINT plants_name_not_blank CHECK (btrim(name) <> ''),
    CONSTRAINT plants_tag_length CHECK (
        octet_length(tag) <= 1020
        AND (char_length(tag) <= 255 OR getdatabaseencoding() = 'SQL_ASCII')
    )
);

-- +goose Down
DROP TABLE plants;
