package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/libtnb/sqlite"
	"github.com/pressly/goose/v3"

	"plantstore/database/migrations"
	"plantstore/database/table"
	"plantstore/models"
)

// A kind is a kind of database, with the folder of its migrations.
type kind struct{ folder string }

var (
	onPostgres = kind{"postgres"}
	onSQLite   = kind{"sqlite"}
)

const migrationsFolder = "database/migrations"

// writeMigrations writes what the table name lacks in comparison with its model, as the next migration of
// each kind of database, and returns the names of the files. A person reviews them.
func writeMigrations(ctx context.Context, name string) (written []string, err error) {
	model, err := modelOf(name)
	if err != nil {
		return nil, err
	}
	last, present, err := migrated(ctx, name)
	if err != nil {
		return nil, err
	}
	steps, err := stepsOf(model, present)
	if err != nil {
		return nil, err
	}
	file := fmt.Sprintf("%05d_%s.sql", last+1, steps.name)
	for _, k := range []kind{onPostgres, onSQLite} {
		path := filepath.Join(migrationsFolder, k.folder, file)
		if err := os.WriteFile(path, []byte(steps.text(k, last+1)), 0o644); err != nil {
			return written, err
		}
		written = append(written, path)
	}
	return written, nil
}

// modelOf returns the model of the table name.
func modelOf(name string) (models.Model, error) {
	var names []string
	for _, model := range models.All() {
		t := table.OfModel(model)
		if t.Name == name {
			return model, nil
		}
		names = append(names, t.Name)
	}
	return nil, fmt.Errorf("models.All has no model of the table %s, only %s", name, strings.Join(names, ", "))
}

// migrated applies the migrations to a new database, and returns the number of the last migration and the
// columns and indexes of the table name, which may be none.
func migrated(ctx context.Context, name string) (last int64, present []string, err error) {
	folder, err := os.MkdirTemp("", "plantstore-migration-")
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open(sqlite.DriverName, "file:"+filepath.Join(folder, "plantstore.db"))
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, os.DirFS(filepath.Join(migrationsFolder, onSQLite.folder)))
	if err != nil {
		return 0, nil, err
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return 0, nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_xinfo(?1) UNION ALL SELECT name FROM pragma_index_list(?1)", name)
	err = table.ReadAll(func(rows table.Rows) error {
		for rows.Next() {
			present = append(present, "")
			if err := rows.Scan(&present[len(present)-1]); err != nil {
				return err
			}
		}
		return rows.Err()
	})(rows, err)
	return results[len(results)-1].Source.Version, present, err
}

// steps are what a table lacks.
type steps struct {
	name    string // of the migration
	table   *table.Table
	create  bool // the table
	columns []*column
	indexes []index
}

// column is a column of a table and its rule.
type column struct {
	*table.Column
	table *table.Table
	rule  models.Rule // or nil, without models.Unique
}

// index is an index of a table.
type index struct{ unique, name, columns string }

// stepsOf returns what the table of model lacks if it has the columns and indexes in present.
func stepsOf(model models.Model, present []string) (s steps, err error) {
	s.table = table.OfModel(model)
	s.name, s.create = s.table.Name, len(present) == 0
	for _, c := range s.table.Columns {
		if slices.Contains(present, c.DBName) {
			continue
		}
		s.columns = append(s.columns, &column{c, s.table, models.Base(model.Rules()[c.DBName])})
		if s.create {
			continue
		}
		s.name += "_" + c.DBName
		if c.FieldType.Kind() != reflect.Pointer && c.DefaultValueInterface == nil {
			return s, fmt.Errorf("%s.%s needs a value in the rows that exist: make the field %s a pointer, or give it the tag default if its rule is models.Server, "+
				"or write the migrations by hand", s.table.Name, c.DBName, c.Name)
		}
	}
	s.indexes = slices.DeleteFunc(indexesOf(model), func(i index) bool { return slices.Contains(present, i.name) })
	if len(s.columns) == 0 && len(s.indexes) > 0 {
		s.name += "_indexes"
	}
	if len(s.columns)+len(s.indexes) == 0 {
		err = fmt.Errorf("the migrations make all columns and indexes of %s; a column whose rule has changed needs migrations written by hand", s.name)
	}
	return s, err
}

