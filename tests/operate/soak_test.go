//go:build soak

package operate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestSoak keeps a service under load, and compares what it uses in the last quarter of the
// time with the first. The first tenth, in which caches and pools fill up, does not count. It
// has a tag of its own, since a trend does not show in seconds.
func TestSoak(t *testing.T) {
	const busy, samples, span = 32, 40, 10 * time.Minute
	s := service.StartPlain(t, "DATABASE_URL="+dbtest.Postgres(t), "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")
	admin := s.Admin(t)
	l := s.StartTraffic(t, busy)
	uses := []struct {
		name, metric string
		unit         float64
		values       []float64
	}{
		{"memory in MiB", "process_resident_memory_bytes", 1 << 20, nil},
		{"goroutines", "go_goroutines", 1, nil},
		{"connections to PostgreSQL", `go_sql_open_connections{db_name="plantstore"}`, 1, nil},
		{"open files", "process_open_fds", 1, nil},
	}
	ticker := time.NewTicker(span * 9 / 10 / samples)
	defer ticker.Stop()
	for begin := time.Now(); time.Since(begin) < span; <-ticker.C {
		if time.Since(begin) < span/10 {
			continue
		}
		metrics := admin.Get(t, "/metrics").Body
		for i := range uses {
			uses[i].values = append(uses[i].values, service.ValueOf(t, metrics, uses[i].metric)/uses[i].unit)
		}
	}
	served := l.End()

	var table strings.Builder
	for _, use := range uses {
		fmt.Fprintf(&table, "| %s |", use.name)
		var medians []float64
		for quarter := range slices.Chunk(use.values, (len(use.values)+3)/4) {
			median := slices.Sorted(slices.Values(quarter))[len(quarter)/2]
			medians = append(medians, median)
			fmt.Fprintf(&table, " %.0f |", median)
		}
		first, last := medians[0], medians[len(medians)-1]
		fmt.Fprintf(&table, " %+.0f %% |\n", 100*(last/first-1))
		if most := max(first/10, 1); math.Abs(last-first) > most { // one of ten connections is no trend
			t.Errorf("%s: got %v, want a change of at most %.1f", use.name, medians, most)
		}
	}
	service.Record(t, "## Soak\n\n`TestSoak`: %d clients sent %d requests in %s. The medians of the four quarters after the first tenth:\n\n"+
		"| | 1 | 2 | 3 | 4 | change |\n| --- | --- | --- | --- | --- | --- |\n%s", busy, served, span, table.String())
}
