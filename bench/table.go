package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The contenders.
const (
	service = "plantstore"
	single  = "one by one" // the service with batches of one row
	// The programs of bench/baseline.
	plain  = "gin+gorm"
	tuned  = "tuned gin+gorm"
	direct = "net/http+pgx"
	// The service without parts of its source: see variants.
	noStore    = "no storage"
	untraced   = "no tracing"
	unmeasured = "no metrics"
	unfed      = "no feed"
	// PostgreSQL's own programs.
	pgbench = "pgbench"
	psql    = "psql"
	// The service beside other clients: see isolation.go.
	imports = "beside an import"
	rivalry = "beside an import and 12 rivals"
)

var baselines = []string{plain, tuned, direct}

// operation is a request that contenders are measured with. In path and body,
// {id} stands for the id of a plant.
type operation struct {
	name, section string // the section is its name in the flag -only, where comparison.everyOperation is set
	method, path  string
	baselinePath  string // if the baselines use another path
	header        string // one more, with its line end
	contentType   string // "": JSON
	body          string
	status        int                 // of a success
	id            func(n int64) int64 // the id in the n-th request
	rows          int                 // the number of rows in the table before a turn; their ids are 1 to rows
	moves         int                 // the number of rows of an import or export; 0: another request
	arrivals      int                 // requests per second of an open loop; 0: a closed loop
	ifMatch       bool                // with the version of these rows, so that each id may be written once in a turn
	contenders    []string            // that implement it; nil: all
	pgbench       string              // the same as a script for pgbench; "": pgbench does not run it
}

// To add an operation, add a row here, list it in a comparison, and add a handler to each baseline
// that implements it.
var (
	create = operation{
		name: "POST /plants", section: "post", method: "POST", path: "/plants", status: 200, id: sequential,
		body: `{"id":{id},"name":"Monstera deliciosa","tag":"houseplant"}`,
		pgbench: `\set n :n + 1
\set id :client_id * 1000000000 + :n
INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (:id, 'Monstera deliciosa', 'houseplant', now(), now());
`,
	}
	createRandom = create.but(", random ids", func(o *operation) { o.id = random })
	duplicate    = operation{
		name: "POST /plants, 100 % duplicates", section: "duplicates", method: "POST", path: "/plants", status: 409,
		body: `{"id":{id},"name":"Plant {id}","tag":"houseplant"}`, // as in the table
		id:   existing, rows: existingRows, contenders: []string{service, tuned, direct},
	}
	get    = onRow("GET", 200, "", service, plain, tuned, direct, noStore)
	put    = onRow("PUT", 200, `{"name":"Monstera deliciosa","tag":"houseplant"}`, service, plain, tuned, direct)
	patch  = onRow("PATCH", 200, `{"tag":"climber"}`, service, tuned, direct)
	remove = onRow("DELETE", 204, "", service, plain, tuned, direct)
	page   = operation{
		name: "GET /plants, page of 100", section: "list", method: "GET", path: "/plants?limit=100", status: 200,
		id: existing, rows: existingRows,
	}
	firstPage = page.but(", the first of a million rows", func(o *operation) { o.rows = million })
	lastPage  = page.but(", the last of a million rows", func(o *operation) {
		o.rows, o.path, o.baselinePath = million, "/plants?limit=100&after=999900", "/plants?limit=100&offset=999900"
	})

	importCSV    = transfer("import CSV", "POST", "/plants/import", csv, 0, service, psql)
	importNDJSON = transfer("import NDJSON", "POST", "/plants/import", "application/x-ndjson", 0, service, unfed, psql)
	importAgain  = transfer("import NDJSON, all rows exist", "POST", "/plants/import", "application/x-ndjson", million, service)
	export       = transfer("export", "GET", "/plants/export", "", million, service)

	changes       = []operation{put, patch, remove}
	conditional   = []operation{put.conditional(), patch.conditional(), remove.conditional()}
	unconditional = slices.Concat([]operation{create, duplicate, get}, changes)
	operations    = slices.Concat(unconditional, conditional)
)

// onRow returns an operation on a row that exists.
func onRow(method string, status int, body string, contenders ...string) operation {
	return operation{
		name: method + " /plants/{id}", section: strings.ToLower(method), method: method, path: "/plants/{id}", status: status,
		body: body, id: existing, rows: existingRows, contenders: contenders,
	}
}

// transfer returns an import or export of a million rows.
func transfer(name, method, path, contentType string, rows int, contenders ...string) operation {
	return operation{
		name: name, method: method, path: path, contentType: contentType, status: 200,
		id: ascending, rows: rows, moves: million, contenders: contenders,
	}
}

// but returns the operation with a change.
func (o operation) but(suffix string, change func(*operation)) operation {
	o.name += suffix
	change(&o)
	return o
}

// byAll returns operations that all contenders of a comparison implement.
func byAll(operations ...operation) []operation {
	for i := range operations {
		operations[i].contenders = nil
	}
	return operations
}

// conditional returns the operation with If-Match.
func (o operation) conditional() operation {
	return o.but(", If-Match", func(o *operation) { o.ifMatch, o.contenders = true, []string{service, direct, single} })
}

