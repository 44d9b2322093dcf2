package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolSize is the number of PostgreSQL connections of each baseline. It served
// them best.
const poolSize = 16

// netHTTP is the standard library with pgx: one prepared statement per row.
func netHTTP(databaseURL, token string) (http.Handler, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	mux := http.NewServeMux()
	handle := func(pattern string, handler func(http.ResponseWriter, *http.Request, *pgxpool.Pool) (status int, body any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			start, id, sender := time.Now(), rand.Text(), ""
			status, body := http.StatusUnauthorized, any(problem{401, "invalid token"})
			if r.Header.Get("Authorization") == "Bearer "+token {
				sender = tokenName
				status, body = handler(w, r, pool)
			}
			var response []byte
			if body != nil {
				var err error
				if response, err = json.Marshal(body); err != nil {
					status = http.StatusInternalServerError
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", strconv.Itoa(len(response)))
			}
			w.Header().Set("X-Request-Id", id)
			w.WriteHeader(status)
			_, _ = w.Write(response)
			client, _, _ := net.SplitHostPort(r.RemoteAddr)
			log.Info("request", "request_id", id, "method", r.Method, "path", r.URL.Path, "status", status,
				"duration", time.Since(start), "bytes", len(response), "client", client, "token", sender)
		})
	}
	handle("POST /plants", createPlant)
	handle("GET /plants/{id}", getPlant)
	handle("PUT /plants/{id}", putPlant)
	handle("PATCH /plants/{id}", patchPlant)
	handle("DELETE /plants/{id}", deletePlant)
	return mux, nil
}

type problem struct {
	Error   int    `json:"error"`
	Message string `json:"message"`
}

// plantContent is the content of a request.
type plantContent struct {
	Name *string `json:"name"`
	Tag  *string `json:"tag,omitempty"`
}

func (p plantContent) valid() bool {
	return p.Name != nil && *p.Name != "" && len(*p.Name) <= 255 && (p.Tag == nil || len(*p.Tag) <= 255)
}

