package service

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// ResultsFile is the file that Record writes to, or empty: make results sets it.
var ResultsFile = os.Getenv("RESULTS")

// Scale returns full if results are recorded, and otherwise less, so that make test takes
// minutes.
func Scale[T any](less, full T) T {
	if ResultsFile != "" {
		return full
	}
	return less
}

// ParallelUnlessRecorded runs t beside other tests, or alone if results are recorded: other
// tests would change its numbers.
func ParallelUnlessRecorded(t *testing.T) {
	t.Helper()
	if ResultsFile == "" {
		t.Parallel()
	}
}

// Record adds what t has measured, in Markdown, to tests/RESULTS.md, unless t has failed.
func Record(t *testing.T, format string, args ...any) {
	t.Helper()
	text := strings.TrimSpace(fmt.Sprintf(format, args...))
	t.Log(text)
	if ResultsFile == "" || t.Failed() {
		return
	}
	file, err := os.OpenFile(ResultsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	Must(t, err)
	_, err = file.WriteString("\n" + text + "\n")
	Must(t, errors.Join(err, file.Close()))
}
