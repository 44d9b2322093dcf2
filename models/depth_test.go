package models_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"
	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/dialect"
	"plantstore/database/sqlite"
	"plantstore/database/table"
	"plantstore/models"
)

// probe is a dialect that records the calls above Run.
type probe struct {
	dialect.Dialect
	calls []string // innermost first
}

func (p *probe) Run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) error {
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	p.calls = nil
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		p.calls = append(p.calls, frame.Function)
	}
	return p.Dialect.Run(ctx, conn, groups)
}

// TestCallsBelowCreate: a newcomer can follow a POST from the controller to the statement.
func TestCallsBelowCreate(t *testing.T) {
	const most = 14
	o := dbtest.Options(dbtest.SQLite(t))
	file, err := sqlite.Open(t.Context(), sqlite.Options{Path: strings.TrimPrefix(o.URL, "sqlite:"), Timeout: o.Timeout}, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{Dialect: file}
	db, err := database.New(p, o, dbtest.Batches, models.Tables(), zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Schema().Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := models.NewPlantStore(db).Create(t.Context(), &models.Plant{ID: 1, Name: "Monstera"}); err != nil {
		t.Fatal(err)
	}
	depth := 0
	for i, call := range p.calls {
		if strings.HasSuffix(call, ").Create") {
			depth = i + 1
		}
	}
	if depth == 0 || depth > most {
		t.Errorf("got %d calls, want 1 to %d", depth, most)
	}
	t.Logf("%d calls, innermost first:\n%s", depth, strings.Join(p.calls[:depth], "\n"))
}
