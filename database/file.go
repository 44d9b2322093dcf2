package database

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"plantstore/database/sqlite"
)

// errUseTools is the error of [Backup] and [Restore] on PostgreSQL.
var errUseTools = errors.New("backup and restore are for SQLite; for PostgreSQL, use its own tools: " +
	`pg_dump -Fc "$DATABASE_URL" -f FILE, and pg_restore --no-owner -d URL FILE with the URL of an empty database`)

// RequireFile fails if url names a SQLite file that does not exist, which [Open] would
// create.
func RequireFile(url string) error {
	path, isFile, err := parseURL(url)
	if err != nil || !isFile {
		return err
	}
	return sqlite.RequireFile(path)
}

// fileOf returns the path of the SQLite file that url names, or fails with errUseTools.
func fileOf(url string) (path string, err error) {
	path, isFile, err := parseURL(url)
	if err == nil && !isFile {
		err = errUseTools
	}
	return path, err
}

// Backup writes a copy of the SQLite database that o.URL names to the new file path: see
// [sqlite.Backup]. On PostgreSQL, it fails.
func Backup(ctx context.Context, o Options, path string, log *zap.Logger) error {
	file, err := fileOf(o.URL)
	if err != nil {
		return err
	}
	return sqlite.Backup(ctx, sqlite.Options{Path: file, Timeout: o.Timeout, Check: o.Check}, path, log)
}

// Restore replaces the SQLite database that o.URL names by a copy of the file path, and returns its name:
// see [sqlite.Restore]. On PostgreSQL, it fails.
func Restore(ctx context.Context, o Options, path string, confirm func(name string) error) (name string, err error) {
	if name, err = fileOf(o.URL); err != nil {
		return "", err
	}
	return name, sqlite.Restore(ctx, name, path, confirm)
}
