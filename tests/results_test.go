package tests

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// resultsFile is the file that record writes to, or empty: make results sets it.
var resultsFile = os.Getenv("RESULTS")

// scale returns full if results are recorded, and otherwise less, so that make test takes
// minutes.
func scale[T any](less, full T) T {
	if resultsFile != "" {
		return full
	}
	return less
}

// parallelUnlessRecorded runs t beside other tests, or alone if results are recorded: other
// tests would change its numbers.
func parallelUnlessRecorded(t *testing.T) {
	t.Helper()
	if resultsFile == "" {
		t.Parallel()
	}
}

// record adds what t has measured, in Markdown, to tests/RESULTS.md, unless t has failed.
func record(t *testing.T, format string, args ...any) {
	t.Helper()
	text := strings.TrimSpace(fmt.Sprintf(format, args...))
	t.Log(text)
	if resultsFile == "" || t.Failed() {
		return
	}
	file, err := os.OpenFile(resultsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err)
	_, err = file.WriteString("\n" + text + "\n")
	must(t, errors.Join(err, file.Close()))
}
