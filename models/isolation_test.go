package models_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/models"
)

// TestDryRunOnlyReads: it ends while another transaction has locked its rows, or, on SQLite, is the only writer.
func TestDryRunOnlyReads(t *testing.T) {
	rules := models.Plant{}.Rules()
	for name := range rules {
		if _, refers := rules.Ref(name); refers || rules.Unique(name) {
			t.Skip("a dry run of rows with references or unique values writes them, and rolls back")
		}
	}
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Prepared(t, dbtest.Options(url))
		store := models.NewPlantStore(db)
		for id := range int64(2) {
			if _, err := store.Create(t.Context(), &models.Plant{ID: id, Name: "Fern"}); err != nil {
				t.Fatal(err)
			}
		}
		undo := errors.New("undo")
		err := db.Transaction(t.Context(), func(tx *database.DB) error {
			if err := tx.Exec("UPDATE plants SET name = 'Moss'").Error; err != nil {
				return err
			}
			for _, replace := range []bool{false, true} {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				report, err := store.Import(ctx, replacing(replace, func(yield func(models.ImportRow[models.Plant], error) bool) {
					for i, name := range []string{"Fern", "Ivy", "Fern", "Fern"} {
						if !yield(models.ImportRow[models.Plant]{Line: i + 1, Row: models.Plant{ID: int64(i) % 3, Name: name}}, nil) {
							return
						}
					}
				}), models.ImportOptions{DryRun: true, Partial: true})
				got := models.ImportReport{Rows: report.Rows, Created: report.Created, Replaced: report.Replaced, Unchanged: report.Unchanged, Rejected: report.Rejected}
				want := models.ImportReport{Rows: 4, Created: 1, Unchanged: 2, Rejected: 1}
				if replace {
					want.Replaced, want.Rejected = 1, 0
				}
				if err != nil || report.Stored || got.Created != want.Created || got.Replaced != want.Replaced || got.Unchanged != want.Unchanged || got.Rejected != want.Rejected {
					t.Errorf("with replace %v: got %+v, %v, want %+v", replace, got, err, want)
				}
			}
			return undo
		})
		if !errors.Is(err, undo) {
			t.Error(err)
		}
	})
}

// TestScanEnds: a search on SQLite that has found a row ends with its context, too.
func TestScanEnds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		if !strings.HasPrefix(url, "sqlite:") {
			t.Skip("PostgreSQL ends a query itself")
		}
		db := dbtest.Prepared(t, dbtest.Options(url))
		store := models.NewPlantStore(db)
		err := db.Exec(`WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 300000)
			INSERT INTO plants (id, name, created_at, updated_at) SELECT n, CASE n WHEN 1 THEN 'Ivy' ELSE 'Fern' END, '2026-01-01 00:00:00+00:00', '2026-01-01 00:00:00+00:00' FROM numbers`).Error
		if err != nil {
			t.Fatal(err)
		}
		filter := models.Filter[int64]{Where: []models.Comparison{{Column: "name", Operator: models.Contains, Values: []any{"ivy"}}}, Limit: 10, Scan: true}
		rows, err := store.List(t.Context(), filter)
		if err != nil || len(rows) != 1 || rows[0].ID != 1 || rows[0].CreatedAt.Year() != 2026 {
			t.Fatalf("got %+v, %v", rows, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if rows, err := store.List(ctx, filter); err == nil {
			t.Errorf("got %+v, want the end of the context", rows)
		}
	})
}
