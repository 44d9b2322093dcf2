package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// netHTTP is the standard library with pgx: one prepared statement per row.
func (a *api) netHTTP(databaseURL string) (http.Handler, error) {
	pool, err := pgxpool.New(context.Background(), fmt.Sprintf("%s&pool_max_conns=%d", databaseURL, poolSize))
	if err != nil {
		return nil, err
	}
	mux, p := http.NewServeMux(), plants{pool}
	handle := func(pattern string, do action) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			a.serve(do, w, r, r.PathValue("id"), json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode)
		})
	}
	handle("POST /plants", p.create)
	handle("GET /plants/{id}", p.get)
	handle("PUT /plants/{id}", p.put)
	handle("PATCH /plants/{id}", p.patch)
	handle("DELETE /plants/{id}", p.remove)
	return mux, nil
}

type plants struct{ *pgxpool.Pool }

func (p plants) create(ctx context.Context, in *plant) error {
	in.UpdatedAt = time.Now()
	_, err := p.Exec(ctx, "INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)",
		in.ID, in.Name, in.Tag, in.UpdatedAt)
	if rejected, ok := errors.AsType[*pgconn.PgError](err); ok && rejected.Code == "23505" {
		return errTaken
	}
	return err
}

func (p plants) get(ctx context.Context, out *plant) error {
	return scan(p.QueryRow(ctx, "SELECT name, tag, created_at, updated_at FROM plants WHERE id = $1", out.ID), out)
}

func (p plants) put(ctx context.Context, in *plant) error {
	return scan(p.QueryRow(ctx,
		`INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag, updated_at = excluded.updated_at
		RETURNING name, tag, created_at, updated_at`, in.ID, in.Name, in.Tag, time.Now()), in)
}

// patch does not clear a tag.
func (p plants) patch(ctx context.Context, in *plant) error {
	return scan(p.QueryRow(ctx,
		`UPDATE plants SET name = coalesce(nullif($2, ''), name), tag = coalesce($3, tag), updated_at = $4 WHERE id = $1
		RETURNING name, tag, created_at, updated_at`, in.ID, in.Name, in.Tag, time.Now()), in)
}

func (p plants) remove(ctx context.Context, in *plant) error {
	deleted, err := p.Exec(ctx, "DELETE FROM plants WHERE id = $1", in.ID)
	if err == nil && deleted.RowsAffected() == 0 {
		return errMissing
	}
	return err
}

func scan(row pgx.Row, out *plant) error {
	err := row.Scan(&out.Name, &out.Tag, &out.CreatedAt, &out.UpdatedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return errMissing
	}
	return err
}
