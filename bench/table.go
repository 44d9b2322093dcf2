package main

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"
)

const (
	service = "plantstore"
	tuned   = "tuned gin+gorm" // this and the next are in bench/baseline
	direct  = "net/http+pgx"
	imports = "beside an import" // the service, as the next: see isolation.go
	rivalry = "beside an import and 12 rivals"

	million = 1_000_000
	csv     = "text/csv"
)

var baselines = []string{tuned, direct}

// existingRows is more than the requests in a turn, which may delete each row once.
const existingRows = 200_000

// operation is a request that contenders are measured with. In path and body,
// {id} stands for the id of a plant.
type operation struct {
	name, section string // the section is its name in the flag -only, with -against
	method, path  string
	contentType   string // "": JSON
	body          string
	tokens        int                 // how many of the rivals' tokens take turns; 0: the token of the other operations
	mix           []operation         // operations that take turns instead of this operation
	status        int                 // of the response
	refusals      []int               // other statuses that the response may have
	id            func(n int64) int64 // the id in the n-th request
	rows          int                 // the number of rows in the table before a turn; their ids are 1 to rows
	moves         int                 // the number of rows of an import or export; 0: another request
	idles, tls    bool                // see load.idle
}

// To add an operation, add a row here, list it in a comparison, and add a handler to its baselines.
var (
	create = operation{
		name: "POST /plants", section: "post", method: "POST", path: "/plants", status: 200, id: from(1 << 40), // not in the table
		body: `{"id":{id},"name":"Monstera deliciosa","tag":"houseplant"}`,
	}
	// The whole path of a POST without the database.
	noStorage = create.but(", rejected", func(o *operation) {
		o.body, o.status = `{"id":{id},"name":"","tag":"houseplant"}`, 400
	})
	duplicate = create.but(", 100 % duplicates", func(o *operation) {
		o.body, o.status = `{"id":{id},"name":"Plant {id}","tag":"houseplant"}`, 409 // as in the table
		o.id, o.rows = existing, existingRows
	})
	get    = onRow("GET", 200, "")
	put    = onRow("PUT", 200, `{"name":"Monstera deliciosa","tag":"houseplant"}`)
	patch  = onRow("PATCH", 200, `{"tag":"climber"}`)
	remove = onRow("DELETE", 204, "")
	page   = list("page of 100", "limit=100")
	// existingRows fill 10,000 pages of 20. Before the last page is the row 199980, created as prepare says.
	first     = list("page 1 by id", "limit=20")
	last      = list("page 10,000 by id", "limit=20&after=199980")
	firstTime = list("page 1 by created_at", "limit=20&sort=created_at")
	lastTime  = list("page 10,000 by created_at", "limit=20&sort=created_at&after="+
		base64.RawURLEncoding.EncodeToString([]byte(`199980 "2026-01-03T07:33:00Z"`)))

	idle    = get.but(", then idle", func(o *operation) { o.idles = true })
	idleTLS = idle.but(", TLS", func(o *operation) { o.tls = true })

	bulkImport = operation{
		name: "import of a million rows", method: "POST", path: "/plants/import", contentType: csv, status: 200, id: from(1), moves: million,
	}
	importAgain = bulkImport.but(", all exist", func(o *operation) { o.rows = million })
	export      = operation{
		name: "export of a million rows", method: "GET", path: "/plants/export", status: 200,
		id: from(1), rows: million, moves: million,
	}

	changes    = []operation{put, patch, remove}
	operations = slices.Concat([]operation{create, duplicate, get}, changes)
)

// onRow returns an operation on a row that exists. Each row is written at most once in a turn.
func onRow(method string, status int, body string) operation {
	return operation{
		name: method + " /plants/{id}", section: strings.ToLower(method), method: method, path: "/plants/{id}", status: status,
		body: body, id: existing, rows: existingRows,
	}
}

// list returns an operation that lists a page.
func list(page, query string) operation {
	return operation{name: "GET /plants, " + page, section: "list", method: "GET", path: "/plants?" + query, status: 200, id: existing, rows: existingRows}
}

// but returns the operation with a change.
func (o operation) but(suffix string, change func(*operation)) operation {
	o.name += suffix
	change(&o)
	return o
}

// by returns the cell of the operation in a comparison.
func (o operation) by(contender string, connections int) cell {
	return cell{o.name, contender, connections}
}

// existing returns each id up to existingRows once, in no order: 7919 is prime to existingRows.
func existing(n int64) int64 { return n*7919%existingRows + 1 }

// from returns ascending ids from first on. A table that prepare fills has the ids from 1 on.
func from(first int64) func(n int64) int64 { return func(n int64) int64 { return first + n } }

// comparison is a table of the results. Each contender has its own database.
type comparison struct {
	section, title string // the section is its name in the flag -only
	engine         *engine
	onDisk         bool
	operations     []operation
	contenders     []string
	connections    []int
	rounds         int           // unless the flag says otherwise; 0: defaultRounds
	duration       time.Duration // of a turn that does not move rows; 0: turn
	claims         []claim
}

