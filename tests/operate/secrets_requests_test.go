package operate

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"

	"plantstore/tests/service"
)

// sendTokens sends valid and invalid tokens.
func (h *hunt) sendTokens() {
	reader, admin := h.issue("plants:read"), h.issue("admin")
	_, otherKey, err := ed25519.GenerateKey(nil)
	service.Must(h.t, err)
	for _, test := range []struct {
		name, method, path, token string
		code                      int
	}{
		{name: "a static token", method: "GET", path: "/plants", token: h.static},
		{name: "an issued token", method: "GET", path: "/plants", token: reader},
		{name: "a JWT", method: "GET", path: "/plants", token: h.signed("a JWT", "someone", h.key)},
		{name: "a wrong token", method: "GET", path: "/plants", token: h.plant("a wrong token"), code: 40102},
		{name: "a mistyped issued token", method: "GET", path: "/plants", token: h.add("a mistyped token", service.Mistype(reader)), code: 40102},
		{name: "an issued token of another service", method: "GET", path: "/plants", token: h.add("a token from elsewhere", service.IssueElsewhere(h.t)), code: 40102},
		{name: "a JWT with a wrong signature", method: "GET", path: "/plants", token: h.signed("a wrong JWT", h.plant("an unverified subject"), otherKey), code: 40102},
		{name: "two tokens", method: "GET", path: "/plants", token: h.static + " " + reader, code: 40102},
		{name: "a token without the scope", method: "POST", path: "/plants", token: reader, code: 40301},
		{name: "a JWT without the scope", method: "POST", path: "/plants", token: h.signed("another JWT", "someone", h.key), code: 40301},
		{name: "a token in the query", method: "GET", path: "/plants?token=" + h.plant("a token in the query"), token: reader, code: 40007},
		{name: "a token only in the query", method: "GET", path: "/plants?access_token=" + admin, code: 40101},
		{name: "no such path", method: "GET", path: "/nothing?token=" + h.plant("a query of no path"), token: h.static, code: 40402},
		{name: "no such method", method: "PUT", path: "/plants?token=" + h.plant("a query of no method"), token: h.static, code: 40501},
		{name: "a token in the path", method: "DELETE", path: "/tokens/" + reader, token: admin, code: 40007},
		{name: "a token for an id", method: "GET", path: "/plants/" + admin, token: admin, code: 40007},
		{name: "a token for a path", method: "GET", path: "/" + admin, token: admin, code: 40402},
		{name: "a token for a parameter", method: "GET", path: "/plants?" + admin + "=1", token: admin, code: 40007},
	} {
		h.want(test.name, h.send(test.method, test.path, test.token, `{"id":1}`), test.code)
	}
	// Tokens, and parts of them, in each part of a request that could be logged.
	signed := h.signed("a JWT elsewhere", "someone", h.key)
	for name, secret := range map[string]string{"a static token": h.static, "an issued token": reader, "a JWT": signed} {
		for what, text := range map[string]string{
			"": secret, ", percent-encoded": percentEncoded(secret), ", percent-encoded twice": percentEncoded(percentEncoded(secret)),
			", its first half": secret[:len(secret)/2], ", its second half": secret[len(secret)/2:], ", its last quarter": secret[len(secret)*3/4:],
		} {
			h.want(name+" for an id"+what, h.send("GET", "/plants/"+text, h.static, ""), 40007)
			h.want(name+" for a path"+what, h.send("GET", "/"+text, h.static, ""), 40402)
			h.want(name+" below a path"+what, h.send("POST", "/plants/7/"+text+"/", "", ""), 40402)
			h.want(name+" for the id of a token"+what, h.send("DELETE", "/tokens/"+text, h.static, ""), 40007)
			h.want(name+" for a page"+what, h.send("GET", "/swagger/"+text, "", ""), 40402)
		}
		for _, part := range []string{secret, secret[:min(len(secret), 64)], secret[:20], secret[len(secret)/2:], secret[len(secret)-16:]} {
			h.want(name+" for a request id", h.send("GET", "/plants", secret, "", "X-Request-ID", part), 0)
			h.want(name+" for a method", h.send(part, "/plants", secret, ""), 40501)
			h.send("GET", "/plants", secret, "", part, part, "User-Agent", part, "Host", part)
		}
	}
	h.want("a token of another for a request id", h.send("GET", "/plants", reader, "", "X-Request-ID", h.static[5:30]), 0)
	h.want("a token for a request id", h.send("GET", "/plants", reader, "", "X-Request-ID", reader), 0)
	h.want("a token for a field", h.send("POST", "/plants", admin, `{"`+admin+`":1}`), 40002)
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + newCanary()))
	h.add("a password of another scheme", basic)
	h.want("another scheme", h.send("GET", "/plants", "", "", "Authorization", "Basic "+basic), 40101)

	// Tokens are also created and revoked by requests.
	created, err := h.service.TryOn(service.Connections, "POST", "/tokens",
		strings.NewReader(`{"name":"`+h.data("the name of a token")+`","scopes":["plants:write"]}`), service.As(admin)...)
	if err != nil || created.Status != 200 {
		h.t.Fatalf("got %v, %v, want 200", created, err)
	}
	_, secret, _ := strings.Cut(created.Body, `"token":"`)
	issued := h.add("a token issued by a request", secret[:len(admin)])
	h.want("it writes", h.send("POST", "/plants", issued, `{"id":1,"name":"x"}`), 0)
	h.send("DELETE", "/tokens/"+service.PrefixOf(issued), admin, "").CheckEmpty(h.t, 204)
	for field, body := range map[string]string{
		"expires_at": `{"name":"x","scopes":["admin"],"expires_at":"%s"}`,
		"scopes":     `{"name":"x","scopes":["%s"]}`,
	} {
		h.want(field, h.send("POST", "/tokens", admin, fmt.Sprintf(body, h.plant(field))), 40006)
	}
	for n := 0; n < 300 && !h.codes[42901]; n++ { // on a slow machine, the limit grows again meanwhile
		h.send("GET", "/plants", h.plant("a wrong token of many"), "")
	}
	if !h.codes[42901] {
		h.t.Error("got no 42901, want a limit of wrong tokens")
	}
}

