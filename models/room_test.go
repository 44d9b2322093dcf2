package models_test

import (
	"errors"
	"strings"
	"testing"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/models"
)

// TestRoomForTemporaryFiles: the files of a token may take half of database.temporary_bytes, and
// give it back.
func TestRoomForTemporaryFiles(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		o := dbtest.Options(url)
		o.TemporaryBytes = 4 << 20
		store := models.NewPlantStore(dbtest.Prepared(t, o))
		long := strings.Repeat("x", 250)
		load := func(n int64, o models.ImportOptions) error {
			_, err := store.Import(database.WithClient(t.Context(), "a"), func(yield func(models.ImportRow[models.Plant], error) bool) {
				for id := range n {
					if !yield(models.ImportRow[models.Plant]{Line: int(id) + 1, Row: models.Plant{ID: id, Name: long, Tag: &long}}, nil) {
						return
					}
				}
			}, o)
			return err
		}
		for name, options := range map[string]models.ImportOptions{"plain": {}, "replacing": {Replace: true}} {
			t.Run(name, func(t *testing.T) {
				for range 3 {
					if err := load(10, options); err != nil {
						t.Errorf("a small import: got %v", err)
					}
					if err := load(6000, options); !errors.Is(err, database.ErrShare) { // 3 MB
						t.Errorf("a large import: got %v, want ErrShare", err)
					}
				}
			})
		}
	})
}
