//go:build clients

package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/tests/service"
)

// A clientStep is a request of each program in clients/. The program prints the name after
// it got the right response.
type clientStep struct {
	name, operation string
	status          float64
	what            string
}

var clientSteps = []clientStep{
	{"create", "POST /plants", 200, ""},
	{"conflict", "POST /plants", 409, "of an id in use"},
	{"invalid", "POST /plants", 400, "of an empty name"},
	{"get", "GET /plants/{id}", 200, ""},
	{"unchanged", "GET /plants/{id}", 304, "with `If-None-Match`"},
	{"replace", "PUT /plants/{id}", 200, "with `If-Match`"},
	{"stale", "PUT /plants/{id}", 412, "with an old `ETag`"},
	{"patch", "PATCH /plants/{id}", 200, "of the tag to null"},
	{"import", "POST /plants/import", 200, "of CSV"},
	{"pages", "GET /plants", 200, "page by page, by `Link`"},
	{"export", "GET /plants/export", 200, ""},
	{"changes", "GET /plants/changes", 200, "from the beginning"},
	{"issue token", "POST /tokens", 200, ""},
	{"list tokens", "GET /tokens", 200, ""},
	{"revoke token", "DELETE /tokens/{id}", 204, ""},
	{"list tags", "GET /plants/tags", 200, ""},
	{"patch many", "PATCH /plants", 200, "by tag"},
	{"delete many", "DELETE /plants", 200, "by tag"},
	{"delete", "DELETE /plants/{id}", 204, "of the id 2^53 + 1"},
}

// A generatedClient has shell commands for its folder in clients/: to generate and compile
// it, and to run the steps.
type generatedClient struct {
	language, folder string
	manifest         string   // a file with the version of the generator
	packages         []string // the generator, by its names in the manifest
	build, run       string
}

const (
	modules = "{ [ -d node_modules ] || npm ci --no-audit --no-fund; }"
	compile = "npx tsc --strict --target es2022 --module nodenext --skipLibCheck"
	venv    = "{ [ -d venv ] || { python3 -m venv venv && venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt; }; }"
	maven   = "mvn --batch-mode --no-transfer-progress --quiet"
)

var generatedClients = []generatedClient{
	{
		"Go", "go", "go/go.mod",
		[]string{"oapi-codegen/v2"},
		"mkdir plantstore && go tool oapi-codegen -config oapi-codegen.yaml ../../../docs/openapi.json && go build -o client .",
		`./client "$@"`,
	},
	{
		"TypeScript", "typescript", "typescript/package.json",
		[]string{"openapi-typescript", "openapi-fetch"},
		modules + " && npx node generate.js && " + compile + " openapi-fetch.ts",
		`npx node openapi-fetch.js "$@"`,
	},
	{
		"TypeScript", "typescript", "typescript/package.json",
		[]string{"@hey-api/openapi-ts"},
		modules + " && npx openapi-ts && " + compile + " hey-api.ts",
		`npx node hey-api.js "$@"`,
	},
	{
		"Java, native", "java", "java/pom.xml",
		[]string{"openapi-generator"},
		maven + " compile",
		maven + ` exec:java -Dexec.args="$*"`,
	},
	{
		"Python", "python", "java/pom.xml",
		[]string{"openapi-generator"},
		venv + " && " + maven + " -f ../java openapi-generator:generate@python",
		`PYTHONPATH=../java/target/python venv/bin/python openapi_generator.py "$@"`,
	},
	{
		"Python", "python", "python/requirements.txt",
		[]string{"openapi-python-client"},
		venv + " && venv/bin/openapi-python-client generate --path ../../../docs/openapi.json --meta none --output-path plant_store --config openapi-python-client.yaml",
		`venv/bin/python openapi_python_client.py "$@"`,
	},
}

// name returns the generator with its version.
func (c generatedClient) name(t *testing.T) string {
	t.Helper()
	manifest, err := os.ReadFile(c.manifest)
	service.Must(t, err)
	var parts []string
	for _, name := range c.packages {
		version := regexp.MustCompile(regexp.QuoteMeta(name) + `[^\d/]\D{0,60}?(\d+\.\d+\.\d+)`).FindSubmatch(manifest)
		if version == nil {
			t.Fatalf("%s has no version of %s", c.manifest, name)
		}
		parts = append(parts, fmt.Sprintf("%s %s", name, version[1]))
	}
	return strings.Join(parts, ", ") + " (" + c.language + ")"
}

