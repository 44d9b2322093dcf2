//go:build clients

package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"plantstore/tests/service"
)

// TestCodeSamples runs the samples of each operation in the OpenAPI document, in an order in which all succeed
// but the revocation of the example of an id.
func TestCodeSamples(t *testing.T) {
	var document struct {
		Paths map[string]map[string]struct {
			Samples []struct{ Label, Source string } `json:"x-codeSamples"`
		}
	}
	text, err := os.ReadFile("../../docs/openapi.json")
	service.Must(t, err)
	service.Must(t, json.Unmarshal(text, &document))
	runs := map[string]struct{ name, command string }{
		"curl": {"sample.sh", "sh sample.sh"}, "Python": {"sample.py", "python3 sample.py"},
		"JavaScript": {"sample.mjs", "node sample.mjs"}, "Go": {"sample.go", "go run sample.go"},
	}
	steps := []struct{ method, path, want string }{
		{"post", "/plants", "200"},
		{"get", "/plants", "200"},
		{"get", "/plants/{id}", "200"},
		{"patch", "/plants/{id}", "200"},
		{"delete", "/plants/{id}", "204"},
		{"put", "/plants/{id}", "201"},
		{"patch", "/plants", "200"},
		{"delete", "/plants", "200"},
		{"post", "/plants/import", "200"},
		{"get", "/plants/export", "200"},
		{"get", "/plants/tags", "200"},
		{"get", "/plants/changes", "200"},
		{"post", "/tokens", "200"},
		{"get", "/tokens", "200"},
		{"delete", "/tokens/{id}", "404"},
	}
	operations := 0
	for _, methods := range document.Paths {
		operations += len(methods)
	}
	if operations != len(steps) {
		t.Errorf("got %d operations and %d steps, want a step for each", operations, len(steps))
	}
	for label, run := range runs {
		t.Run(label, func(t *testing.T) {
			s, folder := service.Start(t), t.TempDir()
			service.Must(t, os.WriteFile(filepath.Join(folder, "plants.csv"), []byte("id,name\n7,Aloe vera\n"), 0o600))
			for _, step := range steps {
				t.Run(step.method+" "+step.path, func(t *testing.T) {
					for _, sample := range document.Paths[step.path][step.method].Samples {
						if sample.Label != label {
							continue
						}
						service.Must(t, os.WriteFile(filepath.Join(folder, run.name), []byte(sample.Source), 0o600))
						cmd := exec.CommandContext(t.Context(), "sh", "-c", run.command)
						cmd.Dir, cmd.Env = folder, append(os.Environ(), "BASE_URL="+s.URL, "TOKEN="+service.Token)
						output, err := cmd.CombinedOutput() // Python fails with the 404
						if !regexp.MustCompile(fmt.Sprintf(`(?m)(^|^HTTP/1.1 |HTTP Error )%s\b`, step.want)).Match(output) {
							t.Errorf("got %s (%v), want %s", output, err, step.want)
						}
						return
					}
					t.Error("got no sample")
				})
			}
		})
	}
}