// indexesOf returns the indexes that the rules of a model, and the lists of its resource, need. An index for
// a list ends with the key, by which rows with the same value are sorted.
func indexesOf(model models.Model) (all []index) {
	t := table.OfModel(model)
	var listed []string
	for _, r := range resources() {
		if r.Name() == t.Name {
			listed = slices.Concat(r.Lists().Equal, r.Lists().Sort)
		}
	}
	for _, c := range t.Columns {
		if model.Rules().Unique(c.DBName) {
			all = append(all, index{"UNIQUE ", t.Name + "_" + c.DBName + "_key", c.DBName})
		}
		_, refers := models.Base(model.Rules()[c.DBName]).(models.Ref)
		if refers || slices.Contains(listed, c.DBName) {
			all = append(all, index{"", t.Name + "_" + c.DBName, c.DBName + ", " + t.Key.DBName})
		}
	}
	return all
}

// text returns the migration with a number.
func (s *steps) text(k kind, number int64) string {
	if k == onSQLite && s.table.Key.FieldType.Kind() == reflect.Int64 {
		// Each index ends with the row key, and SQLite searches by it only if the index does not name it.
		own := *s
		s, own.indexes = &own, slices.Clone(s.indexes)
		for i := range own.indexes {
			own.indexes[i].columns = strings.TrimSuffix(own.indexes[i].columns, ", "+s.table.Key.DBName)
		}
	}
	var up, down []string
	if s.create {
		addFeed, dropFeed := s.feed(k)
		up, down = []string{s.createTable(k) + addFeed}, []string{dropFeed + "DROP TABLE " + s.table.Name + ";"}
		for _, i := range s.indexes {
			up = append(up, "CREATE "+i.unique+"INDEX "+i.name+" ON "+s.table.Name+" ("+i.columns+");")
		}
	} else {
		up, down = s.addColumns(k)
	}
	annotation, again := "", ""
	if k == onPostgres && !s.create {
		annotation, again = "-- +goose NO TRANSACTION\n", " ON CONFLICT DO NOTHING"
	}
	return annotation + "-- +goose Up\n" + strings.Join(up, "\n") + "\n" +
		fmt.Sprintf("INSERT INTO compatible_migrations VALUES (%d)%s;\n\n-- +goose Down\nDELETE FROM compatible_migrations WHERE version = %[1]d;\n", number, again) +
		strings.Join(down, "\n") + "\n"
}

// createTable returns the statement that creates the table.
func (s *steps) createTable(k kind) string {
	var width, wide int
	for _, c := range s.columns {
		width, wide = max(width, len(c.DBName)), max(wide, len(k.typeOf(c)))
	}
	var lines []string
	for _, c := range s.columns {
		line := fmt.Sprintf("    %-*s %-*s %s", width, c.DBName, wide, k.typeOf(c), k.constraints(c))
		if ref, ok := c.rule.(models.Ref); ok {
			line += " REFERENCES " + k.target(ref)
		}
		lines = append(lines, line)
	}
	for _, c := range s.columns {
		for _, check := range k.checks(c) {
			lines = append(lines, "    "+check)
		}
	}
	return "CREATE TABLE " + s.table.Name + " (\n" + strings.Join(lines, ",\n") + "\n);"
}

// feed returns the statements that create the feed of changes to a new table, and remove it.
func (s *steps) feed(k kind) (up, down string) {
	if s.table.Feed == "" {
		return "", ""
	}
	text, err := migrations.Files.ReadFile("feed/" + k.folder + ".sql")
	if err != nil {
		log.Fatal(err)
	}
	up, down, _ = strings.Cut(s.table.FeedSQL(string(text)), "\n-- +goose Down\n")
	return strings.TrimRight(strings.TrimPrefix(up, "-- +goose Up"), "\n"), down
}

