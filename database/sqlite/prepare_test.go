package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"plantstore/database/table"
)

// TestFewStatementsStayPrepared: clients choose the texts of lists, by the filters that they combine.
func TestFewStatementsStayPrepared(t *testing.T) {
	d, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "plants.db"), Timeout: time.Minute}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	_, reads := d.Pools()
	for range 2 {
		for want := range maxPrepared + 10 {
			var got int
			err := d.Query(t.Context(), reads, fmt.Sprintf("SELECT %d", want), nil, func(rows table.Rows) error {
				rows.Next()
				return rows.Scan(&got)
			})
			if err != nil || got != want {
				t.Fatalf("got %d, %v, want %d", got, err, want)
			}
		}
	}
	kept := 0
	d.prepared.Range(func(any, any) bool { kept++; return true })
	if kept != maxPrepared {
		t.Errorf("got %d prepared statements, want %d", kept, maxPrepared)
	}
}