// traced returns the operation with the trace context of a client.
func (o operation) traced() operation {
	return o.but(", traceparent", func(o *operation) {
		o.header = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
	})
}

// at returns the operation on a table of a number of million rows.
func (o operation) at(millions int) operation {
	return o.but(fmt.Sprintf(", at %d million rows", millions), func(o *operation) { o.rows = millions * million })
}

// arriving returns the operation in an open loop.
func (o operation) arriving(perSecond int) operation {
	return o.but(fmt.Sprintf(", %d/s", perSecond), func(o *operation) { o.arrivals = perSecond })
}

const (
	million = 1_000_000
	csv     = "text/csv"
)

// existingRows is the number of rows in the table before a turn that reads or writes
// existing ones: more than the requests in a turn, which may delete each row once.
const existingRows = 200_000

// existing returns each id of a table of existingRows once, in no order: 7919 is a
// prime that does not divide it.
func existing(n int64) int64 { return n*7919%existingRows + 1 }

// ascending returns the ids of a table that prepare fills.
func ascending(n int64) int64 { return n + 1 }

// sequential returns ascending ids that are not in the table.
func sequential(n int64) int64 { return 1<<40 + n }

// random returns unique ids that are spread over all of int64: the finalizer of
// MurmurHash3 is a bijection.
func random(n int64) int64 {
	h := uint64(sequential(n))
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return int64(h ^ h>>33)
}

// comparison is a table of the results: contenders × operations × connections on
// a database.
type comparison struct {
	section, title string // the section is its name in the flag -only
	everyOperation bool   // each operation can be measured alone, by its section
	database       database
	operations     []operation
	contenders     []string
	connections    []int
	rounds         int           // unless the flag says otherwise; 0: defaultRounds
	turns          int           // of a contender in a round, without a restart; 0: 1
	duration       time.Duration // of a turn; 0: as the flag says
	limit          time.Duration // no round begins that would end later; 0: no limit
	figures        []figure      // in the table; nil: those of requests
	claims         []claim
}

var (
	postgresRAM = database{engine: postgres}
	sqliteRAM   = database{engine: sqlite}
	sqliteDisk  = database{engine: sqlite, onDisk: true}
	ownPostgres = database{engine: postgres, own: true}
	ownSQLite   = database{engine: sqlite, own: true}
)

// loneRequests: with one connection, no other request shares the commit.
var loneRequests = []limit{{rate, 1, tuned, 0.95}, {p99, 1, tuned, 1.05}}

var comparisons = []comparison{
	{
		section: "postgres", title: "PostgreSQL on a RAM disk", database: postgresRAM, everyOperation: true,
		operations: operations, contenders: []string{service, plain, tuned, direct, noStore, pgbench}, connections: []int{1, 64, 256},
		claims: slices.Concat(
			each([]operation{create}, limit{rate, 256, plain, 3.5}, limit{rate, 256, direct, 2.2}, limit{rate, 256, noStore, 0.88},
				limit{rate, 64, direct, 1.5}, limit{rate, 64, pgbench, 0.9}),
			each([]operation{get}, limit{rate, 64, direct, 1.8}, limit{rate, 256, direct, 2.1}),
			each(slices.Concat(changes, conditional), limit{rate, 64, direct, 1.7}, limit{rate, 256, direct, 2.1}),
			each(operations, limit{p99, 64, direct, 1}, limit{p99, 256, direct, 1}),
			each(operations, loneRequests...)),
	},
	{
		section: "disk", title: "PostgreSQL on a real disk", database: database{engine: postgres, onDisk: true},
		operations: []operation{create}, contenders: []string{service, tuned, direct, pgbench}, connections: []int{64},
		claims: each([]operation{create}, limit{rate, 64, pgbench, 1}),
	},
	{
		section: "sqlite", title: "SQLite on a RAM disk", database: sqliteRAM, everyOperation: true,
		operations: unconditional, contenders: []string{service, tuned}, connections: []int{1, 64},
		claims: each(unconditional, loneRequests...),
	},
	{
		section: "sqlite", title: "SQLite on a real disk", database: sqliteDisk, everyOperation: true,
		operations: operations, contenders: []string{service, tuned, single}, connections: []int{1, 64},
		claims: slices.Concat(each([]operation{create}, limit{rate, 64, tuned, 5}), each(changes, limit{rate, 64, tuned, 8}),
			each(conditional, limit{rate, 64, single, 8}), each(operations, loneRequests...)),
	},
	// Less than 2 % cannot be told from the noise.
	fine("observability", "The cost of metrics and tracing", postgresRAM, []string{service, untraced}, 0.98, create, get),
	fine("observability", "The cost of metrics and tracing with the trace context of clients", postgresRAM,
		[]string{service, unmeasured}, 0.97, create.traced(), get.traced()),
	fine("feed", "The cost of the feed of changes", ownPostgres, []string{service, unfed}, 0.95, create),
	fine("feed", "The cost of the feed of changes", ownSQLite, []string{service, unfed}, 0.95, create),
	openLoop(100 * time.Microsecond), openLoop(2 * time.Millisecond), openLoop(10 * time.Millisecond),
	{
		section: "growth", title: "Growth of the table", database: postgresRAM,
		operations: []operation{create, createRandom, create.at(1), createRandom.at(1), create.at(5), createRandom.at(5)},
		contenders: []string{service}, connections: []int{64},
		claims: []claim{
			{rate, create.at(1).by(service, 64), create.by(service, 64), 0.8},
			{rate, createRandom.at(1).by(service, 64), createRandom.by(service, 64), 0.8},
			{rate, create.at(5).by(service, 64), create.by(service, 64), 0.8},
			{rate, createRandom.at(5).by(service, 64), createRandom.by(service, 64), 0.8},
		},
	},
	{
		section: "reads", title: "Pages of a million rows (the service pages by key, the baselines by offset)", database: postgresRAM,
		operations: []operation{firstPage, lastPage}, contenders: []string{service, plain, tuned}, connections: []int{64},
		claims: []claim{{rate, lastPage.by(service, 64), firstPage.by(service, 64), 0.67}},
	},
	transfers(ownPostgres), transfers(ownSQLite),
	{
		section: "isolation", title: "An import of 2 million rows and clients that write the same rows", database: postgresRAM,
		operations: byAll(create, get), contenders: []string{service, imports, rivalry}, connections: []int{32},
		duration: 6 * time.Second, figures: []figure{rate, p50, p99},
		claims: []claim{
			{rate, create.by(rivalry, 32), create.by(imports, 32), 0.8},
			{p99, create.by(rivalry, 32), cell{}, 100},
			{rate, get.by(rivalry, 32), get.by(imports, 32), 0.8},
			{p99, get.by(rivalry, 32), cell{}, 100},
		},
	},
	{
		section: "memory", title: "Memory over a minute", database: postgresRAM,
		operations: []operation{create}, contenders: []string{service}, connections: []int{256}, rounds: 1, duration: time.Minute,
		claims: []claim{{peak, create.by(service, 256), cell{}, 64}},
	},
}

