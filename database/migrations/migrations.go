// Package migrations has the steps of the schema.
package migrations

import (
	"embed"

	"github.com/pressly/goose/v3"
)

// Files has a folder of numbered SQL files for each kind of database, with the same numbers and
// the same effect.
//
//go:embed */*.sql
var Files embed.FS

// FromTooNew is the end of a query for the migrations beyond a version that a program which
// knows no newer version cannot serve.
const FromTooNew = "FROM " + goose.DefaultTablename + " WHERE version_id > %d AND version_id NOT IN (SELECT version FROM compatible_migrations)"
