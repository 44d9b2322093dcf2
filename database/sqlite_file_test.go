package database_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/fault"
	"plantstore/database/sqlite"
)

// pathOf returns the path of the SQLite database at url.
func pathOf(url string) string { return strings.TrimPrefix(url, "sqlite:") }

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func insertPlants(t *testing.T, db *database.DB, from, to int) {
	t.Helper()
	err := db.WithContext(t.Context()).Exec(`WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i+1 FROM n WHERE i < ?)
		INSERT INTO plants (id, name, tag, created_at, updated_at) SELECT i, 'plant ' || i, 'tag', '2026-01-01 00:00:00+00:00', '2026-01-01 00:00:00+00:00' FROM n`, from, to).Error
	if err != nil {
		t.Fatal(err)
	}
}

// isLost reports whether err says that the file was removed or replaced.
func isLost(err error) bool {
	lasting, ok := errors.AsType[*fault.NotWritableError](err)
	return ok && errors.Is(err, fault.ErrUnavailable) && strings.Contains(lasting.Reason, "removed or replaced")
}

// losses are ways to lose the file of a database that is open.
var losses = []struct {
	name string
	lose func(t *testing.T, path string)
}{
	{"the database is removed", remove},
	{"the WAL is removed", func(t *testing.T, path string) { t.Helper(); remove(t, path+"-wal") }},
	{"the index of the WAL is removed", func(t *testing.T, path string) { t.Helper(); remove(t, path+"-shm") }},
	{"a copy is moved over the database", func(t *testing.T, path string) {
		t.Helper()
		copyFile(t, path, path+".copy")
		rename(t, path+".copy", path)
	}},
	{"a copy is moved over the WAL", func(t *testing.T, path string) {
		t.Helper()
		copyFile(t, path+"-wal", path+".copy")
		rename(t, path+".copy", path+"-wal")
	}},
	{"the folder is moved", func(t *testing.T, path string) {
		t.Helper()
		rename(t, filepath.Dir(path), filepath.Dir(path)+"-moved")
	}},
}

// TestLostFile: what is written to a file that is no longer at its path is not there after
// a restart, so it must not be acknowledged, not even if it is lost at the last moment.
func TestLostFile(t *testing.T) {
	t.Parallel()
	for _, loss := range losses {
		for _, write := range []struct {
			name string
			with func(db *database.DB, do func() error) error
		}{
			{"in a batch", func(db *database.DB, do func() error) error {
				return fault.In("insert", database.NewWriter(db, func(context.Context, []int) []error { return []error{do()} }).Do(context.Background(), 1))
			}},
			{"in a single write", func(db *database.DB, do func() error) error {
				_, err := db.Write(context.Background(), "put", func(*database.DB) error { return do() })
				return err
			}},
			{"in an import", func(db *database.DB, do func() error) error {
				return db.WriteBulk(context.Background(), "import", do)
			}},
		} {
			t.Run(loss.name+" "+write.name, func(t *testing.T) {
				t.Parallel()
				url := dbtest.SQLite(t)
				db := dbtest.Migrated(t, url)
				if err := write.with(db, func() error { return nil }); err != nil {
					t.Fatalf("before: got %v", err)
				}
				insert := func() error {
					insertPlants(t, db, 1, 1)
					loss.lose(t, pathOf(url))
					return nil
				}
				if err := write.with(db, insert); !isLost(err) {
					t.Errorf("at that moment: got %v, want a lost file", err)
				}
				if err := write.with(db, func() error { return errors.New("called") }); !isLost(err) {
					t.Errorf("after it: got %v, want a lost file", err)
				}
			})
		}
	}
}

