package models_test

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/models"
)

// edits returns rows of an import, with what to do with each.
func edits[T any](rows []T, all ...models.Edit) iter.Seq2[models.ImportRow[T], error] {
	return func(yield func(models.ImportRow[T], error) bool) {
		for i, e := range all {
			if !yield(models.ImportRow[T]{Line: i + 1, Row: rows[i], Edit: e}, nil) {
				return
			}
		}
	}
}

// rejections returns what a report says about rejected rows.
func rejections(r models.ImportReport) string {
	texts := []string{}
	for _, rejected := range r.Errors {
		texts = append(texts, fmt.Sprintf("%d %v", rejected.Line, rejected.Err))
	}
	return strings.Join(texts, "; ")
}

// TestImportOfBrokenEdits deletes rows to which other rows refer, and merges what a constraint rejects.
func TestImportOfBrokenEdits(t *testing.T) {
	for _, o := range []models.ImportOptions{{}, {Partial: true}, {DryRun: true}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			eachNursery(t, func(t *testing.T, n nursery) {
				remove := models.Edit{Kind: models.Delete}
				report, err := n.growers.Import(t.Context(), edits([]grower{{ID: 1}, {ID: 2}, {ID: 9}}, remove, remove, remove), o)
				if err != nil || report.Deleted != 1 || report.Unchanged != 1 || report.Rejected != 1 {
					t.Fatalf("got %+v, %v, want that only line 1 is rejected", report, err)
				}
				if broken, ok := errors.AsType[*fault.ReferenceError](report.Errors[0].Err); !ok || broken.Row != "grower 1" || !broken.Deleted {
					t.Errorf("got %+v, want a reference to grower 1", broken)
				}
				if _, err := n.growers.Get(t.Context(), 2); (err != nil) != report.Stored {
					t.Errorf("grower 2: got %v, and stored %v", err, report.Stored)
				}
				merge := func(columns string) models.Edit { return models.Edit{Kind: models.Merge, Columns: columns} }
				report, err = n.seedlings.Import(t.Context(), edits([]seedling{{ID: 1, Height: 100}, {ID: 2, Label: new("second")}, {ID: 9, Label: new("new")}, {ID: 10, Height: 1}},
					merge("height"), merge("label"), merge("label"), merge("height")), o)
				got := rejections(report)
				if err != nil || report.Merged != 1 || report.Created != 1 || report.Rejected != 2 || !strings.Contains(got, "height is required, as there is no seedling 9 yet") {
					t.Errorf("got %+v, %s, %v, want that the lines 1 and 3 are rejected", report, got, err)
				}
			})
		})
	}
}

// TestEditBesideWrites deletes the rows with a name while another client renames them: a row that is renamed stays.
func TestEditBesideWrites(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, _ *database.DB) {
		const rows = 300
		var all []models.Plant
		for id := range int64(rows) {
			all = append(all, models.Plant{ID: id, Name: "a"})
		}
		importAll(t, store, models.ImportOptions{}, all...)
		named := models.Filter[int64]{Where: []models.Comparison{{Column: "name", Operator: "=", Values: []any{"a"}}}, Scan: true, Limit: rows}
		var renamed []int64
		inParallel(2, func(i int) {
			if i == 1 {
				if report, err := store.Edit(t.Context(), named, new(models.Plant), models.Edit{Kind: models.Delete}, models.ImportOptions{}); err != nil || report.Rejected == 0 != report.Stored {
					t.Errorf("got %+v, %v", report, err)
				}
				return
			}
			for id := range int64(rows) {
				_, err := store.Patch(t.Context(), &models.Plant{ID: rows - 1 - id, Name: "b"}, []string{"name"}, models.Condition{})
				if _, absent := errors.AsType[*models.NotFoundError](err); err == nil {
					renamed = append(renamed, rows-1-id)
				} else if !absent {
					t.Error(err)
				}
			}
		})
		for _, id := range renamed {
			if _, err := store.Get(t.Context(), id); err != nil {
				t.Errorf("plant %d was renamed: got %v", id, err)
			}
		}
	})
}
