package api

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/models"
	"plantstore/tests/service"
)

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// invalid returns values, in SQL, that break a rule of a property, by the rule. The database must reject all of
// them or, if they break the form of a text, at least one: SQLite has no regular expressions.
func (d *resource) invalid(name string) map[string][]string {
	s, all := d.property(name), make(map[string][]string)
	add := func(rule, value string) { all[rule] = append(all[rule], value) }
	if d.isRequired(name) {
		add("NOT NULL", "NULL")
	}
	least, _ := s.Minimum.Int64()
	most, _ := s.Maximum.Int64()
	switch kind := fmt.Sprint(s.Type); {
	case s.References != "" && kind == "string":
		add("reference", "'ffffffff-ffff-4fff-8fff-ffffffffffff'")
	case s.References != "":
		add("reference", "123456789")
	case kind == "number" && s.Minimum != "":
		add("minimum", "-1e300")
		add("maximum", "1e300")
	case kind == "integer":
		if s.Minimum != "" && least > math.MinInt64 {
			add("minimum", strconv.FormatInt(least-1, 10))
		}
		if s.Maximum != "" && most < math.MaxInt64 {
			add("maximum", strconv.FormatInt(most+1, 10))
		}
	case len(s.Enum) > 1:
		add("enum", "'no such value'")
	case s.Format == "date":
		add("date", "'2001-02-30'")
	case kind == "object", kind == "array":
		add("JSON", "'{'")
		add("JSON", "'1'")
	case kind == "string":
		if s.MaxLength > 0 {
			add("maxLength", quoted(strings.Repeat("x", s.MaxLength+1)))
		}
		if s.MinLength > 0 {
			add("minLength", quoted(strings.Repeat("x", s.MinLength-1)))
		}
		example, _ := s.Example.(string)
		for _, text := range []string{"", " ", "§", example + "§", strings.ToLower(example), strings.ToUpper(example)} {
			isUUID := s.Pattern == models.UUID().Match.String() && s.accepts(strings.ToLower(text)) // PostgreSQL stores it in lower case
			if !s.accepts(text) && !isUUID {
				add("form", quoted(text))
			}
		}
	}
	return all
}

// TestChecksRepeatTheRules writes past the service what each rule in the OpenAPI document forbids.
func TestChecksRepeatTheRules(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		db := service.OpenTable(t, url)
		for _, d := range resourcesOf(t, s) {
			table := d.path[1:]
			id, other := d.stored(t, 1), d.stored(t, 2)
			update := func(t *testing.T, assignment string) error {
				t.Helper()
				result, err := db.ExecContext(t.Context(), "UPDATE "+table+" SET "+assignment+" WHERE id = "+quoted(text(id)))
				if err != nil {
					return err
				}
				if rows, err := result.RowsAffected(); err != nil || rows != 1 {
					t.Fatalf("got %d rows with the id %v, %v, want 1", rows, id, err)
				}
				return nil
			}
			if err := update(t, "id = id"); err != nil {
				t.Fatal(err)
			}
			for _, column := range slices.Sorted(maps.Keys(d.schemas["New"+d.kind].Properties)) {
				for rule, values := range d.invalid(column) {
					t.Run(fmt.Sprint(table, " ", column, " ", rule), func(t *testing.T) {
						var accepted []string
						for _, value := range values {
							if update(t, column+" = "+value) == nil {
								accepted = append(accepted, value)
							}
						}
						if len(accepted) == len(values) || len(accepted) > 0 && (rule != "form" || !strings.HasPrefix(url, "sqlite:")) {
							t.Errorf("the database accepts %.100s: its CHECKs must repeat the rule", accepted)
						}
					})
				}
				if d.property(column).Unique {
					t.Run(fmt.Sprint(table, " ", column, " unique"), func(t *testing.T) {
						value := d.value(t, column, 2)
						d.service.Call(t, "PATCH", fmt.Sprint(d.path, "/", other), encode(t, service.InNDJSON, service.Object{column: value})).RequireOK(t)
						if update(t, column+" = "+quoted(text(value))) == nil {
							t.Error("the database accepts a value twice")
						}
					})
				}
			}
		}
	})
}
