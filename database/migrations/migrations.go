// Package migrations has the steps of the schema.
package migrations

import "embed"

// Files has a folder of numbered SQL files for each kind of database, with the same numbers and
// the same effect. The folder feed has what a table needs for a feed of changes: table.FeedSQL fills in
// the names.
//
//go:embed */*.sql
var Files embed.FS
