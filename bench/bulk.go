package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

const bulkSection = "bulk"

// transfer imports or exports a million rows.
type transfer struct {
	name, method, path string
	file, contentType  string // of the request body; "": no body
	empty              bool   // the table is emptied first
}

const fileCSV, fileNDJSON = "rows.csv", "rows.ndjson"

var (
	importCSV    = transfer{"import CSV", "POST", "/plants/import", fileCSV, "text/csv", true}
	importNDJSON = transfer{"import NDJSON", "POST", "/plants/import", fileNDJSON, "application/x-ndjson", true}
	importAgain  = transfer{"import NDJSON, all rows exist", "POST", "/plants/import", fileNDJSON, "application/x-ndjson", false}
	export       = transfer{"export", "GET", "/plants/export", "", "", false}

	copyCSV = cell{operation: `psql \\copy, CSV`, contender: "psql"}
)

func (t transfer) on(d database) cell {
	return cell{operation: d.name + ", " + t.name, contender: service}
}

// bulk measures imports and exports, and psql's \copy on the same PostgreSQL.
func bulk(ctx context.Context, b *bench, c comparison, w io.Writer) (_ results, err error) {
	if err := b.writeRows(); err != nil {
		return nil, err
	}
	databases := []database{postgresRAM, sqliteRAM}
	stores := make([]*store, len(databases))
	for i, d := range databases {
		if stores[i], err = b.open(ctx, d); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stores[i].close()) }()
	}
	r := results{}
	for range b.rounds {
		for i, d := range databases {
			if err := b.transfers(ctx, d, stores[i], r); err != nil {
				return nil, err
			}
		}
		if err := b.copy(ctx, stores[0], r); err != nil {
			return nil, err
		}
	}
	heading(w, "", "seconds", "rows/s", `of \\copy`)
	order := []cell{copyCSV}
	for _, d := range databases {
		order = append(order, importCSV.on(d), importNDJSON.on(d), importAgain.on(d), export.on(d))
	}
	for _, of := range order {
		m := r.median(of)
		row(w, of.operation, fmt.Sprintf("%.2f", million/m[rows]), format(m, rows), fmt.Sprintf("%.2f ×", r.ratio(rows, of, copyCSV)))
	}
	return r, nil
}

// transfers runs all transfers on one server, and adds their outcomes to r. Growth
// of memory is since the start of the server.
func (b *bench) transfers(ctx context.Context, d database, st *store, r results) (err error) {
	s, err := b.start(ctx, service, st.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	before, err := s.usage()
	if err != nil {
		return err
	}
	for _, t := range []transfer{importCSV, importNDJSON, importAgain, export} {
		if t.empty {
			if err := st.prepare(ctx, 0); err != nil {
				return err
			}
		}
		st.rows = -1
		begin := time.Now()
		if err := t.run(ctx, s.address, b.folder); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		took := time.Since(begin)
		after, err := s.usage()
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s, %s: %v\n", d.name, t.name, took)
		r[t.on(d)] = append(r[t.on(d)], outcome{rows: million / took.Seconds(), growth: (after.peak - before.memory) / (1 << 20)})
	}
	return nil
}

// run sends the request and reads the response. The file is in folder.
func (t transfer) run(ctx context.Context, address, folder string) error {
	var body io.Reader = http.NoBody
	if t.file != "" {
		file, err := os.Open(filepath.Join(folder, t.file))
		if err != nil {
			return err
		}
		defer file.Close()
		body = file
	}
	request, err := http.NewRequestWithContext(ctx, t.method, "http://"+address+t.path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if t.file != "" {
		request.Header.Set("Content-Type", t.contentType)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// copy adds the outcome of psql's \copy to r.
func (b *bench) copy(ctx context.Context, s *store, r results) error {
	if err := s.prepare(ctx, 0); err != nil {
		return err
	}
	s.rows = -1
	begin := time.Now()
	cmd := s.server.Command("psql", "-q", "-c", "ALTER TABLE plants ALTER created_at SET DEFAULT now(), ALTER updated_at SET DEFAULT now()",
		"-c", `\copy plants(id, name, tag) FROM '`+filepath.Join(b.folder, fileCSV)+`' CSV HEADER`, s.url)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("psql: %w\n%s", err, output)
	}
	r[copyCSV] = append(r[copyCSV], outcome{rows: million / time.Since(begin).Seconds()})
	return nil
}

// writeRows writes the files to import.
func (b *bench) writeRows() error {
	var table, lines bytes.Buffer
	table.WriteString("id,name,tag\n")
	tags := []string{"houseplant", "tree", "shrub", "herb", "fern", "succulent"}
	for id := range int64(million) {
		name, tag := fmt.Sprintf("Planta numerata %d", existing(id)), tags[id%6]
		fmt.Fprintf(&table, "%d,%s,%s\n", id, name, tag)
		fmt.Fprintf(&lines, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, name, tag)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(b.folder, fileCSV), table.Bytes(), 0o644),    //nolint:gosec // PostgreSQL's user reads it
		os.WriteFile(filepath.Join(b.folder, fileNDJSON), lines.Bytes(), 0o644)) //nolint:gosec // no secret
}
