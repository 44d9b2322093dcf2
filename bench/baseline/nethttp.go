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

// plants has a handler for each operation, which returns the response.
type plants struct{ *pgxpool.Pool }

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
	handle := func(pattern string, handler func(http.ResponseWriter, *http.Request) (status int, body any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			start, id, sender := time.Now(), rand.Text(), ""
			status, body := problem(http.StatusUnauthorized, "invalid token")
			if r.Header.Get("Authorization") == "Bearer "+token {
				sender = tokenName
				status, body = handler(w, r)
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
	p := plants{pool}
	handle("POST /plants", p.create)
	handle("GET /plants/{id}", p.get)
	handle("PUT /plants/{id}", p.put)
	handle("PATCH /plants/{id}", p.patch)
	handle("DELETE /plants/{id}", p.remove)
	return mux, nil
}

// problem returns an unsuccessful response.
func problem(status int, message string) (int, any) {
	return status, struct {
		Error   int    `json:"error"`
		Message string `json:"message"`
	}{status, message}
}

const invalid = "id and name are required, name and tag have at most 255 characters"

// plantContent is the content of a request.
type plantContent struct {
	Name *string `json:"name"`
	Tag  *string `json:"tag,omitempty"`
}

func (p plantContent) valid() bool {
	return p.Name != nil && *p.Name != "" && len(*p.Name) <= 255 && (p.Tag == nil || len(*p.Tag) <= 255)
}

func (p plants) create(w http.ResponseWriter, r *http.Request) (status int, body any) {
	var in struct {
		ID *int64 `json:"id"`
		plantContent
	}
	if err := decode(w, r, &in); err != nil || in.ID == nil || !in.valid() {
		return problem(400, invalid)
	}
	now := time.Now()
	_, err := p.Exec(r.Context(), "INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)",
		*in.ID, *in.Name, in.Tag, now)
	if rejected, ok := errors.AsType[*pgconn.PgError](err); ok && rejected.Code == "23505" {
		return problem(409, "the id is taken")
	}
	if err != nil {
		return problem(500, "internal error")
	}
	w.Header().Set("Location", "/plants/"+strconv.FormatInt(*in.ID, 10))
	w.Header().Set("ETag", etag(now))
	return http.StatusOK, in.plantContent
}

func (p plants) get(w http.ResponseWriter, r *http.Request) (status int, body any) {
	id, _, err := target(r)
	if err != nil {
		return problem(400, err.Error())
	}
	return respond(w, nil, p.QueryRow(r.Context(), "SELECT id, name, tag, created_at, updated_at, false FROM plants WHERE id = $1", id))
}

func (p plants) put(w http.ResponseWriter, r *http.Request) (status int, body any) {
	var in plantContent
	id, version, err := target(r)
	if err = cmp.Or(err, decode(w, r, &in)); err != nil || !in.valid() {
		return problem(400, invalid)
	}
	if version != nil {
		return respond(w, version, p.QueryRow(r.Context(),
			`UPDATE plants SET name = $2, tag = $3, updated_at = $4 WHERE id = $1 AND updated_at = $5
			RETURNING id, name, tag, created_at, updated_at, false`, id, *in.Name, in.Tag, time.Now(), *version))
	}
	return respond(w, nil, p.QueryRow(r.Context(),
		`INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, tag = excluded.tag, updated_at = excluded.updated_at
		RETURNING id, name, tag, created_at, updated_at, xmax = 0`, id, *in.Name, in.Tag, time.Now()))
}

// patch merges: an absent field stays, and null removes the tag.
func (p plants) patch(w http.ResponseWriter, r *http.Request) (status int, body any) {
	var fields map[string]*string
	id, version, err := target(r)
	err = cmp.Or(err, decode(w, r, &fields))
	name, renamed := fields["name"]
	tag, tagged := fields["tag"]
	if err != nil || renamed && !(plantContent{name, tag}).valid() || tag != nil && len(*tag) > 255 {
		return problem(400, invalid)
	}
	return respond(w, version, p.QueryRow(r.Context(),
		`UPDATE plants SET name = coalesce($2, name), tag = CASE WHEN $3 THEN $4 ELSE tag END, updated_at = $5
		WHERE id = $1 AND ($6::timestamptz IS NULL OR updated_at = $6)
		RETURNING id, name, tag, created_at, updated_at, false`, id, name, tagged, tag, time.Now(), version))
}

func (p plants) remove(_ http.ResponseWriter, r *http.Request) (status int, body any) {
	id, version, err := target(r)
	if err != nil {
		return problem(400, err.Error())
	}
	deleted, err := p.Exec(r.Context(), "DELETE FROM plants WHERE id = $1 AND ($2::timestamptz IS NULL OR updated_at = $2)", id, version)
	switch {
	case err != nil:
		return problem(500, "internal error")
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
	var p struct {
		ID int64 `json:"id"`
		plantContent
		CreatedAt time.Time `json:"created_at"`
		UpdatedAt time.Time `json:"updated_at"`
	}
	status, created := http.StatusOK, false
	switch err := row.Scan(&p.ID, &p.Name, &p.Tag, &p.CreatedAt, &p.UpdatedAt, &created); {
	case errors.Is(err, pgx.ErrNoRows):
		return missing(version)
	case err != nil:
		return problem(500, "internal error")
	case created:
		status = http.StatusCreated
	}
	w.Header().Set("ETag", etag(p.UpdatedAt))
	return status, p
}

// missing is the response if there is no row with the version.
func missing(version *time.Time) (status int, body any) {
	if version != nil {
		return problem(412, "the plant has another version")
	}
	return problem(404, "no such plant")
}