// clientIDs matches ids in paths.
var clientIDs = regexp.MustCompile(`/(\d+|pst_\w+)$`)

// TestGeneratedClients generates clients from the OpenAPI document, compiles them, and
// calls every operation with them. They read a plant with an id that JavaScript would
// round to that of another one, and delete it.
func TestGeneratedClients(t *testing.T) {
	checkAllOperations(t)
	// A copy, in which generated files are, with the same relative paths.
	root := t.TempDir()
	service.Must(t, os.CopyFS(filepath.Join(root, "tests", "clients"), os.DirFS(".")))
	service.Must(t, os.Mkdir(filepath.Join(root, "docs"), 0o755))
	document, err := os.ReadFile("../../docs/openapi.json")
	service.Must(t, err)
	service.Must(t, os.WriteFile(filepath.Join(root, "docs", "openapi.json"), document, 0o644))

	header, line := "| request |", "| --- |"
	rows := make([]string, len(clientSteps))
	for i, step := range clientSteps {
		rows[i] = strings.TrimSpace(fmt.Sprintf("| %s: %v %s", step.operation, step.status, step.what)) + " |"
	}
	build, run := "| time to generate and compile |", "| time to run |"
	for _, client := range generatedClients {
		name := client.name(t)
		header, line = header+" "+name+" |", line+" --- |"
		t.Run(name, func(t *testing.T) {
			s := service.Start(t)
			folder := filepath.Join(root, "tests", "clients", client.folder)
			_, took := shell(t, folder, client.build)
			build += fmt.Sprintf(" %v |", took)
			output, took := shell(t, folder, client.run, s.URL, service.Token)
			run += fmt.Sprintf(" %v |", took)
			s.Call(t, "GET", "/plants/9007199254740992", "").CheckStatus(t, 200)
			s.Call(t, "GET", "/plants/9007199254740993", "").CheckStatus(t, 404)
			s.Stop(t)
			requests := s.Logged(t, "request")
			printed := strings.Split(strings.ReplaceAll(output, "\x1b[0m", ""), "\n") // Maven resets the terminal
			for i, step := range clientSteps {
				sent := slices.ContainsFunc(requests, func(entry map[string]any) bool {
					path := clientIDs.ReplaceAllString(entry["path"].(string), "/{id}")
					return entry["method"].(string)+" "+path == step.operation && entry["status"] == step.status
				})
				mark := " ✓ |"
				if !sent || !slices.Contains(printed, step.name) {
					t.Errorf("%s: the service got the request: %v; the client printed %q", step.name, sent, printed)
					mark = " ✗ |"
				}
				rows[i] += mark
			}
		})
	}
	service.Record(t, "## Generated clients\n\n`TestGeneratedClients`: each client calls all operations of docs/openapi.json; ✓ means that it got the right response.\nThe first TypeScript and Python client install the packages of both.\n\n%s\n%s\n%s\n%s\n%s",
		header, line, strings.Join(rows, "\n"), build, run)
}

// checkAllOperations checks that each operation in the OpenAPI document has a step, or the same
// operation of another resource, unless only one resource has it.
func checkAllOperations(t *testing.T) {
	t.Helper()
	var document struct {
		Paths map[string]map[string]any
	}
	text, err := os.ReadFile("../../docs/openapi.json")
	service.Must(t, err)
	service.Must(t, json.Unmarshal(text, &document))
	resource := regexp.MustCompile(` /[^/]+`)
	kind := func(operation string) string { return resource.ReplaceAllLiteralString(operation, "") }
	for path, operations := range document.Paths {
		for method := range operations {
			operation := strings.ToUpper(method) + " " + path
			if strings.Contains(path, "}/") {
				continue
			}
			if !slices.ContainsFunc(clientSteps, func(step clientStep) bool { return kind(step.operation) == kind(operation) }) {
				t.Errorf("the clients do not call %s", operation)
			}
		}
	}
}

// shell runs command with args in folder and returns its output and how long it took.
func shell(t *testing.T, folder, command string, args ...string) (output string, took time.Duration) {
	t.Helper()
	begin := time.Now()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", command, "sh"}, args...)...)
	cmd.Dir = folder
	var errors strings.Builder
	cmd.Stderr = &errors
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", command, err, stdout, errors.String())
	}
	return string(stdout), time.Since(begin).Round(100 * time.Millisecond)
}
