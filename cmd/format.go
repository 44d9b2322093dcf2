package cmd

import (
	"cmp"
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

var formats = map[string]format{
	"csv":    {mediaType: controllers.TypeCSV, header: 1},
	"ndjson": {mediaType: controllers.TypeNDJSON},
	"jsonl":  {mediaType: controllers.TypeNDJSON},
}

// formatOf returns the format with the given name. If it is empty, the extension of
// path determines the format, or otherwise defaultName.
func formatOf(name, path, defaultName string) (format, error) {
	extension := strings.ToLower(strings.TrimPrefix(filepath.Ext(path), "."))
	f, ok := formats[cmp.Or(name, extension)]
	if !ok && name == "" {
		f, ok = formats[defaultName]
	}
	if !ok {
		return f, usageError(errors.New("--format must be csv or ndjson"))
	}
	return f, nil
}
