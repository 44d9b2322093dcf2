package operate

import (
	"debug/buildinfo"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestLicensesAndSBOM checks that all modules which are linked into the program, and Swagger
// UI, are in its licenses and in its bill of materials.
func TestLicensesAndSBOM(t *testing.T) {
	t.Parallel()
	info, err := buildinfo.ReadFile(service.Program)
	service.Must(t, err)
	if len(info.Deps) < 10 {
		t.Fatalf("got %d modules in the program", len(info.Deps))
	}
	licenses, _, _ := service.RunToEnd(t, nil, "licenses")
	text, _, _ := service.RunToEnd(t, nil, "sbom")
	service.CheckCLI(t, nil, []string{"sbom", service.Program}, 0, text)
	service.CheckCLI(t, nil, []string{"sbom", service.Absolute(t, "../../LICENSE")}, 1, "", "unrecognized file format")
	var bom struct {
		BOMFormat  string
		Components []struct{ Name, Version string }
	}
	service.Must(t, json.Unmarshal([]byte(text), &bom))
	if bom.BOMFormat != "CycloneDX" {
		t.Errorf("got format %q, want CycloneDX", bom.BOMFormat)
	}
	names := map[string]string{"std": "Go's standard library and runtime", "swagger-ui": "Swagger UI"}
	for _, module := range info.Deps {
		names[module.Path] = module.Path
	}
	lines := strings.Split(licenses, "\n")
	for name, title := range names {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(lines, title) {
				t.Error("the licenses do not name it: run make docs")
			}
			i := slices.IndexFunc(bom.Components, func(c struct{ Name, Version string }) bool { return c.Name == name })
			if i < 0 || !regexp.MustCompile(`^v?\d+\.\d+`).MatchString(bom.Components[i].Version) {
				t.Error("the bill of materials does not have it with its version")
			}
		})
	}
}
