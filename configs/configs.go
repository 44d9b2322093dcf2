// Package configs holds the default configuration.
package configs

import _ "embed"

// Defaults is config.yaml as it was when the program was built: every key the
// program knows, with its default.
//
//go:embed config.yaml
var Defaults []byte