// addColumns returns the statements that add the columns and indexes, and remove them. On PostgreSQL, no
// statement reads the table while others wait for it.
func (s *steps) addColumns(k kind) (up, down []string) {
	var later []string
	for _, c := range s.columns {
		name := s.table.Name + " "
		down = append(down, "ALTER TABLE "+name+"DROP COLUMN "+k.ifThere("EXISTS ")+c.DBName+";")
		add := "ADD COLUMN " + k.ifThere("NOT EXISTS ") + c.DBName + " " + k.typeOf(c) + " " + k.constraints(c)
		checks := k.checks(c)
		if k == onSQLite {
			if ref, ok := c.rule.(models.Ref); ok {
				add += " REFERENCES " + k.target(ref)
			}
			up = append(up, strings.Join(append([]string{"ALTER TABLE " + name + add}, checks...), " ")+";")
			continue
		}
		parts := []string{add}
		if ref, ok := c.rule.(models.Ref); ok {
			checks = append(checks, fmt.Sprintf("CONSTRAINT %s_%s_fkey FOREIGN KEY (%[2]s) REFERENCES %s", s.table.Name, c.DBName, k.target(ref)))
		}
		for _, check := range checks {
			constraint := strings.Fields(check)[1]
			parts = append(parts, "DROP CONSTRAINT IF EXISTS "+constraint, "ADD "+check+" NOT VALID")
			later = append(later, "ALTER TABLE "+name+"VALIDATE CONSTRAINT "+constraint+";")
		}
		up = append(up, "ALTER TABLE "+name+strings.Join(parts, ",\n    ")+";")
	}
	var drop []string
	for _, i := range s.indexes {
		concurrently := map[kind]string{onPostgres: "CONCURRENTLY "}[k]
		drop = append(drop, "DROP INDEX "+concurrently+k.ifThere("EXISTS ")+i.name+";")
		if k == onPostgres {
			later = append(later, drop[len(drop)-1]) // which an interrupted attempt has left unusable
		}
		later = append(later, "CREATE "+i.unique+"INDEX "+concurrently+i.name+" ON "+s.table.Name+" ("+i.columns+");")
	}
	return append(up, k.waiting(later)...), append(k.waiting(drop), down...)
}

// waiting lets statements of PostgreSQL wait for running transactions, while all others continue.
func (k kind) waiting(statements []string) []string {
	if k != onPostgres || len(statements) == 0 {
		return statements
	}
	return slices.Concat([]string{
		"SELECT set_config('plantstore.lock_timeout', current_setting('lock_timeout'), false), set_config('lock_timeout', '0', false);",
	}, statements, []string{"SELECT set_config('lock_timeout', current_setting('plantstore.lock_timeout'), false);"})
}

// target returns the table and the column to which a column refers.
func (k kind) target(ref models.Ref) string {
	t := table.OfModel(ref.To)
	return t.Name + " (" + t.Key.DBName + ")"
}

// ifThere returns a clause with which a migration outside of a transaction can be repeated.
func (k kind) ifThere(condition string) string {
	if k == onPostgres {
		return "IF " + condition
	}
	return ""
}

// typeOf returns the type of a column.
func (k kind) typeOf(c *column) string {
	t := c.Type
	if c.rule != nil {
		t = c.rule.SQL()
	}
	if k == onPostgres {
		return t.Postgres
	}
	return t.SQLite
}

