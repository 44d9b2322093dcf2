-- +goose Up
-- INTEGER PRIMARY KEY and not BIGINT: only so is the id SQLite's own 64-bit row
-- key, without a second index.
CREATE TABLE plants (
    id         INTEGER   PRIMARY KEY,
    name       TEXT      NOT NULL,
    tag        TEXT      NULL,
    created_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP NOT NULL,

    CONSTRAINT plants_name_length CHECK (length(name) BETWEEN 1 AND 255),
    CONSTRAINT plants_name_not_blank CHECK (trim(name) <> ''),
    CONSTRAINT plants_tag_length CHECK (length(tag) <= 255)
);

-- +goose Down
DROP TABLE plants;
