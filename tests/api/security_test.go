package api

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"plantstore/tests/service"
)

// TestSecurityNamesTests checks that the tests in SECURITY.md exist.
func TestSecurityNamesTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../SECURITY.md")
	service.Must(t, err)
	files, err := filepath.Glob("../../*/*_test.go")
	service.Must(t, err)
	deeper, err := filepath.Glob("../../*/*/*_test.go")
	service.Must(t, err)
	exist := make(map[string]bool)
	for _, file := range append(files, deeper...) {
		source, err := os.ReadFile(file)
		service.Must(t, err)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(source, -1) {
			exist[string(match[1])] = true
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(text, -1)
	if len(named) == 0 {
		t.Error("SECURITY.md names no tests")
	}
	for _, match := range named {
		if !exist[string(match[1])] {
			t.Errorf("SECURITY.md: no test %s", match[1])
		}
	}
}
