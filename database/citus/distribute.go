package citus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/pressly/goose/v3"

	"plantstore/database/migrations"
)

// creates matches the statements of migrations that create a table, and distributes the
// comments that say by which column its rows are distributed over the nodes of a Citus
// cluster. Every other table is copied to each node.
var (
	creates     = regexp.MustCompile(`(?mi)^CREATE TABLE(?: IF NOT EXISTS)? (\w+)`)
	distributes = regexp.MustCompile(`(?m)^-- citus: distribute (\w+) by (\w+)$`)
)

// undistributed returns the statements that distribute the tables of the migrations for
// which it has not been done.
func (d *Dialect) undistributed(ctx context.Context) (statements []string, err error) {
	files, err := fs.Glob(migrations.Files, "postgres/*.sql")
	if err != nil {
		return nil, err
	}
	tables, by := []string{goose.DefaultTablename}, make(map[string]string)
	for _, name := range files {
		text, err := migrations.Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, found := range creates.FindAllSubmatch(text, -1) {
			tables = append(tables, string(found[1]))
		}
		for _, found := range distributes.FindAllSubmatch(text, -1) {
			by[string(found[1])] = string(found[2])
		}
	}
	for _, table := range tables {
		var local bool
		err := d.pool.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass($1)"+
			" AND oid NOT IN (SELECT logicalrelid FROM pg_dist_partition))", table).Scan(&local)
		if err != nil {
			return nil, err
		}
		switch column := by[table]; {
		case !local:
		case column != "":
			statements = append(statements, fmt.Sprintf("SELECT create_distributed_table('%s', '%s')", table, column))
		default:
			statements = append(statements, fmt.Sprintf("SELECT create_reference_table('%s')", table))
		}
	}
	return statements, nil
}

// Migrate calls up on the coordinator only, and distributes the tables of the migrations.
func (d *Dialect) Migrate(ctx context.Context, pending bool, up func() error) (err error) {
	statements, err := d.undistributed(ctx)
	if err != nil || !pending && len(statements) == 0 {
		return err
	}
	var isCoordinator bool
	switch err := d.pool.QueryRowContext(ctx, "SELECT citus_is_coordinator()").Scan(&isCoordinator); {
	case err != nil:
		return err
	case !isCoordinator:
		return errors.New("migrations are pending, and the database is a worker of a Citus cluster: run `plantstore migrate up` on the coordinator")
	}
	if err := up(); err != nil {
		return err
	}
	locker, err := d.Locker(d.log)
	if err != nil {
		return err
	}
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := locker.SessionLock(ctx, conn); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.SessionUnlock(context.WithoutCancel(ctx), conn)) }()
	if statements, err = d.undistributed(ctx); err != nil { // of up's tables, unless another process was faster
		return err
	}
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
