package clients

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestUsageErrors: a wrong command line gets one line that says what is wrong, where, and
// what to do.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, want string }{
		{"imprt plants.csv", "`plantstore` has no such command: see `plantstore --help`"},
		{"exprt --format csv", "unknown flag: --format: see `plantstore --help`"},
		{"token crate", "`plantstore token` has no such command: see `plantstore token --help`"},
		{"token perhaps-a-secret-not-a-command", "`plantstore token` has no such command: see `plantstore token --help`"},
		{"--prot 9000", "unknown flag: --prot: see `plantstore --help`"},
		{"export --frobnicate=secret", "unknown flag: --frobnicate: see `plantstore export --help`"},
		{"export -x", "unknown shorthand flag: 'x' in -x: see `plantstore export --help`"},
		{"import x.csv --database-url sqlite:x.db", "unknown flag: --database-url: see `plantstore import --help`"},
		{"--port", "flag needs an argument: --port: see `plantstore --help`"},
		{"export -o", "flag needs an argument: 'o' in -o: see `plantstore export --help`"},
		{"healthcheck --ready=secret", "--ready has an invalid value: see `plantstore healthcheck --help`"},
		{"healthcheck --port 0x50", "server.port (PORT) must be a decimal integer, from 0 to 65535"},
		{"export --=x", "malformed flag: see `plantstore export --help`"},
		{"import", "`plantstore import` takes FILE|-: see `plantstore import --help`"},
		{"import a.csv b.csv", "`plantstore import` takes FILE|-: see `plantstore import --help`"},
		{"import --replace --merge a.csv", "--replace and --merge exclude each other: see `plantstore import --help`"},
		{"import ", "an argument is empty: see `plantstore import --help`"},
		{"export -o ", "--output must be a path, or -: see `plantstore export --help`"},
		{"token create --name x --expires ", "--expires must be a duration such as 90d or 12h, or a day such as 2027-03-31 that has not ended"},
		{"backup", "`plantstore backup` takes FILE: see `plantstore backup --help`"},
		{"token revoke", "`plantstore token revoke` takes PREFIX...: see `plantstore token revoke --help`"},
		{"token create", "--name is required: see `plantstore token create --help`"},
		{"completion bash x", `unknown command "x" for "plantstore completion bash"`}, // by cobra alone
		{"version x", "`plantstore version` takes no arguments: see `plantstore version --help`"},
		{"import plants.json", "the format of \"plants.json\" is unknown: add --format csv or --format ndjson"},
		{"export -o plants.TXT", "the format of \"plants.TXT\" is unknown: add --format csv or --format ndjson"},
		{"import plants", "the format of \"plants\" is unknown: add --format csv or --format ndjson"},
		{"import -", "the format of \"-\" is unknown: add --format csv or --format ndjson"},
		{"export --resource greenhouses", "--resource has an invalid value: see `plantstore export --help`"},
		{"export --format json", "the format of \"-\" is unknown: add --format csv or --format ndjson"},
	} {
		t.Run(test.args, func(t *testing.T) {
			stdout, stderr, status := service.RunToEnd(t, nil, strings.Split(test.args, " ")...)
			if want := "plantstore: " + test.want + "\n"; status != 2 || stdout != "" || stderr != want {
				t.Errorf("got exit status %d, %q and %q, want 2 and %q", status, stdout, stderr, want)
			}
		})
	}
}

// TestFormatWithAnyExtension: --format makes up for an extension, and an export without
// one is NDJSON.
func TestFormatWithAnyExtension(t *testing.T) {
	t.Parallel()
	settings := service.ClientOf(service.Start(t).URL)
	file := filepath.Join(t.TempDir(), "plants.json")
	service.CheckCLI(t, settings, []string{"import", service.Write(t, "plants.txt", "id,name\n1,x\n"), "--format", "csv"}, 0, service.Counts(1, 0, 0, "stored"))
	service.CheckCLI(t, settings, []string{"export", "-o", file, "--format", "ndjson"}, 0, "1 plants written to "+file+"\n")
	service.CheckCLI(t, settings, []string{"import", file, "--format", "ndjson"}, 0, service.Counts(0, 1, 0, "stored"))
	service.CheckCLI(t, settings, []string{"export", "-o", strings.TrimSuffix(file, ".json")}, 0, "1 plants written to "+strings.TrimSuffix(file, ".json")+"\n")
	service.CheckCLI(t, settings, []string{"import", service.Write(t, "plants.csv", "id;name;price\n1;x;1,50\n"), "--ignore-columns", "price,supplier"}, 0, service.Counts(0, 1, 0, "stored"))
}

