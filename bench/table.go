package main

import (
	"fmt"
	"slices"
	"time"
)

// The contenders.
const (
	service = "plantstore"
	plain   = "gin+gorm"
	tuned   = "tuned gin+gorm"
	direct  = "net/http+pgx"
	noStore = "no storage"
	pgbench = "pgbench"
	single  = "one by one" // the service with batches of one
	// The service without parts of its source: see variants.
	untraced   = "no tracing"
	unmeasured = "no metrics"
	unfed      = "no feed"
	psql       = "psql"
)

// baselines are the contenders that bench/baseline knows.
var baselines = []string{plain, tuned, direct, noStore}

const (
	csv    = "text/csv"
	ndjson = "application/x-ndjson"
)

// operation is a request that contenders are measured with. In path and body,
// {id} stands for the id of a plant.
type operation struct {
	name         string
	section      string // its name in the flag -only, where comparison.everyOperation is set
	method, path string
	baselinePath string // if the baselines use another path
	header       string // one more, with its line end
	contentType  string // "": JSON
	body         string
	moves        int                 // the number of rows of an import or export; 0: other requests
	id           func(n int64) int64 // the id in the n-th request
	rows         int                 // the number of rows in the table before a turn; their ids are 1 to rows
	arrivals     int                 // requests per second of an open loop; 0: a closed loop
	ifMatch      bool                // with the version of these rows, so that each id may be written once in a turn
	status       int                 // of a success
	contenders   []string            // that implement it; nil: all
	pgbench      string              // the same as a script for pgbench; "": pgbench does not run it
}

// To add an operation, add a row here, list it in unconditional or a comparison of its
// own, and add a handler to each baseline that implements it.
var (
	create = operation{
		name: "POST /plants", section: "post", method: "POST", path: "/plants", status: 200,
		body: `{"id":{id},"name":"Monstera deliciosa","tag":"houseplant"}`, id: sequential,
		pgbench: `\set n :n + 1
\set id :client_id * 1000000000 + :n
INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (:id, 'Monstera deliciosa', 'houseplant', now(), now());
`,
	}
	createRandom = operation{
		name: "POST /plants, random ids", method: "POST", path: "/plants", status: 200,
		body: create.body, id: random,
	}
	duplicate = operation{
		name: "POST /plants, 100 % duplicates", section: "duplicates", method: "POST", path: "/plants", status: 409,
		body: `{"id":{id},"name":"Plant {id}","tag":"houseplant"}`, // as in the table
		id:   existing, rows: existingRows, contenders: []string{service, tuned, direct},
	}
	get = operation{
		name: "GET /plants/{id}", section: "get", method: "GET", path: "/plants/{id}", status: 200,
		id: existing, rows: existingRows, contenders: []string{service, plain, tuned, direct, noStore},
	}
	put = operation{
		name: "PUT /plants/{id}", section: "put", method: "PUT", path: "/plants/{id}", status: 200,
		body: `{"name":"Monstera deliciosa","tag":"houseplant"}`,
		id:   existing, rows: existingRows, contenders: []string{service, plain, tuned, direct},
	}
	patch = operation{
		name: "PATCH /plants/{id}", section: "patch", method: "PATCH", path: "/plants/{id}", status: 200,
		body: `{"tag":"climber"}`,
		id:   existing, rows: existingRows, contenders: []string{service, tuned, direct},
	}
	remove = operation{
		name: "DELETE /plants/{id}", section: "delete", method: "DELETE", path: "/plants/{id}", status: 204,
		id: existing, rows: existingRows, contenders: []string{service, plain, tuned, direct},
	}
	firstPage = operation{
		name: "GET /plants, first page of 100", method: "GET", path: "/plants?limit=100", status: 200,
		id: existing, rows: million,
	}
	lastPage = operation{
		name: "GET /plants, 10,000th page of 100", method: "GET", status: 200,
		path: "/plants?limit=100&after=999900", baselinePath: "/plants?limit=100&offset=999900",
		id: existing, rows: million,
	}
	page = operation{
		name: "GET /plants, page of 100", section: "list", method: "GET", path: "/plants?limit=100", status: 200,
		id: existing, rows: existingRows,
	}
	importCSV = operation{
		name: "import CSV", method: "POST", path: "/plants/import", status: 200, contentType: csv, moves: million,
		id: ascending, contenders: []string{service, psql},
	}
	importNDJSON = operation{
		name: "import NDJSON", method: "POST", path: "/plants/import", status: 200, contentType: ndjson, moves: million,
		id: ascending, contenders: []string{service, unfed},
	}
	importAgain = operation{
		name: "import NDJSON, all rows exist", method: "POST", path: "/plants/import", status: 200, contentType: ndjson, moves: million,
		id: ascending, rows: million, contenders: []string{service},
	}
	export = operation{
		name: "export", method: "GET", path: "/plants/export", status: 200, moves: million,
		id: ascending, rows: million, contenders: []string{service},
	}
	bulk = []operation{importCSV, importNDJSON, importAgain, export}
)