// TestLostFileIsNoticed: reads fail within a second, and the log says why, once.
func TestLostFileIsNoticed(t *testing.T) {
	t.Parallel()
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.InfoLevel)
			url := dbtest.SQLite(t)
			db := dbtest.OpenWith(t, dbtest.Options(url), dbtest.Batches, zap.New(core))
			read := func() error { return db.Read(t.Context(), "get", database.Few, func(*gorm.DB) error { return nil }) }
			background := func() error {
				return db.Read(t.Context(), "tokens", database.AtOnce, func(*gorm.DB) error { return nil })
			}
			if err := errors.Join(db.Schema.Prepare(t.Context()), read(), background(), db.Ready(t.Context())); err != nil {
				t.Fatalf("before: got %v", err)
			}
			loss.lose(t, pathOf(url))
			begin := time.Now()
			const message = "the database file was removed or replaced"
			for logs.FilterMessageSnippet(message).Len() == 0 {
				if time.Since(begin) > 10*time.Second { // 0.5 s on an idle machine
					t.Fatal("got no log line")
				}
				time.Sleep(10 * time.Millisecond)
			}
			err := db.Ready(t.Context())
			for ; err == nil && time.Since(begin) < 10*time.Second; err = db.Ready(t.Context()) { // 1 s on an idle machine
				time.Sleep(10 * time.Millisecond)
			}
			if !isLost(err) {
				t.Errorf("Ready: got %v, want a lost file", err)
			}
			if err := read(); !isLost(err) {
				t.Errorf("Read: got %v, want a lost file", err)
			}
			if err := background(); !isLost(err) {
				t.Errorf("Background: got %v, want a lost file", err)
			}
			time.Sleep(1200 * time.Millisecond) // more than two periods of the watch
			if n := logs.FilterMessageSnippet(message).Len(); n != 1 {
				t.Errorf("got %d log lines, want 1", n)
			}
		})
	}
}

// TestLostFileComesBack: the original file at its path again is no fault.
func TestLostFileComesBack(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	url := dbtest.SQLite(t)
	db := dbtest.OpenWith(t, dbtest.Options(url), dbtest.Batches, zap.New(core))
	rename(t, pathOf(url), pathOf(url)+".away")
	write := func() error {
		_, err := db.Write(t.Context(), "put", func(*database.DB) error { return nil })
		return err
	}
	if err := write(); !isLost(err) {
		t.Errorf("without the file: got %v, want a lost file", err)
	}
	await := func(message string) {
		t.Helper()
		for begin := time.Now(); logs.FilterMessageSnippet(message).Len() == 0; time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > 10*time.Second {
				t.Fatalf("got no log line %q", message)
			}
		}
	}
	await("removed or replaced")
	rename(t, pathOf(url)+".away", pathOf(url))
	await("the database file is back")
	if err := write(); err != nil {
		t.Errorf("with the file: got %v", err)
	}
}

// TestLinkedFile: the path may be a symbolic link, which counts by the file it leads to.
func TestLinkedFile(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	dbtest.Migrated(t, url)
	folder := t.TempDir()
	link := filepath.Join(folder, "link.db")
	if err := os.Symlink(pathOf(url), link); err != nil {
		t.Fatal(err)
	}
	db := dbtest.Open(t, dbtest.Options("sqlite:"+link))
	nothing := func(*database.DB) error { return nil }
	if _, err := db.Write(t.Context(), "put", nothing); err != nil {
		t.Errorf("got %v", err)
	}
	other := dbtest.SQLite(t)
	dbtest.Migrated(t, other)
	remove(t, link)
	if err := os.Symlink(pathOf(other), link); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Write(t.Context(), "put", nothing); !isLost(err) {
		t.Errorf("the link leads to another file: got %v, want a lost file", err)
	}
}

// TestRestoreThatFails: the old database keeps its WAL, which has the latest writes.
func TestRestoreThatFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "plantstore.db")
	if err := os.Mkdir(path, 0o700); err != nil { // no file can take its place
		t.Fatal(err)
	}
	const latest = "the latest writes"
	if err := os.WriteFile(path+"-wal", []byte(latest), 0o600); err != nil {
		t.Fatal(err)
	}
	err := sqlite.Restore(t.Context(), path, closedDatabase(t, 1), func() error { return nil })
	if err == nil || !strings.Contains(err.Error(), "rename") {
		t.Errorf("got %v, want a rename that failed", err)
	}
	if wal, err := os.ReadFile(path + "-wal"); err != nil || string(wal) != latest {
		t.Errorf("got the WAL %q, %v", wal, err)
	}
}

