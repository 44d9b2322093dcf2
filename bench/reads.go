package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/libtnb/sqlite"

	"plantstore/controllers"
)

const million = 1_000_000

// reads are of single plants, and of pages at both ends of the table.
func reads(ctx context.Context, b *bench, w io.Writer) (err error) {
	p, err := b.startPostgres(ctx, b.ramDisk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.fill(ctx, million); err != nil {
		return err
	}
	fmt.Fprint(w, "A plant by its id:\n\n")
	// Every id once and in no order: the multiplier has no factor in common with
	// the number of rows.
	one := func(n int64) string { return "/plants/" + strconv.FormatInt(n*7919%million+1, 10) }
	if _, err := b.compareReads(ctx, w, p, one, one); err != nil {
		return err
	}
	fmt.Fprint(w, "\nThe first page of 100:\n\n")
	always := func(path string) func(int64) string { return func(int64) string { return path } }
	first, err := b.compareReads(ctx, w, p, always("/plants?limit=100"), always("/plants?limit=100"))
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\nThe last page of 100, the 10,000th; the service's by key, that of the others by offset:\n\n")
	last, err := b.compareReads(ctx, w, p, always("/plants?limit=100&after=999900"), always("/plants?limit=100&offset=999900"))
	if err != nil {
		return err
	}
	b.claims = append(b.claims, claim{
		what: "time for the 10,000th page of 100 ÷ that for the first", figure: first.rate / last.rate, limit: 1.5, atMost: true,
	})
	return nil
}

// compareReads lets the contenders take turns at the paths that the service, and
// those that the others, know what is asked by. It returns the service's medians.
func (b *bench) compareReads(ctx context.Context, w io.Writer, p *postgres, its, others func(n int64) string) (outcome, error) {
	c := comparison{
		contenders:  []string{service, plain, tuned},
		connections: []int{64},
		database: func(ctx context.Context, name string, connections int) (outcome, error) {
			path := others
			if name == service {
				path = its
			}
			return b.turn(ctx, name, p.URL, connections, get(path))
		},
	}
	err := c.run(ctx, b, w)
	return c.medians[cell{service, 64}], err
}

// bulk imports and exports a million rows, beside psql's \copy on PostgreSQL.
func bulk(ctx context.Context, b *bench, w io.Writer) (err error) {
	files, err := b.writeRows()
	if err != nil {
		return err
	}
	p, err := b.startPostgres(ctx, b.ramDisk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	const copied = `psql \\copy, CSV`
	seconds := map[string][]float64{}
	var growth int64
	for range b.rounds {
		turns, err := b.bulkTurns(ctx, p.URL, files, func() error { return p.empty(ctx) })
		if err != nil {
			return err
		}
		growth = max(growth, turns.growth)
		for name, duration := range turns.took {
			seconds["PostgreSQL, "+name] = append(seconds["PostgreSQL, "+name], duration.Seconds())
		}
		if err := p.empty(ctx); err != nil {
			return err
		}
		begin := time.Now()
		cmd := p.Command("psql", "-q", "-c", "ALTER TABLE plants ALTER created_at SET DEFAULT now(), ALTER updated_at SET DEFAULT now()",
			"-c", `\copy plants(id, name, tag) FROM '`+files[controllers.TypeCSV]+`' CSV HEADER`, p.URL)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("psql: %w\n%s", err, output)
		}
		seconds[copied] = append(seconds[copied], time.Since(begin).Seconds())

		url := "sqlite:" + filepath.Join(b.folder, "bulk.db")
		if err := b.migrate(ctx, url); err != nil {
			return err
		}
		turns, err = b.bulkTurns(ctx, url, files, func() error { return emptySQLite(ctx, url) })
		if err != nil {
			return err
		}
		for name, duration := range turns.took {
			seconds["SQLite, "+name] = append(seconds["SQLite, "+name], duration.Seconds())
		}
	}
	middle := func(name string) float64 { return median(seconds[name], func(s float64) float64 { return s }) }
	heading(w, "", "seconds", "rows/s", `of \\copy`)
	for _, name := range []string{
		copied, "PostgreSQL, import CSV", "PostgreSQL, import NDJSON", "PostgreSQL, the same again", "PostgreSQL, export",
		"SQLite, import CSV", "SQLite, import NDJSON", "SQLite, the same again", "SQLite, export",
	} {
		row(w, name, middle(name), fmt.Sprintf("%.0f", million/middle(name)), fmt.Sprintf("%.2f ×", middle(copied)/middle(name)))
	}
	for _, kind := range []string{"CSV", "NDJSON"} {
		b.claims = append(b.claims, claim{
			what: "rows/s of an import of " + kind + ` ÷ those of psql \\copy`, figure: middle(copied) / middle("PostgreSQL, import "+kind), limit: 0.5,
		})
	}
	b.claims = append(b.claims, claim{what: "growth of memory by imports of a million rows, in MiB", figure: float64(growth) / (1 << 20), limit: 32, atMost: true})
	return nil
}

// writeRows writes the rows that are imported, and returns the files by their
// media type.
func (b *bench) writeRows() (map[string]string, error) {
	var table, lines strings.Builder
	table.WriteString("id,name,tag\n")
	kinds := []string{"houseplant", "tree", "shrub", "herb", "fern", "succulent"}
	for id := range int64(million) {
		name, tag := fmt.Sprintf("Planta numerata %d", id*7919%million), kinds[id%6]
		fmt.Fprintf(&table, "%d,%s,%s\n", id, name, tag)
		fmt.Fprintf(&lines, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, name, tag)
	}
	files := map[string]string{controllers.TypeCSV: filepath.Join(b.folder, "rows.csv"), controllers.TypeNDJSON: filepath.Join(b.folder, "rows.ndjson")}
	for kind, text := range map[string]string{controllers.TypeCSV: table.String(), controllers.TypeNDJSON: lines.String()} {
		if err := os.WriteFile(files[kind], []byte(text), 0o644); err != nil { //nolint:gosec // PostgreSQL's user reads it
			return nil, err
		}
	}
	return files, os.Chmod(b.folder, 0o755) //nolint:gosec // likewise
}

// bulkResult is what one service took for its imports and exports.
type bulkResult struct {
	took   map[string]time.Duration
	growth int64 // of its largest resident set, in bytes
}

func (b *bench) bulkTurns(ctx context.Context, databaseURL string, files map[string]string, empty func() error) (r bulkResult, err error) {
	if err := empty(); err != nil {
		return r, err
	}
	s, err := b.start(ctx, service, databaseURL, b.folder)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	before, _, err := s.memory()
	if err != nil {
		return r, err
	}
	r.took = map[string]time.Duration{}
	for _, step := range []struct{ name, kind string }{
		{"import CSV", controllers.TypeCSV}, {"import NDJSON", controllers.TypeNDJSON}, {"the same again", controllers.TypeNDJSON}, {"export", ""},
	} {
		if strings.HasPrefix(step.name, "import") {
			if err := empty(); err != nil {
				return r, err
			}
		}
		if r.took[step.name], err = s.transfer(ctx, files[step.kind], step.kind); err != nil {
			return r, fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", step.name, r.took[step.name])
	}
	_, peak, err := s.memory()
	r.growth = peak - before
	return r, err
}

// transfer imports a file, or, without one, exports everything, and returns how
// long that took.
func (s *server) transfer(ctx context.Context, file, kind string) (time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/plants/export", nil)
	if file != "" {
		var body *os.File
		if body, err = os.Open(file); err != nil {
			return 0, err
		}
		defer body.Close()
		request, err = http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.address+"/plants/import", body)
	}
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	begin := time.Now()
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK {
		return 0, errors.New(answer.Status)
	}
	return time.Since(begin), nil
}

// emptySQLite removes all rows from the SQLite database at url.
func emptySQLite(ctx context.Context, url string) error {
	db, err := sql.Open(sqlite.DriverName, "file:"+strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "DELETE FROM plants")
	return errors.Join(err, db.Close())
}
