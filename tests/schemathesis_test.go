//go:build schemathesis

package tests

import (
	"os"
	"os/exec"
	"testing"

	"plantstore/database/dbtest"
)

// TestSchemathesis lets Schemathesis, the program that SCHEMATHESIS names, call
// the service in every way that the OpenAPI document allows and in many that it
// does not, and hold the answers against it.
func TestSchemathesis(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, databaseURL string) {
		s := start(t, "DATABASE_URL="+databaseURL)
		cmd := exec.CommandContext(t.Context(), os.Getenv("SCHEMATHESIS"),
			"--config-file", ".ci/schemathesis.toml", "run", "--no-color", s.url+"/openapi.json")
		cmd.Dir = ".."
		// The same run each time: no failures kept from another, no sets in an order
		// of their own.
		cmd.Env = append(os.Environ(), "TOKEN="+token, "HYPOTHESIS_STORAGE_DIRECTORY="+t.TempDir(), "PYTHONHASHSEED=1")
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		if err := cmd.Run(); err != nil {
			t.Errorf("Schemathesis: %v", err)
		}
		s.stop(t)
	})
}
