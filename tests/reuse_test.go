package tests

import (
	"net/http"
	"testing"

	"plantstore/database/dbtest"
)

// TestReusedConnections ends requests by the end of their token or of their time, and sends
// another one over the same transport, as a proxy does for another client.
func TestReusedConnections(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	patient := start(t, "DATABASE_URL="+url)
	hasty := start(t, "DATABASE_URL="+url, "PLANTSTORE_BULK_TIMEOUT=1s")
	dbtest.Exec(t, url, "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END'")
	dbtest.Exec(t, url, "CREATE TRIGGER wait BEFORE INSERT ON plants FOR EACH STATEMENT EXECUTE FUNCTION wait()")
	for _, test := range []struct {
		name         string
		service      *service
		method, path string
		body         string
		code         int
	}{
		{"a token that ends while it waits for changes", patient, "GET", "/plants/changes?wait=30s", "", 40102},
		{"a token that ends while an import is stored", patient, "POST", "/plants/import", "id,name\n1,Aloe\n", 40102},
		{"an import that takes too long", hasty, "POST", "/plants/import", "id,name\n1,Aloe\n", 41301},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			issued := issue(t, url, "--expires", "3s")
			transport := &http.Transport{MaxConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			checkError(t, test.service.over(t, transport, test.method, test.path, test.body, as(issued, "Content-Type", "text/csv")...), test.code)
			for range 3 {
				checkStatus(t, test.service.over(t, transport, "GET", "/plants", "", as(token)...), 200)
			}
		})
	}
}