const million = 1_000_000

// at returns the operation on a table of rows.
func (o operation) at(rows int) operation {
	o.name, o.rows = fmt.Sprintf("%s, at %d million rows", o.name, rows/million), rows
	return o
}

// arriving returns the operation in an open loop.
func (o operation) arriving(perSecond int) operation {
	o.name, o.arrivals = fmt.Sprintf("%s, %d/s", o.name, perSecond), perSecond
	return o
}

// conditional returns the operation with If-Match. Only service, direct and single
// implement it.
func (o operation) conditional() operation {
	o.name, o.ifMatch, o.contenders = o.name+", If-Match", true, []string{service, direct, single}
	return o
}

// among returns the operation for these contenders only.
func (o operation) among(contenders ...string) operation {
	o.contenders = contenders
	return o
}

// traced returns the operation with the trace context of a client.
func (o operation) traced() operation {
	o.name, o.header = o.name+", traceparent", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
	return o
}

// by returns the cell of the operation in a comparison.
func (o operation) by(contender string, connections int) cell {
	return cell{o.name, contender, connections}
}

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

// existingRows is the number of rows in the table before a turn that reads or writes
// existing ones: more than the requests in a turn, which may delete each row once.
const existingRows = 200_000

// existing returns each id of a table of existingRows once, in no order: 7919 is a
// prime that does not divide it.
func existing(n int64) int64 { return n*7919%existingRows + 1 }

var (
	postgresRAM  = database{engine: postgres}
	postgresDisk = database{engine: postgres, onDisk: true}
	sqliteRAM    = database{engine: sqlite}
	sqliteDisk   = database{engine: sqlite, onDisk: true}
	ownPostgres  = database{engine: postgres, own: true}
	ownSQLite    = database{engine: sqlite, own: true}
)

// comparison is a table of the results: contenders × operations × connections on
// a database.
type comparison struct {
	section        string // its name in the flag -only
	title          string
	everyOperation bool // each operation can be measured alone, by its section
	drawn          bool // in the chart
	database       database
	operations     []operation
	contenders     []string
	connections    []int
	rounds         int           // unless the flag says otherwise; 0: defaultRounds
	turns          int           // of a contender in a round, without a restart; 0: 1
	duration       time.Duration // of a turn; 0: as the flag says
	limit          time.Duration // without another round
	figures        []int         // in the table; nil: those of requests
	claims         []claim
}

// limit is a claim for the figures of the service, next to those of a contender that
// has the same operation and connections.
type limit struct {
	figure, connections int
	contender           string
	sign                string
	limit               float64
}

// all returns the claims of the limits for each operation.
func all(operations []operation, limits ...limit) (claims []claim) {
	for _, o := range operations {
		for _, l := range limits {
			claims = append(claims, claim{l.figure, o.by(service, l.connections), o.by(l.contender, l.connections), l.sign, l.limit})
		}
	}
	return claims
}

var (
	changes            = []operation{put, patch, remove}
	conditionalChanges = []operation{put.conditional(), patch.conditional(), remove.conditional()}
	unconditional      = slices.Concat([]operation{create, duplicate, get}, changes)
	operations         = slices.Concat(unconditional, conditionalChanges)
)

// quiet and traced are without and with the trace context of clients. Spans are off.
var (
	quiet  = []operation{create.among(service, untraced), get.among(service, untraced)}
	traced = []operation{create.traced().among(service, unmeasured), get.traced().among(service, unmeasured)}
)