// closedDatabase returns the path of a database with plants 1 to n that no one has open.
func closedDatabase(t *testing.T, n int) string {
	t.Helper()
	o := dbtest.Options(dbtest.SQLite(t))
	db, err := database.Open(t.Context(), o, dbtest.Batches, dbtest.Tables, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Schema.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	insertPlants(t, db, 1, n)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return pathOf(o.URL)
}

// TestDamagedFile: a damaged file is named at startup, and left as it is.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	type damage struct {
		name string
		do   func(text []byte) []byte
	}
	noise := func(seed uint64, text []byte) []byte {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // reproducible damage
		for range 5 {
			at := random.IntN(len(text) - 700)
			for i := range 700 {
				text[at+i] = byte(random.Uint32())
			}
		}
		return text
	}
	damages := []damage{
		{"zero bytes", func([]byte) []byte { return nil }},
		{"one byte", func(text []byte) []byte { return text[:1] }},
		{"half a page", func(text []byte) []byte { return text[:2048] }},
		{"cut in the middle", func(text []byte) []byte { return text[:len(text)/2] }},
		{"without the last page", func(text []byte) []byte { return text[:len(text)-4096] }},
		{"a text", func([]byte) []byte { return bytes.Repeat([]byte("text "), 9999) }},
		{"only zeros", func(text []byte) []byte { return make([]byte, len(text)) }},
		{"zeros instead of the second half", func(text []byte) []byte {
			return append(text[:len(text)/2], make([]byte, len(text)-len(text)/2)...)
		}},
	}
	for seed := range uint64(20) {
		damages = append(damages, damage{fmt.Sprintf("5 times 700 random bytes, seed %d", seed), func(text []byte) []byte { return noise(seed, text) }})
	}
	good, err := os.ReadFile(closedDatabase(t, 10_000))
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range damages {
		t.Run(damage.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "plantstore.db")
			damaged := damage.do(bytes.Clone(good))
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			o := dbtest.Options("sqlite:" + path)
			o.StartTimeout = time.Hour // it must not wait
			err := openOptionsError(t, o)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), "restore it from a backup") {
				t.Errorf("got %v, want the path, damaged, and what to do", err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
	t.Run("a check that is interrupted says nothing about the file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "plantstore.db")
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := database.Open(ctx, dbtest.Options("sqlite:"+path), dbtest.Batches, dbtest.Tables, zap.NewNop())
		if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), "restore") {
			t.Errorf("got %v, want only the interruption", err)
		}
	})
	t.Run("the check can be turned off", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "plantstore.db")
		half := bytes.Clone(good)
		clear(half[len(half)/2:])
		if err := os.WriteFile(path, half, 0o600); err != nil {
			t.Fatal(err)
		}
		o := dbtest.Options("sqlite:" + path)
		o.Check = false
		if err := openOptionsError(t, o); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

// TestWALWithoutItsFile: an operator who finds the file elsewhere can still put it back.
func TestWALWithoutItsFile(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	insertPlants(t, dbtest.Migrated(t, url), 1, 10)
	path := filepath.Join(t.TempDir(), "plantstore.db")
	copyFile(t, pathOf(url)+"-wal", path+"-wal")
	before, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	_, err = database.Open(t.Context(), dbtest.Options("sqlite:"+path), dbtest.Batches, dbtest.Tables, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), path+" does not exist, but "+path+"-wal does") {
		t.Errorf("got %v", err)
	}
	if after, err := os.ReadFile(path + "-wal"); err != nil || string(after) != string(before) {
		t.Errorf("the WAL was changed: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was created")
	}
}
