package sqlite

import (
	"context"
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestFileTakenAway removes or replaces the database of a service under load, as operators
// do: no write is acknowledged from then on, probes fail, and the log says why, once.
func TestFileTakenAway(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		take func(t *testing.T, path, backup string)
	}{
		{"rm plantstore.db*", func(t *testing.T, path, _ string) {
			t.Helper()
			files, err := filepath.Glob(path + "*")
			service.Must(t, err)
			for _, file := range files {
				if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
		}},
		{"mv backup.db plantstore.db", func(t *testing.T, path, backup string) { t.Helper(); service.Must(t, os.Rename(backup, path)) }},
		{"rm plantstore.db-wal", func(t *testing.T, path, _ string) { t.Helper(); service.Must(t, os.Remove(path+"-wal")) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.SQLite(t)
			path := service.NameOfDatabase(url)
			s := service.Start(t, "DATABASE_URL="+url)
			backup := filepath.Join(t.TempDir(), "backup.db")
			service.CheckCLI(t, []string{"DATABASE_URL=" + url}, []string{"backup", backup}, 0, "wrote a backup to "+backup+"\n")
			s.Get(t, "/readyz").CheckStatus(t, 200)

			// A response to a request that began after the file was taken away must not be 200.
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			isTaken := make(chan struct{})
			rejected := make(chan struct{}, 1<<16)
			written := make(chan struct{}, 1<<16)
			for client := range service.Clients {
				group.Go(func() {
					transport := &http.Transport{}
					defer transport.CloseIdleConnections()
					for ctx.Err() == nil {
						after := false
						select {
						case <-isTaken:
							after = true
						default:
						}
						id := service.IDs.Add(1)
						a := s.Create(transport, id, strings.NewReader(service.BodyOf(id)))
						switch {
						case a.Err != nil:
							t.Errorf("client %d: %v", client, a.Err)
							return
						case a.Response.Status == 200 && after:
							t.Errorf("plant %d: got 200, want 503 without the file", id)
							return
						case a.Response.Status == 200:
							written <- struct{}{}
						case a.Response.Code() == 50302:
							if after {
								rejected <- struct{}{}
							}
						default:
							t.Errorf("plant %d: got %v", id, a.Response)
							return
						}
					}
				})
			}
			for range 200 {
				service.Receive(t, written)
			}
			test.take(t, path, backup)
			close(isTaken)
			for range 200 {
				service.Receive(t, rejected)
			}
			s.AwaitLine(t, "msg", "the database file was removed or replaced: all requests fail until the service is restarted or the file is back")
			s.Call(t, "GET", "/plants", "").CheckError(t, 50302, "removed or replaced")
			s.Get(t, "/readyz").CheckError(t, 50302, "removed or replaced")
			cancel()
			group.Wait()
			s.Stop(t)
			if n := strings.Count(s.Stderr.String(), `"msg":"the database file was`); n != 1 {
				t.Errorf("got %d log lines about the file, want 1", n)
			}
		})
	}
}

// TestBackupAndRestore backs up a service under load, and restores the backup.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	settings := []string{"DATABASE_URL=" + url}
	path, backup := service.NameOfDatabase(url), filepath.Join(t.TempDir(), "backup.db")
	s := service.Start(t, settings...)
	issued := service.Issue(t, url)
	stored := s.Call(t, "PUT", "/plants/-1", `{"name":"`+service.NameOf(-1)+`","tag":""}`)
	known := service.Ledger{}
	l := s.StartLoad(t, known)
	l.Await(300, 200)
	before := make(service.Ledger)
	for id, acknowledged := range known {
		if acknowledged {
			before[id] = true
		}
	}
	service.CheckCLI(t, settings, []string{"backup", backup}, 0, "wrote a backup to "+backup+"\n")
	l.Await(100, 200)
	if broken := l.End(); broken > 0 {
		t.Errorf("got %d broken connections", broken)
	}
	service.CheckMode(t, backup)
	service.CheckCLI(t, settings, []string{"backup", backup}, 1, "", backup+" exists")
	service.CheckCLI(t, settings, []string{"backup", "nowhere/backup.db"}, 1, "", "nowhere/backup.db: the folder nowhere does not exist")
	for id := range known { // those that were written after the backup may be in it
		if _, ok := before[id]; !ok {
			before[id] = false
		}
	}
	before[-1] = false
	checkBackup(t, backup, before)

	// Nothing is replaced while the service runs, or without confirmation.
	service.CheckCLI(t, settings, []string{"restore", backup, "--yes"}, 1, "", "stop it first")
	deleted := s.Call(t, "DELETE", "/plants/-1", "")
	deleted.CheckEmpty(t, 204)
	service.Must(t, s.Process.Kill()) // leaves its WAL
	_ = s.Wait(t)
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 {
		t.Fatalf("got no WAL of the killed service: %v", err)
	}
	service.CheckCLI(t, settings, []string{"restore", backup}, 2, "", "Replace the database "+path+" with "+backup)
	service.CheckCLI(t, settings, []string{"restore", filepath.Join(t.TempDir(), "nothing.db"), "--yes"}, 1, "", "nothing.db")
	text := filepath.Join(t.TempDir(), "text.db")
	service.Must(t, os.WriteFile(text, []byte("no database"), 0o600))
	service.CheckCLI(t, settings, []string{"restore", text, "--yes"}, 1, "", "not a database")
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 {
		t.Errorf("a restore that failed took the WAL: %v", err)
	}
	service.CheckCLI(t, settings, []string{"restore", backup, "--yes"}, 0, "restored "+path+" from "+backup+"\n")
	service.CheckMode(t, path)

	s = service.Start(t, settings...)
	s.Get(t, "/plants", service.As(issued)...).CheckStatus(t, 200) // tokens are in the backup
	if r := s.Call(t, "GET", "/plants/-1", ""); r.Body != stored.Body || r.ETag() != stored.ETag() {
		t.Errorf("got %v with %s, want %v with %s", r, r.ETag(), stored, stored.ETag())
	}
	s.Stop(t)
	before.Check(t, url)

	// A WAL may have the latest writes of a file that is elsewhere.
	elsewhere := dbtest.SQLite(t)
	service.Must(t, os.WriteFile(service.NameOfDatabase(elsewhere)+"-wal", []byte("x"), 0o600))
	service.CheckCLI(t, []string{"DATABASE_URL=" + elsewhere}, []string{"restore", backup}, 2, "", "Replace the database")

	// A database that does not exist needs no confirmation.
	elsewhere = dbtest.SQLite(t)
	service.CheckCLI(t, []string{"DATABASE_URL=" + elsewhere}, []string{"restore", backup}, 0, "restored "+service.NameOfDatabase(elsewhere)+" from "+backup+"\n")
	before.Check(t, elsewhere)
	if left, err := filepath.Glob(filepath.Dir(path) + "/*.part*"); err != nil || left != nil {
		t.Errorf("got left-over files %v, %v", left, err)
	}
}

