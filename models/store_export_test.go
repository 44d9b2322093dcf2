package models_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"plantstore/database/dbtest"
	"plantstore/models"
)

// TestSlowExport: an export whose client does not read ends its snapshot after a few
// seconds, so that SQLite's WAL does not grow with what is written meanwhile, and is still
// complete and of one moment.
func TestSlowExport(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		store := models.NewPlantStore(db)
		const plants = 5000
		tags := [2]string{"", "tag"}
		for id := range int64(plants) {
			plant := models.Plant{ID: id, Name: fmt.Sprintf("plant %d", id)}
			if id%3 > 0 {
				plant.Tag = &tags[id%3-1]
			}
			if err := db.WithContext(t.Context()).Create(&plant).Error; err != nil {
				t.Fatal(err)
			}
		}
		started, resume, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		next := int64(0)
		go func() {
			ended <- store.Export(t.Context(), models.Filter[int64]{}, models.Each(func(p *models.Plant) error {
				if next == 0 {
					close(started)
					<-resume
				}
				tag := "none"
				if p.Tag != nil {
					tag = *p.Tag
				}
				if want := []string{"none", "", "tag"}[next%3]; p.ID != next || p.Name != fmt.Sprintf("plant %d", next) || tag != want {
					return fmt.Errorf("row %d: got %d, %q, %q", next, p.ID, p.Name, tag)
				}
				next++
				return nil
			}))
		}()
		<-started
		if _, err := store.Create(t.Context(), &models.Plant{ID: plants, Name: "later"}); err != nil {
			t.Fatal(err)
		}
		if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
			awaitShortWAL(t, path, func() error { return db.Exec("INSERT INTO filler VALUES (zeroblob(8000000))").Error },
				db.Exec("CREATE TABLE filler (value BLOB)").Error)
		}
		close(resume)
		if err := <-ended; err != nil || next != plants {
			t.Errorf("got %d plants, %v, want %d", next, err, plants)
		}
	})
}

// awaitShortWAL writes until the WAL of the database at path is long, and waits until it is
// short again.
func awaitShortWAL(t *testing.T, path string, write func() error, err error) {
	t.Helper()
	const long = 64 << 20
	for deadline, wasLong := time.Now().Add(time.Minute), false; err == nil; {
		info, statErr := os.Stat(path + "-wal")
		switch {
		case statErr != nil:
			err = statErr
		case info.Size() > long:
			wasLong = true
			time.Sleep(50 * time.Millisecond)
		case wasLong:
			return
		default:
			err = write()
		}
		if time.Now().After(deadline) {
			t.Fatalf("the WAL has %d bytes (long: %v)", info.Size(), wasLong)
		}
	}
	t.Fatal(err)
}

// TestExportPanics: a panic ends the export, and not the process.
func TestExportPanics(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		store := models.NewPlantStore(db)
		panics := true
		err := db.Reads(t.Context()).Callback().Row().Before("gorm:row").Register("panic", func(*gorm.DB) {
			if panics {
				panic("a fault")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		export := func() error {
			return store.Export(t.Context(), models.Filter[int64]{}, models.Each(func(*models.Plant) error { return nil }))
		}
		if err := export(); err == nil || !strings.Contains(err.Error(), "panic in an export: a fault") {
			t.Errorf("got %v, want the panic", err)
		}
		panics = false
		for range 5 { // more than one client may run: the panic left nothing behind
			if err := export(); err != nil {
				t.Errorf("afterwards: got %v", err)
			}
		}
	})
}
