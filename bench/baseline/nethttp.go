package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

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
			start := time.Now()
			status, body := http.StatusUnauthorized, any(problem{401, "invalid token"})
			if r.Header.Get("Authorization") == "Bearer "+token {
				status, body = handler(w, r, pool)
			}
			response, err := json.Marshal(body)
			if err != nil {
				status = http.StatusInternalServerError
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(response)))
			w.WriteHeader(status)
			_, _ = w.Write(response)
			log.Info("request", "method", r.Method, "path", r.URL.Path, "status", status, "duration", time.Since(start))
		})
	}
	handle("POST /plants", createPlant)
	return mux, nil
}

type problem struct {
	Error   int    `json:"error"`
	Message string `json:"message"`
}

func createPlant(w http.ResponseWriter, r *http.Request, pool *pgxpool.Pool) (status int, body any) {
	var p struct {
		ID   *int64  `json:"id"`
		Name *string `json:"name"`
		Tag  *string `json:"tag"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&p); err != nil {
		return http.StatusBadRequest, problem{400, err.Error()}
	}
	if p.ID == nil || p.Name == nil || *p.Name == "" || len(*p.Name) > 255 || p.Tag != nil && len(*p.Tag) > 255 {
		return http.StatusBadRequest, problem{400, "id and name are required, name and tag have at most 255 characters"}
	}
	_, err := pool.Exec(r.Context(), "INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)",
		*p.ID, *p.Name, p.Tag, time.Now())
	if rejected, ok := errors.AsType[*pgconn.PgError](err); ok && rejected.Code == "23505" {
		return http.StatusConflict, problem{409, "the id is taken"}
	}
	if err != nil {
		return http.StatusInternalServerError, problem{500, "internal error"}
	}
	w.Header().Set("Location", "/plants/"+strconv.FormatInt(*p.ID, 10))
	return http.StatusOK, struct {
		Name string  `json:"name"`
		Tag  *string `json:"tag,omitempty"`
	}{*p.Name, p.Tag}
}