// checkBackup checks that the plants of known are in a backup, which needs no other files.
func checkBackup(t *testing.T, backup string, known service.Ledger) {
	t.Helper()
	moved := filepath.Join(t.TempDir(), "moved.db")
	text, err := os.ReadFile(backup)
	service.Must(t, err)
	service.Must(t, os.WriteFile(moved, text, 0o600))
	db := service.OpenTable(t, "sqlite:"+moved)
	var result string
	service.Must(t, db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&result))
	if result != "ok" {
		t.Errorf("integrity_check: got %s", result)
	}
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM plants")
	service.Must(t, err)
	defer rows.Close()
	found := make(map[int64]bool)
	for rows.Next() {
		var id int64
		service.Must(t, rows.Scan(&id))
		found[id] = true
	}
	service.Must(t, rows.Err())
	for id, acknowledged := range known {
		if acknowledged && !found[id] {
			t.Errorf("plant %d, acknowledged before the backup began, is not in it", id)
		}
	}
}

// TestRestoreRejects files that are no complete backup for this program.
func TestRestoreRejects(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	settings := []string{"DATABASE_URL=" + url}
	s := service.Start(t, settings...)
	good := filepath.Join(t.TempDir(), "good.db")
	service.CheckCLI(t, settings, []string{"backup", good}, 0, "wrote a backup to "+good+"\n")
	s.Stop(t)
	text, err := os.ReadFile(good)
	service.Must(t, err)
	for _, test := range []struct {
		name, mentions string
		change         func(t *testing.T, path string)
	}{
		{"a damaged one", "damaged", func(t *testing.T, path string) {
			t.Helper()
			service.Must(t, os.WriteFile(path, text[:len(text)-4096], 0o600))
		}},
		{"one with a damaged page", "damaged", func(t *testing.T, path string) {
			t.Helper()
			broken := slices.Clone(text)
			clear(broken[len(text)-4096:])
			service.Must(t, os.WriteFile(path, broken, 0o600))
		}},
		{"an empty one", "not a database", func(t *testing.T, path string) { t.Helper(); service.Must(t, os.WriteFile(path, nil, 0o600)) }},
		{"one of another program", "not a database of a Plant Store", func(t *testing.T, path string) {
			t.Helper()
			execIn(t, path, "DROP TABLE goose_db_version")
		}},
		{"one with a WAL", "-wal", func(t *testing.T, path string) {
			t.Helper()
			service.Must(t, os.WriteFile(path+"-wal", []byte("x"), 0o600))
		}},
		{"a link to one with a WAL", "-wal", func(t *testing.T, path string) {
			t.Helper()
			service.Must(t, os.Rename(path, path+".target"))
			service.Must(t, os.WriteFile(path+".target-wal", []byte("x"), 0o600))
			service.Must(t, os.Symlink(path+".target", path))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "backup.db")
			service.Must(t, os.WriteFile(path, text, 0o600))
			test.change(t, path)
			service.CheckCLI(t, settings, []string{"restore", path, "--yes"}, 1, "", test.mentions)
		})
	}
	service.CheckCLI(t, settings, []string{"restore", good, "--yes"}, 0, "restored "+service.NameOfDatabase(url)+" from "+good+"\n")
}

