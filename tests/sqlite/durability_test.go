//go:build strace

package sqlite

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestFilesSurviveAPowerCut looks at the system calls of commands: the content of a file must be on
// disk before the file gets its name, and the name before the command ends.
func TestFilesSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := service.Start(t, "DATABASE_URL="+url)
	s.Post(t, `{"id":1,"name":"x"}`, service.As(service.Token)...).RequireOK(t)
	backup := filepath.Join(t.TempDir(), "backup.db")
	service.CheckCLI(t, []string{"DATABASE_URL=" + url}, []string{"backup", backup}, 0, "wrote a backup to "+backup+"\n")
	for _, test := range []struct {
		name, file string
		args       []string // FILE stands for the file
	}{
		{"a new database", "new.db", []string{"migrate", "up", "--database-url", "sqlite:FILE"}},
		{"a backup", "backup.db", []string{"backup", "FILE", "--database-url", url}},
		{"a restored database", "restored.db", []string{"restore", backup, "--database-url", "sqlite:FILE"}},
		{"an export", "plants.csv", []string{"export", "--output", "FILE", "--url", s.URL}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			folder, err := filepath.EvalSymlinks(t.TempDir())
			service.Must(t, err)
			file, trace := filepath.Join(folder, test.file), filepath.Join(t.TempDir(), "trace")
			var args []string
			for _, arg := range test.args {
				args = append(args, strings.ReplaceAll(arg, "FILE", file))
			}
			cmd := service.Command(t, []string{"PLANTSTORE_CLIENT_TOKEN=" + service.Token}, args...)
			cmd.Args = append([]string{"strace", "-f", "-y", "-s", "0", "-o", trace, "-e", "trace=write,pwrite64,fsync,fdatasync,rename,renameat,renameat2", service.Program}, args...)
			cmd.Path, err = exec.LookPath("strace")
			service.Must(t, err)
			if output, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			text, err := os.ReadFile(trace)
			service.Must(t, err)
			named := regexp.MustCompile(`rename(?:at2?)?\(.*?"([^"]+)", .*"` + regexp.QuoteMeta(file) + `"`).FindSubmatchIndex(text)
			if named == nil {
				t.Fatalf("got no file %s, only\n%s", file, text)
			}
			before, part, after := string(text[:named[0]]), string(text[named[2]:named[3]]), string(text[named[1]:])
			calls := regexp.MustCompile(`(\w+)\(\d+<`+regexp.QuoteMeta(part)+`>`).FindAllStringSubmatch(before, -1)
			if len(calls) == 0 || !strings.HasSuffix(calls[len(calls)-1][1], "sync") {
				t.Errorf("the content is not on disk before the file gets its name:\n%s", text)
			}
			if !strings.Contains(after, "<"+folder+">") {
				t.Errorf("the name is not on disk in the end:\n%s", text)
			}
		})
	}
}