// percentEncoded returns text with each byte percent-encoded.
func percentEncoded(text string) string {
	var encoded strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&encoded, "%%%02X", text[i])
	}
	return encoded.String()
}

// sendBodies sends valid and invalid bodies.
func (h *hunt) sendBodies() {
	name, tag := h.data("a name"), h.data("a tag")
	h.stored = tag
	plant := fmt.Sprintf(`{"id":7,"name":"%s","tag":"%s"}`, name, tag)
	search := "/plants?tag=" + h.data("a tag that is looked for") + "&q=" + h.data("a name that is looked for")
	for _, test := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
	}{
		{name: "a plant", method: "POST", path: "/plants", body: plant},
		{name: "the same plant", method: "POST", path: "/plants", body: plant, code: 40902},
		{name: "another plant", method: "POST", path: "/plants", body: `{"id":7,"name":"` + h.data("another name") + `"}`, code: 40901},
		{name: "a search", method: "GET", path: search},
		{name: "a search with too much", method: "GET", path: search + "&key=" + h.plant("a parameter"), code: 40007},
		{name: "a new name", method: "PATCH", path: "/plants/7", body: `{"name":"` + h.data("a new name") + `"}`},
		{name: "no JSON", method: "POST", path: "/plants", body: `{"id":8,"name":` + h.plant("no JSON"), code: 40001},
		{name: "an unknown field", method: "POST", path: "/plants", body: `{"id":8,"name":"x","password":"` + h.plant("an unknown field") + `"}`, code: 40002},
		{name: "a field twice", method: "POST", path: "/plants", body: `{"id":8,"id":9,"name":"` + h.plant("a name beside an id twice") + `"}`, code: 40003},
		{name: "a wrong type", method: "POST", path: "/plants", body: `{"id":8,"name":["` + h.plant("a list for a name") + `"]}`, code: 40004},
		{name: "no integer", method: "POST", path: "/plants", body: `{"id":"` + h.plant("a text for an id") + `","name":"x"}`, code: 40005},
		{name: "a long name", method: "POST", path: "/plants", body: `{"id":8,"name":"` + strings.Repeat(h.plant("a long name"), 9) + `"}`, code: 40006},
		{name: "a large body", method: "POST", path: "/plants", body: strings.Repeat(h.plant("a large body"), 2000), code: 41301},
		{name: "another type of body", method: "POST", path: "/plants", body: h.plant("another type of body"), headers: []string{"Content-Type", "text/" + h.plant("a type")}, code: 41501},
		{name: "a bad condition", method: "DELETE", path: "/plants/7", headers: []string{"If-Match", h.plant("a bad condition")}, code: 40007},
		{name: "a condition", method: "DELETE", path: "/plants/7", headers: []string{"If-Match", `"` + h.plant("a condition") + `"`}, code: 41201},
		{name: "no plant", method: "GET", path: "/plants/99", code: 40401},
		{
			name: "an import", method: "POST", path: "/plants/import", body: fmt.Sprintf("id,name,tag\n20,%s,%s\n", h.data("a cell"), h.data("another cell")),
			headers: []string{"Content-Type", "text/csv"},
		},
		{
			name: "an import of bad rows", method: "POST", path: "/plants/import", body: fmt.Sprintf("id,name,tag\n%s,x,\n21,,%s\n22,\"%s\"x,\n20,%s,\n", h.plant("a cell for an id"),
				h.plant("a cell beside a bad one"), h.plant("a cell with a quote out of place"), h.plant("a cell of an id that is taken")),
			headers: []string{"Content-Type", "text/csv"},
			code:    40005,
		},
		{
			name: "an import that is cut off", method: "POST", path: "/plants/import", body: "id,name,tag\n23,\"" + h.plant("a cell without an end"),
			headers: []string{"Content-Type", "text/csv"},
			code:    40001,
		},
		{
			name: "an import of an unknown column", method: "POST", path: "/plants/import?mode=partial", body: "id,name,tag\n" + strings.Repeat(h.plant("a long line"), 3000),
			headers: []string{"Content-Type", "text/csv"},
			code:    41301,
		},
		{name: "an import of bad lines", method: "POST", path: "/plants/import", body: fmt.Sprintf("{\"id\":\"%s\"}\n%s\n{\"name\":\"%[1]s\",\"secret\":\"%[2]s\"}\n",
			h.plant("a line's id"), h.plant("a line that is no JSON")), headers: []string{"Content-Type", "application/x-ndjson"}, code: 40005},
		{name: "an export", method: "GET", path: "/plants/export"},
		{name: "every token", method: "GET", path: "/tokens"},
		{name: "the document", method: "GET", path: "/openapi.json"},
		{name: "whether it is ready", method: "GET", path: "/readyz"},
	} {
		h.want(test.name, h.send(test.method, test.path, h.static, test.body, test.headers...), test.code)
	}
}