func execIn(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	service.Must(t, err)
	_, err = db.ExecContext(t.Context(), statement)
	service.Must(t, err)
	service.Must(t, db.Close())
}

// TestBackupOfPostgres: there are better tools.
func TestBackupOfPostgres(t *testing.T) {
	t.Parallel()
	settings := []string{"DATABASE_URL=postgres://u:secret@127.0.0.1:1/db"}
	for _, args := range [][]string{{"backup", "x.db"}, {"restore", "x.db"}} {
		t.Run(args[0], func(t *testing.T) {
			_, stderr, status := service.RunToEnd(t, settings, args...)
			if status != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, `pg_dump -Fc "$DATABASE_URL"`) || strings.Contains(stderr, "secret") {
				t.Errorf("got exit status %d, %q, want one line with pg_dump", status, stderr)
			}
		})
	}
}

// TestCommandsCreateNoDatabase: only the service and migrate up do.
func TestCommandsCreateNoDatabase(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"token", "create", "--name", "x"},
		{"token", "list"},
		{"token", "revoke", "pst_aaaaaaaa"},
		{"migrate", "status"},
		{"migrate", "down"},
		{"backup", "x.db"},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "data")
			path := filepath.Join(folder, "plantstore.db")
			service.CheckCLI(t, []string{"DATABASE_URL=sqlite:" + path}, args, 1, "", "database.url (DATABASE_URL): "+path+" does not exist", "if it was moved, put it back", "plantstore migrate up")
			if _, err := os.Stat(folder); err == nil {
				t.Error("the folder was created")
			}
		})
	}
}

// TestTokenListMigratesNothing: it only reads.
func TestTokenListMigratesNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	settings := []string{"DATABASE_URL=" + url}
	service.RunToEnd(t, append(settings, "PLANTSTORE_DATABASE_MIGRATE=false", "PORT=0"))
	service.CheckCLI(t, settings, []string{"token", "list"}, 1, "", "plantstore migrate up")
	stdout, _, _ := service.RunToEnd(t, settings, "migrate", "status")
	if n := strings.Count(stdout, "pending"); n == 0 || n != strings.Count(stdout, "\n") {
		t.Errorf("got %q, want all migrations pending", stdout)
	}
}

