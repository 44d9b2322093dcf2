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
	"gorm.io/gorm"
)

// netHTTP is the standard library with pgx: one prepared statement per row.
func (a *api) netHTTP(databaseURL string) (http.Handler, error) {
	pool, err := pgxpool.New(context.Background(), fmt.Sprintf("%s&pool_max_conns=%d", databaseURL, poolSize))
	if err != nil {
		return nil, err
	}
	// read runs a statement that returns the row.
	read := func(ctx context.Context, row *plant, statement string, arguments ...any) error {
		err := pool.QueryRow(ctx, statement, arguments...).Scan(&row.Name, &row.Tag, &row.CreatedAt, &row.UpdatedAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return gorm.ErrRecordNotFound
		}
		return err
	}
	mux := http.NewServeMux()
	for pattern, do := range map[string]action{
		"POST /plants": func(ctx context.Context, in *plant) error {
			in.UpdatedAt = time.Now()
			_, err := pool.Exec(ctx, "INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)",
				in.ID, in.Name, in.Tag, in.UpdatedAt)
			if rejected, ok := errors.AsType[*pgconn.PgError](err); ok && rejected.Code == "23505" {
				return gorm.ErrDuplicatedKey
			}
			return err
		},
		"GET /plants/{id}": func(ctx context.Context, out *plant) error {
			return read(ctx, out, "SELECT name, tag, created_at, updated_at FROM plants WHERE id = $1", out.ID)
		},
		"PUT /plants/{id}": func(ctx context.Context, in *plant) error {
			return read(ctx, in, `INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
				ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag, updated_at = excluded.updated_at
				RETURNING name, tag, created_at, updated_at`, in.ID, in.Name, in.Tag, time.Now())
		},
		"PATCH /plants/{id}": func(ctx context.Context, in *plant) error { // does not clear a tag
			return read(ctx, in, `UPDATE plants SET name = coalesce(nullif($2, ''), name), tag = coalesce($3, tag), updated_at = $4 WHERE id = $1
				RETURNING name, tag, created_at, updated_at`, in.ID, in.Name, in.Tag, time.Now())
		},
		"DELETE /plants/{id}": func(ctx context.Context, in *plant) error {
			deleted, err := pool.Exec(ctx, "DELETE FROM plants WHERE id = $1", in.ID)
			if err == nil && deleted.RowsAffected() == 0 {
				return gorm.ErrRecordNotFound
			}
			return err
		},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			a.serve(do, w, r, r.PathValue("id"), json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode)
		})
	}
	return mux, nil
}