// TestHelp checks the help of each command: its flags are those that the command uses,
// and its examples can be run.
func TestHelp(t *testing.T) {
	t.Parallel()
	const onDatabase, onService = "config database-url env log-level", "config resource token-file url"
	flags := map[string]string{
		"":               onDatabase + " host port version",
		"serve":          onDatabase + " host port",
		"config":         onDatabase + " host port",
		"import":         onService + " dry-run format ignore-columns merge partial replace",
		"follow":         onService + " admin-address after cursor-file post secret-file",
		"export":         onService + " after created-after created-before etag excel format output q tag",
		"healthcheck":    "admin-address config host port ready",
		"backup":         onDatabase,
		"restore":        onDatabase + " yes",
		"migrate":        "",
		"migrate up":     onDatabase,
		"migrate down":   onDatabase + " yes",
		"migrate status": onDatabase,
		"token":          "",
		"token create":   onDatabase + " expires name scope",
		"token list":     onDatabase,
		"token revoke":   onDatabase,
		"version":        "",
	}
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)
	child := regexp.MustCompile(`(?m)^  ([a-z-]+) +[A-Z]`)
	seen := make(map[string]bool)
	var visit func(path string)
	visit = func(path string) {
		seen[path] = true
		t.Run("plantstore "+path, func(t *testing.T) {
			help, stderr, status := service.RunToEnd(t, nil, append(strings.Fields(path), "--help")...)
			if status != 0 || stderr != "" {
				t.Fatalf("got exit status %d and %q, want 0", status, stderr)
			}
			want, known := flags[path]
			if !known {
				t.Error("this command is not in the table of the test")
			}
			var got []string
			_, list, _ := strings.Cut(help, "\nFlags:\n")
			for _, match := range flag.FindAllStringSubmatch(list, -1) {
				got = append(got, match[1])
			}
			if want := slices.Sorted(slices.Values(strings.Fields(want + " help"))); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("got the flags %v, want %v", got, want)
			}
			_, examples, _ := strings.Cut(help, "\nExamples:\n")
			examples, _, _ = strings.Cut(examples, "\n\n")
			found := false
			for line := range strings.Lines(examples) {
				_, example, ok := strings.Cut(line, "plantstore ")
				found = found || ok
				example, _, _ = strings.Cut(regexp.MustCompile(`[|>)].*`).ReplaceAllString(example, ""), "$(")
				if _, stderr, status := service.RunToEnd(t, nil, append(strings.Fields(example), "--help")...); status != 0 {
					t.Errorf("example %q: got exit status %d and %q, want 0", example, status, stderr)
				}
			}
			if !found {
				t.Error("got no example")
			}
			_, list, _ = strings.Cut(help, "\nAvailable Commands:\n")
			list, _, _ = strings.Cut(list, "\n\n")
			for _, match := range child.FindAllStringSubmatch(list, -1) {
				if match[1] != "help" && match[1] != "completion" { // they are Cobra's
					visit(strings.TrimSpace(path + " " + match[1]))
				}
			}
		})
	}
	visit("")
	for path := range flags {
		if !seen[path] {
			t.Errorf("no help mentions the command %q", path)
		}
	}
}

func TestVersionFlags(t *testing.T) {
	t.Parallel()
	want, _, _ := service.RunToEnd(t, nil, "version")
	for _, arg := range []string{"--version", "-v"} {
		t.Run(arg, func(t *testing.T) { service.CheckCLI(t, nil, []string{arg}, 0, want) })
	}
}

// TestFlagsBeforeTheCommand starts the service with its flags with, before and without the
// command serve.
func TestFlagsBeforeTheCommand(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--port 0 --log-level info", "serve --port 0", "--port 0 serve", "--port=0 serve --log-level info"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			s := service.Launch(t, service.Command(t, []string{"PORT=1", "PLANTSTORE_LOG_LEVEL=error", "PLANTSTORE_LOG_FORMAT=json"},
				append(strings.Fields(args), "--log-level", "info")...))
			s.AwaitServing(t)
			if s.Port() == "1" {
				t.Error("got the port of the environment, want that of the flag")
			}
		})
	}
}

// TestCompletion completes command lines in bash. Its functions stand for those of the
// package bash-completion.
func TestCompletion(t *testing.T) {
	t.Parallel()
	const script = `
_init_completion() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; }
_filedir() { COMPREPLY=("files: $1"); }
compopt() { :; }
source <("$PROGRAM" completion bash)
COMP_WORDS=("$PROGRAM" "$@") COMP_CWORD=$# COMP_LINE="$PROGRAM $*" COMP_TYPE=9
COMP_POINT=${#COMP_LINE}
__start_plantstore
printf '%s\n' "${COMPREPLY[@]%% *(*}"`
	for _, test := range []struct{ line, want string }{
		{"imp", "import"},
		{"token ", "create list revoke"},
		{"help migrate ", "down status up"},
		{"export --for", "--format"},
		{"completion ", "bash fish powershell zsh"},
	} {
		t.Run(test.line, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-c", script, "bash"}, strings.Split(test.line, " ")...)...)
			cmd.Env = service.Command(t, []string{"PROGRAM=" + service.Program}).Env
			cmd.Dir = t.TempDir()
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			slices.Sort(got)
			want := strings.Join(got, " ")
			if err != nil || want != test.want {
				t.Errorf("got %v, %q and %q, want %q", err, out, &stderr, test.want)
			}
		})
	}
	for _, shell := range []string{"zsh", "fish", "powershell"} {
		t.Run(shell, func(t *testing.T) {
			if stdout, stderr, status := service.RunToEnd(t, nil, "completion", shell); status != 0 || !strings.Contains(stdout, "plantstore") {
				t.Errorf("got exit status %d and %q, want a script", status, stderr)
			}
		})
	}
}
