//go:build schemathesis

package api

import (
	"os"
	"os/exec"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestSchemathesis runs Schemathesis, the program in SCHEMATHESIS, which sends requests
// that the OpenAPI document allows and others, and checks the responses against it.
func TestSchemathesis(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, databaseURL string) {
		s := service.Start(t, "DATABASE_URL="+databaseURL)
		cmd := exec.CommandContext(t.Context(), os.Getenv("SCHEMATHESIS"),
			"--config-file", ".ci/schemathesis.toml", "run", "--no-color", s.URL+"/openapi.json")
		cmd.Dir = "../.."
		// Each run is the same: no failures of earlier runs, no random order of sets.
		cmd.Env = append(os.Environ(), "TOKEN="+service.Token, "HYPOTHESIS_STORAGE_DIRECTORY="+t.TempDir(), "PYTHONHASHSEED=1")
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		if err := cmd.Run(); err != nil {
			t.Errorf("Schemathesis: %v", err)
		}
		s.Stop(t)
	})
}