var comparisons = []comparison{
	{
		section: "postgres", title: "PostgreSQL on a RAM disk", engine: postgres,
		operations: slices.Concat(operations, []operation{noStorage}), contenders: []string{service, tuned, direct}, connections: []int{64, 256},
		claims: slices.Concat(
			each(rate, 64, direct, 1.5, create), each(rate, 256, direct, 2.2, create),
			each(rate, 64, direct, 1.8, get), each(rate, 256, direct, 2.1, get),
			each(rate, 64, direct, 1.7, changes...), each(rate, 256, direct, 2.1, changes...),
			each(p99, 64, direct, 1, operations...), each(p99, 256, direct, 1, operations...),
			[]claim{{rate, create.by(service, 256), noStorage.by(service, 256), 0.88}}),
	},
	lone(postgres, service, tuned, direct), lone(sqlite, service, tuned),
	{
		section: "disk", title: "PostgreSQL on a real disk", engine: postgres, onDisk: true,
		operations: []operation{create}, contenders: []string{service, tuned, direct}, connections: []int{64},
		claims: each(rate, 64, direct, 2, create),
	},
	{
		section: "sqlite", title: "SQLite on a real disk", engine: sqlite, onDisk: true,
		operations: operations, contenders: []string{service, tuned}, connections: []int{64},
		claims: slices.Concat(each(rate, 64, tuned, 5, create), each(rate, 64, tuned, 8, changes...)),
	},
	pages(postgres), pages(sqlite),
	transfers(postgres), transfers(sqlite),
	{
		section: "isolation", title: "An import of 2 million rows and clients that write the same rows, in turns of 6 s", engine: postgres,
		operations: []operation{create, get}, contenders: []string{service, imports, rivalry}, connections: []int{32}, duration: 6 * time.Second,
		claims: []claim{
			{rate, create.by(rivalry, 32), create.by(imports, 32), 0.8},
			{p99, create.by(rivalry, 32), cell{}, 100},
			{rate, get.by(rivalry, 32), get.by(imports, 32), 0.8},
			{p99, get.by(rivalry, 32), cell{}, 100},
		},
	},
	sharing(postgres), sharing(sqlite),
	{
		section: "memory", title: "Memory over a minute", engine: postgres,
		operations: []operation{create}, contenders: []string{service}, connections: []int{256}, rounds: 1, duration: time.Minute,
		claims: []claim{{peak, create.by(service, 256), cell{}, 96}},
	},
	{
		section: "idle", title: "Idle connections", engine: postgres,
		operations: []operation{idle, idleTLS}, contenders: []string{service, direct}, connections: []int{4000},
		claims: each(kept, 4000, direct, 1.3, idle, idleTLS),
	},
}

// lone compares requests on a single connection, in more rounds: what delays the machine delays each of them.
func lone(e *engine, contenders ...string) comparison {
	return comparison{
		section: "lone", title: "A single connection, " + e.name + " on a RAM disk", engine: e,
		operations: operations, contenders: contenders, connections: []int{1}, rounds: 10,
		claims: slices.Concat(each(rate, 1, tuned, 0.97, operations...), each(p99, 1, tuned, 1.05, operations...)),
	}
}

// pages compares the first pages of lists with the last pages.
func pages(e *engine) comparison {
	return comparison{
		section: "pages", title: "Lists of 200,000 rows in pages of 20, " + e.name + " on a RAM disk", engine: e,
		operations: []operation{first, last, firstTime, lastTime}, contenders: []string{service}, connections: []int{1, 64},
		claims: []claim{
			{rate, last.by(service, 64), first.by(service, 64), 0.9},
			{rate, lastTime.by(service, 64), firstTime.by(service, 64), 0.9},
		},
	}
}

// transfers compares imports and exports.
func transfers(e *engine) comparison {
	return comparison{
		section: "bulk", title: "Import and export, " + e.name + " on a RAM disk", engine: e,
		operations: []operation{bulkImport, importAgain, export}, contenders: []string{service}, connections: []int{1},
		claims: []claim{
			{peak, bulkImport.by(service, 1), cell{}, 96},
			{peak, export.by(service, 1), cell{}, 96},
		},
	}
}

// against compares the service with a revision of it.
func against(revision string) comparison {
	return comparison{
		title: "The service and " + revision, engine: postgres,
		operations: []operation{create, get, page, put, patch, remove}, contenders: []string{revision, service}, connections: []int{1, 64, 256},
		rounds: 5,
	}
}

// each returns the claims for the ratio of the service to a contender in each operation.
func each(f figure, connections int, contender string, limit float64, operations ...operation) (claims []claim) {
	for _, o := range operations {
		claims = append(claims, claim{f, o.by(service, connections), o.by(contender, connections), limit})
	}
	return claims
}