type storedPlant struct {
	ID int64 `json:"id"`
	plantContent
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func createPlant(w http.ResponseWriter, r *http.Request, pool *pgxpool.Pool) (status int, body any) {
	var p struct {
		ID *int64 `json:"id"`
		plantContent
	}
	if err := decode(w, r, &p); err != nil {
		return http.StatusBadRequest, problem{400, err.Error()}
	}
	if p.ID == nil || !p.valid() {
		return http.StatusBadRequest, problem{400, "id and name are required, name and tag have at most 255 characters"}
	}
	now := time.Now()
	_, err := pool.Exec(r.Context(), "INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)",
		*p.ID, *p.Name, p.Tag, now)
	if rejected, ok := errors.AsType[*pgconn.PgError](err); ok && rejected.Code == "23505" {
		return http.StatusConflict, problem{409, "the id is taken"}
	}
	if err != nil {
		return http.StatusInternalServerError, problem{500, "internal error"}
	}
	w.Header().Set("Location", "/plants/"+strconv.FormatInt(*p.ID, 10))
	w.Header().Set("ETag", etag(now))
	return http.StatusOK, p.plantContent
}

func getPlant(w http.ResponseWriter, r *http.Request, pool *pgxpool.Pool) (status int, body any) {
	id, _, err := target(r)
	if err != nil {
		return http.StatusBadRequest, problem{400, err.Error()}
	}
	return respond(w, nil, pool.QueryRow(r.Context(),
		"SELECT id, name, tag, created_at, updated_at, false FROM plants WHERE id = $1", id))
}

func putPlant(w http.ResponseWriter, r *http.Request, pool *pgxpool.Pool) (status int, body any) {
	var p plantContent
	id, version, err := target(r)
	if err = cmp.Or(err, decode(w, r, &p)); err != nil {
		return http.StatusBadRequest, problem{400, err.Error()}
	}
	if !p.valid() {
		return http.StatusBadRequest, problem{400, "name is required, name and tag have at most 255 characters"}
	}
	if version != nil {
		return respond(w, version, pool.QueryRow(r.Context(),
			`UPDATE plants SET name = $2, tag = $3, updated_at = $4 WHERE id = $1 AND updated_at = $5
			RETURNING id, name, tag, created_at, updated_at, false`, id, *p.Name, p.Tag, time.Now(), *version))
	}
	return respond(w, nil, pool.QueryRow(r.Context(),
		`INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag, updated_at = excluded.updated_at
		RETURNING id, name, tag, created_at, updated_at, xmax = 0`, id, *p.Name, p.Tag, time.Now()))
}

// patchPlant merges: an absent field stays, and null removes the tag.
func patchPlant(w http.ResponseWriter, r *http.Request, pool *pgxpool.Pool) (status int, body any) {
	var fields map[string]*string
	id, version, err := target(r)
	if err = cmp.Or(err, decode(w, r, &fields)); err != nil {
		return http.StatusBadRequest, problem{400, err.Error()}
	}
	name, renamed := fields["name"]
	tag, tagged := fields["tag"]
	if renamed && !(plantContent{name, tag}).valid() || tagged && tag != nil && len(*tag) > 255 {
		return http.StatusBadRequest, problem{400, "name and tag have at most 255 characters"}
	}
	return respond(w, version, pool.QueryRow(r.Context(),
		`UPDATE plants SET name = coalesce($2, name), tag = CASE WHEN $3 THEN $4 ELSE tag END, updated_at = $5
		WHERE id = $1 AND ($6::timestamptz IS NULL OR updated_at = $6)
		RETURNING id, name, tag, created_at, updated_at, false`, id, name, tagged, tag, time.Now(), version))
}

func deletePlant(_ http.ResponseWriter, r *http.Request, pool *pgxpool.Pool) (status int, body any) {
	id, version, err := target(r)
	if err != nil {
		return http.StatusBadRequest, problem{400, err.Error()}
	}
	deleted, err := pool.Exec(r.Context(),
		"DELETE FROM plants WHERE id = $1 AND ($2::timestamptz IS NULL OR updated_at = $2)", id, version)
	switch {
	case err != nil:
		return http.StatusInternalServerError, problem{500, "internal error"}
	case deleted.RowsAffected() == 0:
		return missing(version)
	}
	return http.StatusNoContent, nil
}

// decode reads the body into v.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	return json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(v)
}

// target returns the id in the path and the version in If-Match, or nil.
func target(r *http.Request) (id int64, version *time.Time, err error) {
	if id, err = strconv.ParseInt(r.PathValue("id"), 10, 64); err != nil {
		return 0, nil, err
	}
	tag := r.Header.Get("If-Match")
	if tag == "" {
		return id, nil, nil
	}
	micros, err := strconv.ParseInt(strings.Trim(tag, `"`), 36, 64)
	return id, new(time.UnixMicro(micros)), err
}

func etag(updatedAt time.Time) string {
	return `"` + strconv.FormatInt(updatedAt.UnixMicro(), 36) + `"`
}

// respond returns the response with the row.
func respond(w http.ResponseWriter, version *time.Time, row pgx.Row) (status int, body any) {
	var p storedPlant
	var created bool
	err := row.Scan(&p.ID, &p.Name, &p.Tag, &p.CreatedAt, &p.UpdatedAt, &created)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return missing(version)
	case err != nil:
		return http.StatusInternalServerError, problem{500, "internal error"}
	}
	w.Header().Set("ETag", etag(p.UpdatedAt))
	if created {
		return http.StatusCreated, p
	}
	return http.StatusOK, p
}

// missing is the response if there is no row with the version.
func missing(version *time.Time) (status int, body any) {
	if version != nil {
		return http.StatusPreconditionFailed, problem{412, "the plant has another version"}
	}
	return http.StatusNotFound, problem{404, "no such plant"}
}
