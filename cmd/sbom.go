package cmd

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"plantstore/controllers"
)

// component is a component of a bill of materials in CycloneDX.
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref,omitempty"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl,omitempty"`
}

func library(kind, name, version string) component {
	purl := "pkg:" + kind + "/" + name + "@" + url.QueryEscape(version)
	return component{"library", purl, name, version, purl}
}

func newSBOM() *cobra.Command {
	return withFile(&cobra.Command{
		Use:   "sbom [FILE]",
		Short: "Print the software bill of materials: the linked modules, as CycloneDX in JSON",
		Long: "Print the software bill of materials, as CycloneDX in JSON: the modules that are linked into the\n" +
			"program, or into FILE, which is the same version of it for another platform.",
		Example: "  plantstore sbom > plantstore.cdx.json",
		Args:    takes(0),
		RunE: func(_ *cobra.Command, args []string) error {
			info, err := buildInfo(args)
			if err != nil {
				return err
			}
			ui, err := swaggerUIVersion()
			if err != nil {
				return err
			}
			components := []component{
				library("golang", "std", strings.TrimPrefix(info.GoVersion, "go")),
				library("npm", "swagger-ui", ui),
			}
			for _, module := range info.Deps {
				if module.Replace != nil {
					module = module.Replace
				}
				components = append(components, library("golang", module.Path, module.Version))
			}
			out := json.NewEncoder(os.Stdout)
			out.SetEscapeHTML(false)
			out.SetIndent("", "  ")
			return out.Encode(map[string]any{
				"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
				"metadata":   map[string]any{"component": component{Type: "application", Name: "plantstore", Version: version}},
				"components": components,
			})
		},
	})
}

// buildInfo returns what the linker knows of the program, or of that in the file path[0].
func buildInfo(path []string) (*debug.BuildInfo, error) {
	if len(path) > 0 {
		return buildinfo.ReadFile(path[0])
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, errors.New("the program has no build information")
	}
	return info, nil
}

var packageVersion = regexp.MustCompile(`PACKAGE_VERSION:"([^"]+)"`)

// swaggerUIVersion returns the version of the embedded Swagger UI, which no module names.
func swaggerUIVersion() (string, error) {
	bundle, err := controllers.UIFile("swagger-ui-bundle.js")
	if err != nil {
		return "", err
	}
	match := packageVersion.FindSubmatch(bundle)
	if match == nil {
		return "", errors.New("the version of Swagger UI is not in its bundle")
	}
	return string(match[1]), nil
}