// loneRequests: with one connection, no other request shares the commit.
var loneRequests = []limit{{rate, 1, tuned, "≥", 0.95}, {p99, 1, tuned, "≤", 1.05}}

var bulkFigures = []int{rows, ratio, growth}

// bulkClaims also have the cost of the feed.
var bulkClaims = []claim{
	{rows, importNDJSON.by(service, 1), importNDJSON.by(unfed, 1), "≥", 0.8},
	{growth, importCSV.by(service, 1), cell{}, "≤", 32},
	{growth, importNDJSON.by(service, 1), cell{}, "≤", 32},
	{growth, export.by(service, 1), cell{}, "≤", 32},
}

// Many short turns, so that other load on the machine, and the state of the database, are the same
// for all contenders: they tell differences of a hundredth. Contenders start more than once, because
// two processes of a program can differ by 3 %.
const (
	manyRounds = 8
	manyTurns  = 10
	shortTurn  = 250 * time.Millisecond
)

// feedCost compares the service with itself without the feed of changes.
func feedCost(d database) comparison {
	return comparison{
		section: "feed", title: "The cost of the feed of changes, " + d.name + " on a RAM disk", database: d,
		operations: []operation{create}, contenders: []string{service, unfed}, connections: []int{256},
		rounds: manyRounds, turns: manyTurns, duration: shortTurn,
		claims: all([]operation{create}, limit{rate, 256, unfed, "≥", 0.95}),
	}
}

// against compares the service with a revision of it.
func against(revision string) comparison {
	all := []operation{create, get, page, put, patch, remove}
	for i := range all {
		all[i].contenders = nil
	}
	return comparison{
		section: "against", title: "The working tree and " + revision + ", PostgreSQL on a RAM disk", database: ownPostgres, everyOperation: true,
		operations: all, contenders: []string{revision, service}, connections: []int{1, 64, 256},
		rounds: 7, limit: 8 * time.Minute,
	}
}

// openLoop compares moderate loads on a disk of which each fsync takes delay.
func openLoop(delay time.Duration) comparison {
	return comparison{
		section: "open", title: fmt.Sprintf("Open loop, PostgreSQL on a RAM disk with %v added to each fsync", delay),
		database:   database{engine: postgres, fsync: delay},
		operations: []operation{create.arriving(200), create.arriving(1000), create.arriving(3000)},
		contenders: []string{service, tuned}, connections: []int{256}, rounds: 1, duration: 4 * time.Second,
	}
}

// chosen returns the operations of c that the flag -only lists.
func (c comparison) chosen(only string) (operations []operation) {
	for _, o := range c.operations {
		if c.everyOperation && selected(only, o.section) {
			operations = append(operations, o)
		}
	}
	return operations
}

