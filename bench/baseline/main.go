// Command baseline runs one of the programs that the service is compared with, as a team would write
// them by hand. Each requires a bearer token, logs a line per request, with the fields of the
// service's line, and responds with 200 only after the row is durable.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"gorm.io/gorm"
)

func main() {
	a := &api{token: os.Getenv("TOKEN"), log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	newHandler := a.netHTTP
	if os.Getenv("BASELINE") == "tuned gin+gorm" {
		newHandler = a.ginGorm
	}
	handler, err := newHandler(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	// Timeouts, as the service has them, because they take time in each request.
	server := &http.Server{
		Addr: "127.0.0.1:" + os.Getenv("PORT"), Handler: handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
	}
	if certificate := os.Getenv("PLANTSTORE_SERVER_TLS_CERTIFICATE"); certificate != "" {
		log.Fatal(server.ListenAndServeTLS(certificate, os.Getenv("PLANTSTORE_SERVER_TLS_KEY")))
	}
	log.Fatal(server.ListenAndServe())
}

// poolSize is the number of PostgreSQL connections of each baseline. It served them best.
const poolSize = 16

// plant is the row, the request and the response, as in most services.
type plant struct {
	ID        int64     `json:"id" gorm:"primaryKey;autoIncrement:false"`
	Name      string    `json:"name"`
	Tag       *string   `json:"tag,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// action reads or writes the plant with the id in p, and sets the other fields of p. It returns GORM's errors.
type action func(ctx context.Context, p *plant) error

// api is what the baselines share. They differ in the router, the decoder, and the storage.
type api struct {
	token string
	log   *slog.Logger
}

// serve runs do for the plant in the body, which bind decodes, and with the id in the path, if any.
func (a *api) serve(do action, w http.ResponseWriter, r *http.Request, id string, bind func(any) error) {
	start, requestID, sender := time.Now(), rand.Text(), ""
	status, body := problem(http.StatusUnauthorized, "invalid token")
	if r.Header.Get("Authorization") == "Bearer "+a.token {
		sender = "static:1"
		status, body = respond(do, w.Header(), r, id, bind)
	}
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			status = http.StatusInternalServerError
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	}
	w.Header().Set("X-Request-Id", requestID)
	w.WriteHeader(status)
	_, _ = w.Write(text)
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("request_id", requestID), slog.String("method", r.Method),
		slog.String("path", r.URL.Path), slog.Int("status", status), slog.Duration("duration", time.Since(start)),
		slog.Int("bytes", len(text)), slog.String("client", client), slog.String("token", sender))
}

func respond(do action, header http.Header, r *http.Request, id string, bind func(any) error) (status int, body any) {
	var p plant
	var err error
	if r.ContentLength != 0 {
		err = bind(&p)
	}
	if id != "" && err == nil {
		p.ID, err = strconv.ParseInt(id, 10, 64)
	}
	created := r.Method == http.MethodPost
	if err != nil || p.Name == "" && (created || r.Method == http.MethodPut) || len(p.Name) > 255 || p.Tag != nil && len(*p.Tag) > 255 {
		return problem(http.StatusBadRequest, "id and name are required, name and tag have at most 255 characters")
	}
	switch err := do(r.Context(), &p); {
	case errors.Is(err, gorm.ErrDuplicatedKey):
		return problem(http.StatusConflict, err.Error())
	case errors.Is(err, gorm.ErrRecordNotFound):
		return problem(http.StatusNotFound, err.Error())
	case err != nil:
		return problem(http.StatusInternalServerError, "internal error")
	case r.Method == http.MethodDelete:
		return http.StatusNoContent, nil
	}
	header.Set("ETag", `"`+strconv.FormatInt(p.UpdatedAt.UnixMicro(), 36)+`"`)
	if created {
		header.Set("Location", "/plants/"+strconv.FormatInt(p.ID, 10))
		return http.StatusOK, map[string]any{"name": p.Name, "tag": p.Tag}
	}
	return http.StatusOK, p
}

// problem returns an unsuccessful response.
func problem(status int, message string) (int, any) {
	return status, map[string]any{"error": status, "message": message}
}
