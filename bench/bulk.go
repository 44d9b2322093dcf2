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

// transfer moves a million rows.
type transfer struct {
	name, by    string
	file        string // to import; "": export
	contentType string
	empty       bool // the table is emptied first
}

const fileCSV, fileNDJSON = "rows.csv", "rows.ndjson"

var (
	copyCSV      = transfer{`\\copy CSV`, "psql", fileCSV, "", true}
	importCSV    = transfer{"import CSV", service, fileCSV, "text/csv", true}
	importNDJSON = transfer{"import NDJSON", service, fileNDJSON, "application/x-ndjson", true}
	importAgain  = transfer{"import NDJSON, all rows exist", service, fileNDJSON, "application/x-ndjson", false}
	export       = transfer{"export", service, "", "", false}

	transfers = []transfer{importCSV, importNDJSON, importAgain, export, copyCSV}
)

func (t transfer) on(d database) cell {
	return cell{operation: d.name + ", " + t.name, contender: t.by}
}

// bulk measures the transfers.
func bulk(ctx context.Context, b *bench, _ comparison, w io.Writer) (results, error) {
	if err := b.writeRows(); err != nil {
		return nil, err
	}
	databases := []database{postgresRAM, sqliteRAM}
	for _, d := range databases {
		if _, err := b.open(ctx, d); err != nil {
			return nil, err
		}
	}
	r := results{}
	for range b.rounds {
		for i, d := range databases {
			if err := b.transferAll(ctx, d, b.stores[i], r); err != nil {
				return nil, err
			}
		}
	}
	heading(w, "", "seconds", "rows/s", `of \\copy`)
	for _, d := range databases {
		for _, t := range transfers {
			if m := r.median(t.on(d)); m[rows] > 0 {
				row(w, t.on(d).operation, fmt.Sprintf("%.2f", million/m[rows]), format(m, rows),
					fmt.Sprintf("%.2f ×", r.ratio(rows, t.on(d), copyCSV.on(postgresRAM))))
			}
		}
	}
	return r, nil
}

// transferAll adds the outcomes of all transfers to r. Growth of memory is since
// the start of the server.
func (b *bench) transferAll(ctx context.Context, d database, st *store, r results) (err error) {
	s, err := b.start(ctx, service, st.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	before, err := s.usage()
	if err != nil {
		return err
	}
	for _, t := range transfers {
		if t == copyCSV && st.server == nil {
			continue
		}
		if t.empty {
			if err := st.prepare(ctx, 0); err != nil {
				return err
			}
		}
		st.used("POST")
		begin := time.Now()
		if t == copyCSV {
			err = st.copy(filepath.Join(b.folder, t.file))
		} else {
			err = t.send(ctx, s.address, b.folder)
		}
		took := time.Since(begin)
		after, failure := s.usage()
		if err := errors.Join(err, failure); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s, %s: %v\n", d.name, t.name, took)
		r[t.on(d)] = append(r[t.on(d)], outcome{rows: million / took.Seconds(), growth: (after.peak - before.memory) / (1 << 20)})
	}
	return nil
}

// send sends the request and reads the response. The file is in folder.
func (t transfer) send(ctx context.Context, address, folder string) error {
	method, path, body := http.MethodGet, "/plants/export", io.Reader(http.NoBody)
	if t.file != "" {
		file, err := os.Open(filepath.Join(folder, t.file))
		if err != nil {
			return err
		}
		defer file.Close()
		method, path, body = http.MethodPost, "/plants/import", file
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", t.contentType)
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

// copy imports a CSV file with psql, without the feed.
func (s *store) copy(file string) error {
	cmd := s.server.Command("psql", "-q", "-c", "ALTER TABLE plants ALTER created_at SET DEFAULT now(), ALTER updated_at SET DEFAULT now(), ALTER changed SET DEFAULT 0",
		"-c", `\copy plants(id, name, tag) FROM '`+file+`' CSV HEADER`, s.url)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}

// writeRows writes the files to import.
func (b *bench) writeRows() error {
	var table, lines bytes.Buffer
	table.WriteString("id,name,tag\n")
	tags := []string{"houseplant", "tree", "shrub", "herb", "fern", "succulent"}
	for id := range int64(million) {
		name, tag := fmt.Sprintf("Planta numerata %d", id*7919%million), tags[id%6]
		fmt.Fprintf(&table, "%d,%s,%s\n", id, name, tag)
		fmt.Fprintf(&lines, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, name, tag)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(b.folder, fileCSV), table.Bytes(), 0o644),    //nolint:gosec // PostgreSQL's user reads it
		os.WriteFile(filepath.Join(b.folder, fileNDJSON), lines.Bytes(), 0o644)) //nolint:gosec // no secret
}