// constraints returns the constraints of a column that follow its type.
func (k kind) constraints(c *column) string {
	switch {
	case c.Column == c.table.Key || c.PrimaryKey:
		if k == onSQLite && c.IndirectFieldType.Kind() != reflect.Int64 {
			return "PRIMARY KEY NOT NULL" // SQLite alone would accept NULL
		}
		return "PRIMARY KEY"
	case c.FieldType.Kind() == reflect.Pointer:
		return "NULL" + defaultClause(c)
	}
	return "NOT NULL" + defaultClause(c)
}

// defaultClause returns the clause DEFAULT of a column that has one.
func defaultClause(c *column) string {
	switch value := c.DefaultValueInterface.(type) {
	case nil:
		return ""
	case string:
		return " DEFAULT '" + strings.ReplaceAll(value, "'", "''") + "'"
	default:
		return fmt.Sprintf(" DEFAULT %v", value)
	}
}

// checks returns the constraints with which the database repeats a column's rule.
func (k kind) checks(c *column) (all []string) {
	add := func(suffix, format string, args ...any) {
		condition := strings.ReplaceAll(fmt.Sprintf(format, args...), "{}", c.DBName)
		all = append(all, fmt.Sprintf("CONSTRAINT %s_%s_%s CHECK (%s)", c.table.Name, c.DBName, suffix, condition))
	}
	if k == onSQLite && c.IndirectFieldType.Kind() == reflect.Bool {
		add("values", "{} IN (0, 1)")
	}
	switch rule := c.rule.(type) {
	case models.Text:
		if rule.Max > 0 {
			k.addLength(add, rule.Min, rule.Max)
		}
		if rule.NotBlank {
			add("not_blank", "%s({}) <> ''", cmp.Or(map[kind]string{onPostgres: "btrim"}[k], "trim"))
		}
		if values, ok := rule.Schema()["enum"].([]string); ok {
			quotes := make([]string, len(values))
			for i, v := range values {
				quotes[i] = quoted(v)
			}
			add("values", "{} IN (%s)", strings.Join(quotes, ", "))
		}
		if rule.Match != nil && (rule.SQL() == table.Text || k == onSQLite) {
			add("form", "%s", k.matches(rule.Match.String()))
		}
		var digits, scale int
		switch of := rule.Schema()["type"]; {
		case of == "object" || of == "array":
			add("type", "%s({}) = '%s'", map[kind]string{onPostgres: "json_typeof", onSQLite: "json_type"}[k], of)
		case k == onPostgres: // the types say all
		case rule.Schema()["format"] == "date":
			add("form", "{} IS date({})")
		case rule.SQL().SQLite == "NUMERIC":
			if _, err := fmt.Sscanf(rule.SQL().Postgres, "numeric(%d,%d)", &digits, &scale); err != nil {
				panic(err)
			}
			add("form", "typeof({}) IN ('integer', 'real', 'null') AND abs({}) < 1e%d AND round({}, %d) = {}", digits-scale, scale)
		}
	case models.Integer:
		add("range", "{} BETWEEN %d AND %d", rule.Min, rule.Max)
	case models.Float:
		add("range", "{} BETWEEN %s AND %s", strconv.FormatFloat(rule.Min, 'g', -1, 64), strconv.FormatFloat(rule.Max, 'g', -1, 64))
	}
	return all
}

// addLength adds the limits of a text's length. In a PostgreSQL database of encoding SQL_ASCII,
// char_length counts bytes; a character of UTF-8 has at most 4 of these.
func (k kind) addLength(add func(suffix, format string, args ...any), least, most int) {
	between := func(length string, least, most int) string {
		if least == 0 {
			return fmt.Sprintf("%s({}) <= %d", length, most)
		}
		return fmt.Sprintf("%s({}) BETWEEN %d AND %d", length, least, most)
	}
	if k == onSQLite {
		add("length", "%s", between("length", least, most))
		return
	}
	characters := least
	if least == 1 { // as many as bytes
		characters = 0
	}
	add("length", "%s AND (%s OR getdatabaseencoding() = 'SQL_ASCII')", between("octet_length", least, 4*most), between("char_length", characters, most))
}
