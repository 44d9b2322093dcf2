package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// roleFaults is a query for the settings, of those in $1 with the values in $2, with which
// sessions do not start, and the statements that change that. It returns nothing unless a
// pooler like pgbouncer is between the service and the server: it invents the process
// id, $3, that clients get. A statement for a role in a database overrides all other
// defaults, and every role may run it for itself.
const roleFaults = `SELECT name, reset_val, format('ALTER ROLE %I IN DATABASE %I SET %s = %L', session_user, current_database(), name, value)
	FROM unnest($1::text[], $2::text[]) AS wanted(name, value) JOIN pg_settings USING (name)
	WHERE pg_backend_pid() <> $3::bigint AND CASE name WHEN 'synchronous_commit' THEN reset_val = 'off' ELSE reset_val <> value END`

// Inspect checks the settings of prepareConnection, which do not last if
// a pooler gives each transaction another session: then the role must have them. The
// service does not start if it would lose acknowledged rows.
func (d *Dialect) Inspect(ctx context.Context, log *zap.Logger) error {
	names, values := []string{"synchronous_commit"}, []string{"on"}
	for _, s := range sessionSettings {
		names, values = append(names, s.name), append(values, s.value)
	}
	var lossy error
	err := WithConn(ctx, d.pool, func(ctx context.Context, conn *pgx.Conn) error {
		// Not prepared: the URL may lack the mode that an old pgbouncer needs.
		rows, err := conn.Query(ctx, roleFaults, pgx.QueryExecModeExec, names, values, int64(conn.PgConn().PID()))
		if err != nil {
			return err
		}
		var name, value, remedy string
		_, err = pgx.ForEachRow(rows, []any{&name, &value, &remedy}, func() error {
			if name == "synchronous_commit" {
				lossy = fmt.Errorf("synchronous_commit is off in the sessions of a pooler such as pgbouncer, "+
					"so acknowledged plants could be lost: run %s, and RECONNECT in its console", remedy)
				return nil
			}
			log.Warn("a setting is wrong, and sessions cannot keep it through a pooler such as pgbouncer: change it, and RECONNECT in its console",
				zap.String("setting", name), zap.String("value", value), zap.String("run", remedy))
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("read the settings of the database: %w", err)
	}
	return lossy
}
