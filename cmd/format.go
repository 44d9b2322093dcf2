package cmd

import (
	"errors"
	"path/filepath"
	"strings"

	"plantstore/controllers"
)

// format is a file format of plants.
type format struct {
	mediaType string
	header    int // lines before the first row
}

var (
	formatCSV    = format{mediaType: controllers.TypeCSV, header: 1}
	formatNDJSON = format{mediaType: controllers.TypeNDJSON}
)

// formatOf returns the format with the given name. If it is empty, the extension of
// path determines the format, or otherwise defaultName.
func formatOf(name, path, defaultName string) (format, error) {
	if name == "" {
		switch strings.ToLower(filepath.Ext(path)) {
		case ".csv":
			name = "csv"
		case ".ndjson", ".jsonl":
			name = "ndjson"
		default:
			name = defaultName
		}
	}
	switch name {
	case "csv":
		return formatCSV, nil
	case "ndjson":
		return formatNDJSON, nil
	}
	return format{}, usageError(errors.New("--format must be csv or ndjson"))
}