// TestTokenListOfABackup: the command changes nothing. A service would give the backup a feed
// of its own.
func TestTokenListOfABackup(t *testing.T) {
	t.Parallel()
	url, path := dbtest.SQLite(t), filepath.Join(t.TempDir(), "backup.db")
	service.Start(t, "DATABASE_URL="+url)
	service.CheckCLI(t, []string{"DATABASE_URL=" + url}, []string{"backup", path}, 0, "wrote a backup to "+path+"\n")
	origin := func() (text string) {
		service.Must(t, service.OpenTable(t, "sqlite:"+path).QueryRowContext(t.Context(), "SELECT epoch || origin FROM feed").Scan(&text))
		return text
	}
	before := origin()
	service.CheckCLI(t, []string{"DATABASE_URL=sqlite:" + path}, []string{"token", "list"}, 0, "PREFIX  NAME  SCOPES  CREATED  EXPIRES  LAST USED  STATE\n")
	if after := origin(); after != before {
		t.Errorf("the feed was %q and is %q", before, after)
	}
}

// TestCommandsNameTheirDatabase, without its password.
func TestCommandsNameTheirDatabase(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		withPassword := strings.Replace(url, "postgres@", "postgres:canary@", 1)
		settings, name := []string{"DATABASE_URL=" + withPassword}, service.NameOfDatabase(url)
		for _, args := range [][]string{
			{"migrate", "up"}, {"token", "create", "--name", "x"},
		} {
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				stdout, stderr, status := service.RunToEnd(t, settings, args...)
				if status != 0 || !strings.Contains(stdout+stderr, name) || strings.Contains(stdout+stderr, "canary") {
					t.Errorf("got exit status %d, %q, %q, want 0 and %s", status, stdout, stderr, name)
				}
			})
		}
	})
}

// TestStartOnDamagedFile: the service says what is wrong in one line, without waiting.
func TestStartOnDamagedFile(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	path := service.NameOfDatabase(url)
	settings := []string{"DATABASE_URL=" + url, "PORT=0", "PLANTSTORE_DATABASE_START_TIMEOUT=1h"}
	s := service.Start(t, settings...)
	s.ImportRows(t, "", service.InNDJSON, service.Numbered(0, 4999)).RequireOK(t) // so many that the damage is in them
	s.Stop(t)
	text, err := os.ReadFile(path)
	service.Must(t, err)
	clear(text[len(text)/2 : len(text)/2+4096])
	service.Must(t, os.WriteFile(path, text, 0o600))
	begin := time.Now()
	_, stderr, status := service.RunToEnd(t, settings)
	if status != 1 || !strings.Contains(service.LastLine(stderr), path+": it is damaged") || !strings.Contains(stderr, "plantstore restore") {
		t.Errorf("got exit status %d and %q, want 1 and a damaged file", status, stderr)
	}
	t.Logf("rejected after %s", time.Since(begin))
	s = service.Start(t, append(settings, "PLANTSTORE_DATABASE_CHECK=false")...)
	s.Get(t, "/readyz").CheckStatus(t, 200)
}

// TestFileDamagedInUse: what SQLite finds damaged is no fault of the program, and lasts.
func TestFileDamagedInUse(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := service.Start(t, "DATABASE_URL="+url)
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	s.Stop(t) // which empties the WAL
	s = service.Start(t, "DATABASE_URL="+url)
	service.Must(t, os.Truncate(service.NameOfDatabase(url), 4096))
	s.Post(t, service.BodyOf(2)).CheckError(t, 50302, "its file is damaged", "outcome of the write is unknown")
	s.Call(t, "GET", "/plants", "").CheckError(t, 50302, "its file is damaged: retry later")
	service.Eventually(t, "an unready service", func() bool { return s.Get(t, "/readyz").Status == 503 })
	s.Get(t, "/readyz").CheckError(t, 50302, "its file is damaged")
}
