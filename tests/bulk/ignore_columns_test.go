package bulk

import (
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestIgnoredColumns: an import does not read the columns in ignore_columns.
func TestIgnoredColumns(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			name, query, contentType, body string
			code                           int
			want                           string
		}{
			{"further columns", "?ignore_columns=price,supplier", service.InCSV, "price,id,supplier,name\n9,1,x,a\n,2,y,b\n", 0, "2: 2 new, 0 unchanged, 0 rejected, stored"},
			{"a column of plants", "?ignore_columns=tag", service.InCSV, "id;name;tag\n3;c;t\n", 0, "1: 1 new, 0 unchanged, 0 rejected, stored"},
			{"no such column", "?ignore_columns=x", service.InCSV, "id,name\n1,a\n", 0, "1: 0 new, 1 unchanged, 0 rejected, stored"},
			{"a required column", "?ignore_columns=id", service.InCSV, "id,name\n1,a\n", 40004, "line 1: the column id is required"},
			{"another column", "?ignore_columns=price", service.InCSV, "id,name,prices\n1,a,2\n", 40002, "line 1: unknown column prices; valid columns: id,name,tag,created_at,updated_at,etag; ignore_columns names others that are not read"},
		} {
			t.Run(test.name, func(t *testing.T) {
				r := s.ImportRows(t, test.query, test.contentType, test.body)
				if test.code == 0 {
					r.CheckReport(t, 0, test.want)
				} else {
					r.CheckError(t, test.code, test.want)
				}
			})
		}
		if got, want := s.Export(t, service.InCSV), "id,name,tag\n1,a,\n2,b,\n3,c,\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
