package models_test

import (
	"context"
	"errors"
	"strings"
	"sync"
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

// TestImportsWaitForTheirTurn: the client has sent the whole file by then, and others may need
// minutes. Exports, which have sent nothing, do not wait for that.
func TestImportsWaitForTheirTurn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Prepared(t, dbtest.Options(url))
		store := models.NewPlantStore(db)
		as := func(client string) context.Context { return database.WithClient(t.Context(), client) }
		end := make(chan struct{})
		var others sync.WaitGroup
		running := make(chan struct{}, 3)
		for _, client := range []string{"a", "a", "b"} {
			others.Go(func() {
				if err := db.WriteBulk(as(client), "import", func() error { running <- struct{}{}; <-end; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		for range 3 {
			<-running
		}
		sent, outcome := make(chan struct{}), make(chan error)
		go func() {
			_, err := store.Import(as("c"), func(yield func(models.ImportRow[models.Plant], error) bool) {
				yield(models.ImportRow[models.Plant]{Line: 1, Row: models.Plant{ID: 1, Name: "Fern"}}, nil)
				close(sent)
			}, models.ImportOptions{})
			outcome <- err
		}()
		<-sent
		if err := store.Export(as("d"), models.Filter[int64]{}, func(*models.Plant) error { return nil }); !errors.Is(err, database.ErrOverloaded) {
			t.Errorf("an export: got %v, want ErrOverloaded", err)
		}
		select {
		case err := <-outcome:
			t.Errorf("an import: got %v before its turn", err)
		default:
			close(end)
			if err := <-outcome; err != nil {
				t.Errorf("an import: got %v", err)
			}
		}
		others.Wait()
		if _, err := store.Get(t.Context(), 1); err != nil {
			t.Error(err)
		}
	})
}