// provokeFaults provokes internal errors and malformed HTTP.
func (h *hunt) provokeFaults() {
	db := service.OpenTable(h.t, h.databaseURL)
	run := func(statements, table string) {
		for statement := range strings.SplitSeq(statements, ";") {
			if _, err := db.ExecContext(h.t.Context(), fmt.Sprintf(statement, table)); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	spoil, mend := "ALTER TABLE %s RENAME TO gone", "ALTER TABLE gone RENAME TO %s"
	if !strings.HasPrefix(h.databaseURL, "sqlite:") { // whose errors about a row have its values
		spoil = "ALTER TABLE %[1]s ADD COLUMN extra text NOT NULL DEFAULT '';ALTER TABLE %[1]s ALTER COLUMN extra DROP DEFAULT"
		mend = "ALTER TABLE %s DROP COLUMN extra"
	}
	for _, table := range []string{"plants", "tokens"} {
		run(spoil, table)
		body := `{"id":30,"name":"` + h.data("a name that cannot be stored") + `"}`
		if table == "tokens" {
			body = `{"name":"` + h.data("a token's name that cannot be stored") + `","scopes":["admin"]}`
		}
		h.want("a table that takes no row", h.send("POST", "/"+table, h.static, body), 50001)
		run(mend, table)
	}
	for what, text := range map[string]string{
		"a bad line":       "GET /plants?token=" + h.plant("a bad line") + "\r\n\r\n",
		"a bad header":     "GET /plants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + h.plant("a token above a bad header") + "\r\nX " + h.plant("a bad header") + "\r\n\r\n",
		"a large header":   "GET /plants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + strings.Repeat(h.plant("a large token"), 1000) + "\r\n\r\n",
		"half a body":      "POST /plants HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " + h.static + "\r\nContent-Length: 100\r\n\r\n{\"name\":\"" + h.plant("half a body"),
		"a bad chunk":      "POST /plants HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " + h.static + "\r\nTransfer-Encoding: chunked\r\n\r\n" + h.plant("a bad chunk") + "\r\n",
		"half an import":   "POST /plants/import HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " + h.static + "\r\nContent-Type: text/csv\r\nContent-Length: 100\r\n\r\nid,name\n1," + h.plant("half an import"),
		"a method":         h.plant("a method") + " /plants HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"a method of half": h.static[:20] + " /plants HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"a host":           "GET /plants HTTP/1.1\r\nHost: " + h.plant("a host") + "\r\nConnection: close\r\n\r\n",
		"a bad host":       "GET /plants HTTP/1.1\r\nHost: /" + h.plant("a bad host") + "\r\nConnection: close\r\n\r\n",
		"a whole URL":      "GET http://" + h.plant("the host of a URL") + "/" + h.plant("the path of a URL") + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"an authority":     "CONNECT " + h.plant("an authority") + ":443 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"a bad length":     "POST /plants HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + h.plant("a bad length") + "\r\n\r\n",
		"a bad encoding":   "POST /plants HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " + h.plant("a bad encoding") + "\r\n\r\n",
		"a bad version":    "GET /plants HTTP/" + h.plant("a bad version") + "\r\n\r\n",
		"a TLS connection": "\x16\x03\x01\x00\x05" + h.plant("a TLS record") + "\r\n\r\n",
	} {
		conn := h.service.Dial(h.t)
		// If the service closes early, the rest of the text does not arrive.
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(conn)
		if len(got) == 0 && what != "a large header" {
			h.t.Errorf("%s: got no response", what)
		}
		h.responses = append(h.responses, string(got))
	}
}
