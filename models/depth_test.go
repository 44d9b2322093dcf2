package models_test

import (
	"context"
	"runtime"
	"slices"
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

// callers returns its caller and the functions above it, innermost first, up to the first that is not of this program.
func callers() (calls []string) {
	above := make([]uintptr, 100)
	frames := runtime.CallersFrames(above[:runtime.Callers(2, above)])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if !strings.HasPrefix(frame.Function, "plantstore/") {
			break
		}
		calls = append(calls, frame.Function)
	}
	return calls
}

// probe is a dialect that records the calls above Run.
type probe struct {
	dialect.Dialect
	calls []string
}

func (p *probe) Run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) error {
	p.calls = callers()
	return p.Dialect.Run(ctx, conn, groups)
}

// waiting is a context that records the calls above a batch, which has a stack of its own.
type waiting struct {
	context.Context //nolint:containedctx // it is a context
	calls           []string
}

func (w *waiting) Err() error {
	if calls := callers(); len(calls) > 1 && strings.HasSuffix(calls[1], "runAlone") {
		w.calls = calls[1:]
	}
	return w.Context.Err()
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
	if err := db.Schema.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &waiting{Context: t.Context()}
	if _, err := models.NewPlantStore(db).Create(w, &models.Plant{ID: 1, Name: "Monstera"}); err != nil {
		t.Fatal(err)
	}
	calls, depth := slices.Concat(p.calls, w.calls), 0
	for i, call := range calls {
		if strings.HasSuffix(call, ").Create") {
			depth = i + 1
		}
	}
	if depth == 0 || depth > most {
		t.Errorf("got %d calls, want 1 to %d", depth, most)
	}
	t.Logf("%d calls, innermost first:\n%s", depth, strings.Join(calls[:depth], "\n"))
}