// against compares the service with a revision of it.
func against(revision string) comparison {
	return comparison{
		section: "against", title: "The service and " + revision, database: ownPostgres, everyOperation: true,
		operations: byAll(create, get, page, put, patch, remove), contenders: []string{revision, service}, connections: []int{1, 64, 256}, rounds: 6, limit: 7 * time.Minute,
	}
}

// fine compares contenders that hardly differ, in many short turns, so that other load on the
// machine, and the state of the database, are the same for all of them. They start more than
// once, because two processes of a program can differ by 3 %.
func fine(section, title string, d database, contenders []string, least float64, operations ...operation) comparison {
	return comparison{
		section: section, title: title + ", " + d.name + " on a RAM disk, in 80 turns of 250 ms", database: d,
		operations: byAll(operations...), contenders: contenders, connections: []int{256}, rounds: 8, turns: 10, duration: 250 * time.Millisecond,
		claims: each(operations, limit{rate, 256, contenders[1], least}),
	}
}

// openLoop compares moderate loads on a disk of which each fsync takes delay.
func openLoop(delay time.Duration) comparison {
	return comparison{
		section: "open", title: fmt.Sprintf("Open loop, PostgreSQL on a RAM disk with %v added to each fsync", delay),
		database: database{engine: postgres, fsync: delay}, operations: []operation{create.arriving(200), create.arriving(1000), create.arriving(3000)},
		contenders: []string{service, tuned}, connections: []int{256}, rounds: 1, duration: 4 * time.Second,
	}
}

// transfers compares imports and exports.
func transfers(d database) comparison {
	return comparison{
		section: "bulk", title: "Import and export of a million rows, " + d.name + " on a RAM disk", database: d,
		operations: []operation{importCSV, importNDJSON, importAgain, export}, contenders: []string{service, unfed, psql}, connections: []int{1}, figures: []figure{rows, ratio, growth},
		claims: append(each([]operation{importCSV, importNDJSON}, limit{rows, 1, psql, 0.5}, limit{growth, 1, "", 32}),
			claim{rows, importNDJSON.by(service, 1), importNDJSON.by(unfed, 1), 0.8}, claim{growth, export.by(service, 1), cell{}, 32}),
	}
}

// limit is a claim for the figures of the service, next to those of a contender, if any, that
// has the same operation and connections.
type limit struct {
	figure      figure
	connections int
	contender   string
	limit       float64
}

// each returns the claims of the limits for each operation.
func each(operations []operation, limits ...limit) (claims []claim) {
	for _, o := range operations {
		for _, l := range limits {
			c := claim{figure: l.figure, of: o.by(service, l.connections), limit: l.limit}
			if l.contender != "" {
				c.to = o.by(l.contender, l.connections)
			}
			claims = append(claims, c)
		}
	}
	return claims
}

// by returns the cell of the operation in a comparison.
func (o operation) by(contender string, connections int) cell {
	return cell{o.name, contender, connections}
}
