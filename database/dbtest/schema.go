package dbtest

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
	"go.uber.org/zap"

	"plantstore/database"
	"plantstore/database/migrations"
)

// Migrations returns the migrations of db, which a test can apply and undo step by step.
func Migrations(t testing.TB, db *database.DB) *goose.Provider {
	t.Helper()
	facts := db.Dialect.Facts()
	files, err := fs.Sub(migrations.Files, facts.Migrations)
	if err != nil {
		t.Fatal(err)
	}
	locker, err := db.Dialect.Locker(zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	pool, _ := db.Dialect.Pools()
	provider, err := goose.NewProvider(facts.Goose, pool, files, goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// What SchemaOf reads. The tables of goose are not part of the schema, and NOT NULL is in the line of its column.
const (
	postgresSchema = `
WITH tables AS (SELECT oid, relname::text AS name FROM pg_class
	WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname NOT LIKE 'goose%')
SELECT name || '.' || attname || ' ' || format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
	|| coalesce(' DEFAULT ' || pg_get_expr(adbin, adrelid), '')
	FROM tables JOIN pg_attribute ON attrelid = tables.oid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
	WHERE attnum > 0 AND NOT attisdropped
UNION ALL SELECT name || ' ' || pg_get_constraintdef(c.oid) FROM tables JOIN pg_constraint c ON conrelid = tables.oid WHERE contype <> 'n'
UNION ALL SELECT pg_get_indexdef(indexrelid) FROM tables JOIN pg_index ON indrelid = tables.oid
UNION ALL SELECT pg_get_triggerdef(g.oid) FROM tables JOIN pg_trigger g ON tgrelid = tables.oid WHERE NOT tgisinternal
UNION ALL SELECT 'FUNCTION ' || proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace`

	sqliteSchema = `
WITH tables AS (SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose%')
SELECT t.name || '.' || c.name || ' ' || c.type || iif(c."notnull", ' NOT NULL', '') || iif(c.pk, ' PRIMARY KEY', '')
	|| coalesce(' DEFAULT ' || c.dflt_value, '') FROM tables t, pragma_table_xinfo(t.name) c
UNION ALL SELECT t.name || ' FOREIGN KEY (' || f."from" || ') REFERENCES ' || f."table" FROM tables t, pragma_foreign_key_list(t.name) f
UNION ALL SELECT t.name || ' UNIQUE (' || (SELECT group_concat(name, ', ') FROM pragma_index_info(i.name)) || ')'
	FROM tables t, pragma_index_list(t.name) i WHERE i.origin = 'u'
UNION ALL SELECT s.sql FROM tables t JOIN sqlite_schema s ON s.tbl_name = t.name WHERE s.type <> 'table' AND s.sql IS NOT NULL
UNION ALL SELECT name || ' ' || sql FROM tables`
)

// SchemaOf returns lines that describe what migrations have made: columns, constraints, indexes, triggers and
// the names of functions, in ascending order. The name of a constraint does not count.
func SchemaOf(t testing.TB, db *database.DB) (schema []string) {
	t.Helper()
	query := postgresSchema
	if db.Dialect.Facts().System == "sqlite" {
		query = sqliteSchema
	}
	var lines []string
	if err := db.WithContext(t.Context()).Raw(query).Scan(&lines).Error; err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		line = strings.NewReplacer("( ", "(", " )", ")").Replace(strings.Join(strings.Fields(line), " "))
		name, statement, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(statement, "CREATE TABLE ") {
			schema = append(schema, line)
			continue
		}
		for _, rest := range strings.Split(statement, "CHECK (")[1:] { // SQLite tells CHECKs only in the text of a table
			schema = append(schema, name+" CHECK ("+upToParenthesis(rest)+")")
		}
	}
	slices.Sort(schema)
	return schema
}

// upToParenthesis returns text before the parenthesis that closes an expression.
func upToParenthesis(text string) string {
	depth, quoted := 1, false
	for i, r := range text {
		switch {
		case r == '\'':
			quoted = !quoted
		case quoted:
		case r == '(':
			depth++
		case r == ')':
			depth--
		}
		if depth == 0 {
			return text[:i]
		}
	}
	return text
}
