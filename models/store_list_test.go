package models_test

import (
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/models"
)

// TestListOfSeveralValues lists rows by several values of a column. If an index finds the rows of each value, the
// database reads no more than a page of each. Otherwise, it looks at the rows in their order.
func TestListOfSeveralValues(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		store, db := newPotStore(t, url)
		create(t, store, pot{Code: "9", Material: "clay"})
		for _, statement := range []string{
			// 200,000 rows with 20 materials, the letters from a to t
			"INSERT INTO pots WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 199999) SELECT CAST(100000 + i AS text), " +
				"substr('abcdefghijklmnopqrst', i % 20 + 1, 1), i, holed, label, depth, created_at, updated_at FROM n, pots",
			"CREATE INDEX pots_material ON pots (material, code)",
			"ANALYZE pots",
		} {
			if err := db.Exec(statement).Error; err != nil {
				t.Fatal(err)
			}
		}
		of := func(values ...any) []models.Comparison { return []models.Comparison{{"material", "=", values}} }
		for name, test := range map[string]struct {
			filter models.Filter[string]
			want   string
		}{
			"two values":                     {models.Filter[string]{Limit: 3, Where: of("b", "d")}, "100001 100003 100021"},
			"behind a row":                   {models.Filter[string]{Limit: 3, Where: of("b", "d"), After: new("100003")}, "100021 100023 100041"},
			"descending":                     {models.Filter[string]{Limit: 3, Where: of("b", "d"), Descending: true}, "299983 299981 299963"},
			"descending behind a row":        {models.Filter[string]{Limit: 3, Where: of("b", "d"), Descending: true, After: new("299981")}, "299963 299961 299943"},
			"sorted by the column":           {models.Filter[string]{Limit: 3, Where: of("b", "d"), Sort: "material", After: new("299961"), Value: "b"}, "299981 100003 100023"},
			"descending by the column":       {models.Filter[string]{Limit: 3, Where: of("b", "d"), Sort: "material", Descending: true, After: new("100023"), Value: "d"}, "100003 299981 299961"},
			"twenty values":                  {models.Filter[string]{Limit: 3, Where: of("a", "c", "t", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "A", "B", "C", "D", "E", "F", "G")}, "100000 100002 100019"},
			"unknown values":                 {models.Filter[string]{Limit: 3, Where: of("0", "1")}, ""},
			"a value and an unknown value":   {models.Filter[string]{Limit: 3, Where: of("0", "s")}, "100018 100038 100058"},
			"without an index":               {models.Filter[string]{Limit: 3, Where: of("b", "d"), Scan: true}, "100001 100003 100021"},
			"without an index, descending":   {models.Filter[string]{Limit: 3, Where: of("b", "d"), Scan: true, Descending: true}, "299983 299981 299963"},
			"several values of two columns":  {models.Filter[string]{Limit: 3, Where: append(of("b", "d"), models.Comparison{Column: "width", Operator: "=", Values: []any{int64(123), int64(124), int64(121)}})}, "100121 100123"},
			"a page larger than all of them": {models.Filter[string]{Limit: 9, Where: append(of("b", "d"), models.Comparison{Column: "width", Operator: ">", Values: []any{int64(199980)}})}, "299981 299983"},
		} {
			t.Run(name, func(t *testing.T) {
				rows, err := store.List(t.Context(), test.filter)
				var codes []string
				for _, row := range rows {
					codes = append(codes, row.Code)
				}
				if got := strings.Join(codes, " "); err != nil || got != test.want {
					t.Errorf("got %s, %v, want %s", got, err, test.want)
				}
				text, values := store.PageSQL(db.Reads(t.Context()), test.filter)
				lines, page := []string(nil), "Limit  ("
				if db.Dialect.Facts().System == "sqlite" {
					page = "CO-ROUTINE page\nSEARCH pots USING INDEX pots_material"
					var steps []struct{ Detail string }
					err = db.Raw("EXPLAIN QUERY PLAN "+text, values...).Scan(&steps).Error
					for _, step := range steps {
						lines = append(lines, step.Detail)
					}
				} else {
					err = db.Raw("EXPLAIN "+text, values...).Scan(&lines).Error
				}
				if err != nil {
					t.Fatal(err)
				}
				plan := strings.Join(lines, "\n")
				if pages := strings.Count(plan, page); !test.filter.Scan && pages < len(test.filter.Where[0].Values) {
					t.Errorf("%s has %d pages, want a page of each value:\n%s", text, pages, plan)
				}
				if test.filter.Scan && (strings.Contains(plan, "Sort") || strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "pots_material")) {
					t.Errorf("%s does not look at the rows in their order:\n%s", text, plan)
				}
			})
		}
	})
}
