package operate

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestQuestionsAtNight runs the commands in docs/operations.md.
func TestQuestionsAtNight(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	service.Must(t, err)
	_, night, _ := strings.Cut(string(page), "\n## Questions at night\n")
	night, _, _ = strings.Cut(night, "\n## ")
	tests := map[string]func(*testing.T, question){
		"Rotate a token":                 testRotation,
		"Restore yesterday":              testRestore,
		"Who deleted plant 7":            testWhoDeleted,
		"Move from SQLite to PostgreSQL": testMove,
		"It does not start":              testNoStart,
		"Which client is slow":           testSlowClient,
		"Add a replica":                  func(*testing.T, question) {}, // Compose and Kubernetes
		"Renew a certificate":            testRenewal,
		"More log":                       testMoreLog,
		"Read a profile":                 testProfiles,
	}
	for _, section := range strings.Split(night, "\n### ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		t.Run(title, func(t *testing.T) {
			if steps := regexp.MustCompile(`(?m)^\d\. `).FindAllString(text, -1); len(steps) == 0 || len(steps) > 3 {
				t.Errorf("got %d steps, want 1 to 3", len(steps))
			}
			var q question
			for _, block := range regexp.MustCompile("(?ms)^   ```sh\n(.*?)^   ```").FindAllStringSubmatch(text, -1) {
				q = append(q, block[1])
			}
			if test, ok := tests[title]; ok {
				test(t, q)
			} else {
				t.Error("no test of this question")
			}
		})
		delete(tests, title)
	}
	for title := range tests {
		t.Errorf("%s: no such question", title)
	}
}

// question has the blocks of commands that answer it.
type question []string

// run runs a block with settings in its environment, after it has replaced the examples in it, and
// returns its output.
func (q question) run(t *testing.T, block int, settings []string, examples ...string) string {
	t.Helper()
	if block >= len(q) {
		t.Fatalf("got %d blocks of commands, want more", len(q))
	}
	for i := 0; i < len(examples); i += 2 {
		if !strings.Contains(q[block], examples[i]) {
			t.Fatalf("no %q in %s", examples[i], q[block])
		}
	}
	cmd := service.Command(t, settings)
	shell := exec.CommandContext(t.Context(), "sh", "-euc", strings.NewReplacer(examples...).Replace(q[block]))
	shell.Dir, shell.Env = cmd.Dir, slices.Concat(cmd.Env, []string{"PATH=" + filepath.Dir(service.Program) + ":" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")})
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", shell.Args[2], err, out)
	}
	return string(out)
}

func testRotation(t *testing.T, q question) {
	s := service.Start(t)
	settings := []string{"DATABASE_URL=sqlite:" + filepath.Join(s.Folder, "data", "plantstore.db")}
	old := service.Issue(t, settings[0][len("DATABASE_URL="):])
	issued := regexp.MustCompile(`pst_[a-z2-7]{47}`).FindString(q.run(t, 0, settings))
	s.Get(t, "/plants", service.As(issued)...).RequireOK(t)
	if list := q.run(t, 1, settings); !strings.Contains(list, "LAST USED") || !strings.Contains(list, service.PrefixOf(old)) {
		t.Errorf("got %q, want the old token and when it was used", list)
	}
	q.run(t, 2, settings, "pst_abcdefgh", service.PrefixOf(old))
	service.Eventually(t, "the end of the old token", func() bool { return s.Get(t, "/plants", service.As(old)...).Status == 401 })
	s.Get(t, "/plants", service.As(issued)...).RequireOK(t)
}

func testRestore(t *testing.T, q question) {
	dbtest.Each(t, func(t *testing.T, url string) {
		settings := []string{"DATABASE_URL=" + url}
		s := service.Start(t, settings...)
		s.Post(t, service.BodyOf(7)).RequireOK(t)
		file := filepath.Join(t.TempDir(), "yesterday")
		if strings.HasPrefix(url, "sqlite:") {
			service.CheckCLI(t, settings, []string{"backup", file}, 0, "wrote a backup to "+file+"\n")
			s.Call(t, "DELETE", "/plants/7", "").CheckStatus(t, 204)
			s.Stop(t)
			q.run(t, 0, settings, "/backups/yesterday.db", file)
		} else {
			dump, err := exec.CommandContext(t.Context(), "pg_dump", "-Fc", url, "-f", file).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, dump)
			}
			s.Call(t, "DELETE", "/plants/7", "").CheckStatus(t, 204)
			s.Stop(t)
			name := regexp.MustCompile(`test_[a-z0-9]+`).FindString(url)
			restored := strings.Replace(url, name, name+"_restored", 1)
			q.run(t, 1, nil, "postgres://postgres@localhost/postgres", "'"+url+"'", "DATABASE restored OWNER plantstore", "DATABASE "+name+"_restored",
				"postgres://plantstore@localhost/restored", "'"+restored+"'", "yesterday.dump", file)
			t.Cleanup(func() { dbtest.Exec(t, url, "DROP DATABASE "+name+"_restored") })
			settings[0] = "DATABASE_URL=" + restored
		}
		service.Start(t, settings...).Get(t, "/plants/7", service.As(service.Token)...).RequireOK(t)
	})
}

func testMove(t *testing.T, q question) {
	s := service.Start(t)
	s.Post(t, service.BodyOf(7)).RequireOK(t)
	file := filepath.Join(t.TempDir(), "plants.ndjson")
	url := dbtest.Postgres(t)
	after := service.Start(t, "DATABASE_URL="+url)
	q.run(t, 0, []string{"PLANTSTORE_CLIENT_URL=" + s.URL}, "old-token", service.Write(t, "old", service.Token), "plants.ndjson", file)
	issued := regexp.MustCompile(`pst_[a-z2-7]{47}`).FindString(q.run(t, 1, []string{"DATABASE_URL=" + url}))
	q.run(t, 2, []string{"PLANTSTORE_CLIENT_URL=" + after.URL}, "new-token", service.Write(t, "new", issued), "plants.ndjson", file)
	after.Get(t, "/plants/7", service.As(issued)...).RequireOK(t)
}

