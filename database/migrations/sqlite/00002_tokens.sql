-- +goose Up
CREATE TABLE tokens (
    -- The beginning of the token, by which people tell it from others.
    id           TEXT      PRIMARY KEY NOT NULL,
    name         TEXT      NOT NULL,
    -- The SHA-256 of the whole token, which is not kept itself.
    hash         BLOB      NOT NULL UNIQUE,
    -- Separated by blanks.
    scopes       TEXT      NOT NULL,
    created_at   TIMESTAMP NOT NULL,
    expires_at   TIMESTAMP NULL,
    revoked_at   TIMESTAMP NULL,
    last_used_at TIMESTAMP NULL,

    CONSTRAINT tokens_hash_length CHECK (length(hash) = 32)
);

-- +goose Down
DROP TABLE tokens;