var comparisons = []comparison{
	{
		section: "postgres", title: "PostgreSQL on a RAM disk", database: postgresRAM, everyOperation: true, drawn: true,
		operations: operations, contenders: []string{service, plain, tuned, direct, noStore, pgbench}, connections: []int{1, 64, 256},
		claims: slices.Concat(
			all([]operation{create},
				limit{rate, 256, plain, "≥", 3.5},
				limit{rate, 256, direct, "≥", 2.2},
				limit{rate, 256, noStore, "≥", 0.88},
				limit{rate, 64, direct, "≥", 1.5},
				limit{rate, 64, pgbench, "≥", 0.9}),
			all([]operation{get}, limit{rate, 64, direct, "≥", 1.8}, limit{rate, 256, direct, "≥", 2.1}),
			all(slices.Concat(changes, conditionalChanges), limit{rate, 64, direct, "≥", 1.7}, limit{rate, 256, direct, "≥", 2.1}),
			all(operations, limit{p99, 64, direct, "≤", 1}, limit{p99, 256, direct, "≤", 1}),
			all(operations, loneRequests...),
		),
	},
	{
		section: "disk", title: "PostgreSQL on a real disk", database: postgresDisk,
		operations: []operation{create}, contenders: []string{service, tuned, direct, pgbench}, connections: []int{64},
		claims: []claim{{rate, create.by(service, 64), create.by(pgbench, 64), "≥", 1}},
	},
	{
		section: "sqlite", title: "SQLite on a RAM disk", database: sqliteRAM, everyOperation: true,
		operations: unconditional, contenders: []string{service, tuned}, connections: []int{1, 64},
		claims: all(unconditional, loneRequests...),
	},
	{
		section: "sqlite", title: "SQLite on a real disk", database: sqliteDisk, everyOperation: true,
		operations: operations, contenders: []string{service, tuned, single}, connections: []int{1, 64},
		claims: slices.Concat(
			all([]operation{create}, limit{rate, 64, tuned, "≥", 5}),
			all(changes, limit{rate, 64, tuned, "≥", 8}),
			all(conditionalChanges, limit{rate, 64, single, "≥", 8}),
			all(operations, loneRequests...),
		),
	},
	{
		section: "observability", database: postgresRAM,
		title:      fmt.Sprintf("The cost of metrics and tracing, PostgreSQL on a RAM disk, in %d turns of %v", manyRounds*manyTurns, shortTurn),
		operations: slices.Concat(quiet, traced), contenders: []string{service, untraced, unmeasured}, connections: []int{256},
		rounds: manyRounds, turns: manyTurns, duration: shortTurn,
		// Less than 2 % cannot be told from the noise.
		claims: slices.Concat(all(quiet, limit{rate, 256, untraced, "≥", 0.98}), all(traced, limit{rate, 256, unmeasured, "≥", 0.97})),
	},
	feedCost(ownPostgres), feedCost(ownSQLite),
	openLoop(100 * time.Microsecond),
	openLoop(2 * time.Millisecond),
	openLoop(10 * time.Millisecond),
	{
		section: "growth", title: "Growth of the table", database: postgresRAM,
		operations: []operation{
			create, createRandom, create.at(million), createRandom.at(million), create.at(5 * million), createRandom.at(5 * million),
		},
		contenders: []string{service}, connections: []int{64},
		claims: []claim{
			{rate, create.at(million).by(service, 64), create.by(service, 64), "≥", 0.8},
			{rate, createRandom.at(million).by(service, 64), createRandom.by(service, 64), "≥", 0.8},
			{rate, create.at(5*million).by(service, 64), create.by(service, 64), "≥", 0.8},
			{rate, createRandom.at(5*million).by(service, 64), createRandom.by(service, 64), "≥", 0.8},
		},
	},
	{
		section: "reads", title: "Pages of a million rows (the service pages by key, the baselines by offset)", database: postgresRAM,
		operations: []operation{firstPage, lastPage}, contenders: []string{service, plain, tuned}, connections: []int{64},
		claims: []claim{{rate, firstPage.by(service, 64), lastPage.by(service, 64), "≤", 1.5}},
	},
	{
		section: "bulk", title: "Import and export of a million rows, PostgreSQL on a RAM disk", database: ownPostgres,
		operations: bulk, contenders: []string{service, unfed, psql}, connections: []int{1}, figures: bulkFigures,
		claims: append(bulkClaims,
			claim{rows, importCSV.by(service, 1), importCSV.by(psql, 1), "≥", 0.5},
			claim{rows, importNDJSON.by(service, 1), importCSV.by(psql, 1), "≥", 0.5}),
	},
	{
		section: "bulk", title: "Import and export of a million rows, SQLite on a RAM disk", database: ownSQLite,
		operations: bulk, contenders: []string{service, unfed}, connections: []int{1}, figures: bulkFigures, claims: bulkClaims,
	},
	{
		section: "isolation", title: "An import of 2 million rows and clients that write the same rows", database: postgresRAM,
		operations: []operation{create, get}, contenders: []string{nothing, imports, rivalry}, connections: []int{32}, duration: 6 * time.Second, figures: []int{rate, p50, p99},
		claims: []claim{
			{rate, create.by(rivalry, 32), create.by(imports, 32), "≥", 0.8},
			{p99, create.by(rivalry, 32), cell{}, "≤", 100},
			{rate, get.by(rivalry, 32), get.by(imports, 32), "≥", 0.8},
			{p99, get.by(rivalry, 32), cell{}, "≤", 100},
		},
	},
	{
		section: "memory", title: "Memory over a minute", database: postgresRAM,
		operations: []operation{create}, contenders: []string{service}, connections: []int{256}, rounds: 1, duration: time.Minute,
		claims: []claim{{peak, create.by(service, 256), cell{}, "≤", 64}},
	},
}