func testNoStart(t *testing.T, _ question) {
	cmd := service.Command(t, []string{"PLANTSTORE_LOG_LEVEL=loud"})
	out, _ := cmd.CombinedOutput()
	if status := cmd.ProcessState.ExitCode(); status != 2 || !strings.HasPrefix(string(out), "plantstore: log.level (PLANTSTORE_LOG_LEVEL) must be ") {
		t.Errorf("got the status %d and %q, want 2 and the setting", status, out)
	}
}

func testSlowClient(t *testing.T, q question) {
	s := service.Start(t, "PLANTSTORE_BULK_GRACE=1ms", "PLANTSTORE_BULK_MAX_BODY_BYTES=10")
	service.Issue(t, "sqlite:"+filepath.Join(s.Folder, "data", "plantstore.db"))
	s.Get(t, "/plants", service.As(service.Token)...).RequireOK(t)
	s.Get(t, "/plants", service.As(service.Token)...).RequireOK(t)
	s.ImportRows(t, "", service.InNDJSON, service.BodyOf(1)).CheckStatus(t, 400)
	s.BeginImportAs(t, service.Token, "")
	service.Eventually(t, "the log", func() bool { return strings.Contains(s.Stderr.String(), `"code":40001`) })
	log := service.Write(t, "log", "not JSON\n"+s.Stderr.String())
	if table := q.run(t, 0, nil, " log\n", " "+log+"\n"); !regexp.MustCompile(`(?m)^static:1\t4\t[0-9.e-]+\t[0-9.e-]+$`).MatchString(table) {
		t.Errorf("got %q, want four requests of static:1", table)
	}
	if lines := q.run(t, 1, nil, " log\n", " "+log+"\n"); strings.Count(lines, `"path":"/plants/import"`) != 2 {
		t.Errorf("got %q, want the import that is too large, and the slow import", lines)
	}
}

func testRenewal(t *testing.T, q question) {
	folder, soon := t.TempDir(), time.Now().Add(time.Hour).Truncate(time.Second)
	service.NewPair(t).In(t, folder)
	_, admin := service.StartAdminOf(t, func(t *testing.T, settings ...string) *service.Service {
		return service.StartTLS(t, folder, settings...)
	})
	service.NewPairUntil(t, soon).In(t, folder)
	service.Eventually(t, "the new certificate", func() bool {
		metric := q.run(t, 0, nil, "http://127.0.0.1:9090", admin.URL)
		return service.ValueOf(t, "\n"+metric, "plantstore_certificate_expires_timestamp_seconds") == float64(soon.Unix())
	})
}

func testProfiles(t *testing.T, q question) {
	_, admin := service.StartAdmin(t)
	for block, examples := range [][]string{{"http://127.0.0.1:9090", admin.URL, "seconds=10", "seconds=1"}, {"http://127.0.0.1:9090", admin.URL}} {
		if table := q.run(t, block, nil, examples...); !strings.Contains(table, "flat%") {
			t.Errorf("got %q, want a table of functions", table)
		}
	}
}

// TestMoveWithTimesAndTokens runs the commands in docs/databases.md that copy the rows of SQLite to PostgreSQL.
func TestMoveWithTimesAndTokens(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/databases.md")
	service.Must(t, err)
	command := regexp.MustCompile("(?s)```sh\n(plantstore migrate up.*?)```").FindSubmatch(page)
	if command == nil {
		t.Fatal("docs/databases.md has no commands")
	}
	if _, err := exec.LookPath("sqlite3"); err != nil {
		t.Skip("sqlite3 is not installed")
	}
	old := service.Start(t)
	issued, revoked := service.Issue(t, "sqlite:"+filepath.Join(old.Folder, "data", "plantstore.db")), service.Issue(t, "sqlite:"+filepath.Join(old.Folder, "data", "plantstore.db"))
	old.Call(t, "DELETE", "/tokens/"+service.PrefixOf(revoked), "").CheckStatus(t, 204)
	plants := []string{`{"id":1,"name":"\"a\", b; 'c'\\","tag":""}`, `{"id":-2,"name":"=é 🌵"}`, `{"id":9223372036854775807,"name":" x ","tag":"NULL"}`}
	for _, plant := range plants {
		old.Post(t, plant).RequireOK(t)
	}
	const list = "/plants?after=-9223372036854775808"
	want := old.Call(t, "GET", list, "").Body
	tag := old.Call(t, "GET", "/plants/1", "").Header.Get("ETag")
	old.Stop(t)

	url := dbtest.Postgres(t)
	question{string(command[1])}.run(t, 0, []string{"DATABASE_URL=" + url}, "data/plantstore.db", filepath.Join(old.Folder, "data", "plantstore.db"))
	moved := service.Start(t, "DATABASE_URL="+url)
	if got := moved.Get(t, list, service.As(issued)...); got.Body != want || strings.Count(want, `"id":`) != len(plants) {
		t.Errorf("got %v, want %s", got, want)
	}
	if got := moved.Get(t, "/plants/1", service.As(issued)...).Header.Get("ETag"); got != tag {
		t.Errorf("got the ETag %s, want %s", got, tag)
	}
	moved.Get(t, "/plants", service.As(revoked)...).CheckError(t, 40102)
	if changes := moved.Call(t, "GET", "/plants/changes?after=0", "").Body; strings.Count(changes, `"plant":{`) != len(plants) {
		t.Errorf("got the changes %s, want all plants", changes)
	}
}
