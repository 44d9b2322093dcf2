package models_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/database/fault"
	"plantstore/database/limit"
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
		load := func(n int64, replace bool) error {
			_, err := store.Import(limit.WithClient(t.Context(), "a"), replacing(replace, func(yield func(models.ImportRow[models.Plant], error) bool) {
				for id := range n {
					if !yield(models.ImportRow[models.Plant]{Line: int(id) + 1, Row: models.Plant{ID: id, Name: long, Tag: &long}}, nil) {
						return
					}
				}
			}), models.ImportOptions{})
			return err
		}
		for name, replace := range map[string]bool{"plain": false, "replacing": true} {
			t.Run(name, func(t *testing.T) {
				for range 3 {
					if err := load(10, replace); err != nil {
						t.Errorf("a small import: got %v", err)
					}
					if err := load(6000, replace); !errors.Is(err, models.ErrNoRoom) { // 3 MB
						t.Errorf("a large import: got %v, want ErrNoRoom", err)
					}
				}
			})
		}
	})
}

// TestImportsWaitForTheirTurn: the client has sent the whole file by then. They leave room for
// exports, and an import whose time ends before its turn fails with ErrShare.
func TestImportsWaitForTheirTurn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Prepared(t, dbtest.Options(url))
		store := models.NewPlantStore(db)
		end, running := make(chan struct{}), make(chan struct{})
		var others sync.WaitGroup
		for _, client := range []string{"a", "b"} {
			others.Go(func() {
				hold := func() error { running <- struct{}{}; <-end; return nil }
				if err := db.WriteBulk(limit.WithClient(t.Context(), client), "import", hold); err != nil {
					t.Error(err)
				}
			})
			<-running
		}
		load := func(ctx context.Context, id int64) error {
			_, err := store.Import(limit.WithClient(ctx, "c"), func(yield func(models.ImportRow[models.Plant], error) bool) {
				yield(models.ImportRow[models.Plant]{Line: 1, Row: models.Plant{ID: id, Name: "Fern"}}, nil)
			}, models.ImportOptions{})
			return err
		}
		short, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("too long"))
		defer cancel()
		if err := load(short, 1); !errors.Is(err, limit.ErrBusy) || errors.Is(err, fault.ErrUnavailable) {
			t.Errorf("an import that does not get its turn: got %v, want ErrBusy", err)
		}
		outcome := make(chan error, 1)
		go func() { outcome <- load(t.Context(), 2) }()
		if err := store.Export(limit.WithClient(t.Context(), "d"), models.Filter[int64]{}, models.Each(func(*models.Plant) error { return nil })); err != nil {
			t.Errorf("an export: got %v", err)
		}
		select {
		case err := <-outcome:
			t.Errorf("an import: got %v before its turn", err)
		case <-time.After(50 * time.Millisecond):
		}
		close(end)
		if err := <-outcome; err != nil {
			t.Errorf("an import in its turn: got %v", err)
		}
		others.Wait()
		if _, err := store.Get(t.Context(), 2); err != nil {
			t.Error(err)
		}
	})
}
