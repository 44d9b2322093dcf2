-- +goose Up
CREATE TABLE tokens (
    -- The beginning of the token, by which people tell it from others.
    id           text        PRIMARY KEY,
    name         text        NOT NULL,
    -- The SHA-256 of the whole token, which is not kept itself.
    hash         bytea       NOT NULL UNIQUE,
    -- Separated by blanks.
    scopes       text        NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NULL,
    revoked_at   timestamptz NULL,
    last_used_at timestamptz NULL,

    CONSTRAINT tokens_hash_length CHECK (octet_length(hash) = 32)
);

-- +goose Down
DROP TABLE tokens;
