package main

import (
	"fmt"
	"time"
)

// The contenders. All but service and pgbench are names that bench/baseline knows.
const (
	service = "plantstore"
	plain   = "gin+gorm"
	tuned   = "tuned gin+gorm"
	direct  = "net/http+pgx"
	noStore = "no storage"
	pgbench = "pgbench"
)

// operation is a request that contenders are measured with. In path and body,
// {id} stands for the id of a plant.
type operation struct {
	name         string
	method, path string
	baselinePath string // if the baselines use another path
	body         string
	id           func(n int64) int64 // the id in the n-th request
	rows         int                 // the number of rows in the table before a turn; their ids are 1 to rows
	status       int                 // of a success
	contenders   []string            // that implement it; nil: all
	pgbench      string              // the same as a script for pgbench; "": pgbench does not run it
}

// To add an operation, add a row here, list it in a comparison, and add a handler
// to each baseline that implements it.
var (
	create = operation{
		name: "POST /plants", method: "POST", path: "/plants", status: 200,
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
	get = operation{
		name: "GET /plants/{id}", method: "GET", path: "/plants/{id}", status: 200,
		id: existing, rows: million, contenders: []string{service, plain, tuned},
	}
	firstPage = operation{
		name: "GET /plants, first page of 100", method: "GET", path: "/plants?limit=100", status: 200,
		id: existing, rows: million, contenders: []string{service, plain, tuned},
	}
	lastPage = operation{
		name: "GET /plants, 10,000th page of 100", method: "GET", status: 200,
		path: "/plants?limit=100&after=999900", baselinePath: "/plants?limit=100&offset=999900",
		id: existing, rows: million, contenders: []string{service, plain, tuned},
	}
)

const million = 1_000_000

// at returns the operation on a table of rows.
func (o operation) at(rows int) operation {
	o.name, o.rows = fmt.Sprintf("%s, at %d million rows", o.name, rows/million), rows
	return o
}

// by returns the cell of the operation in a comparison.
func (o operation) by(contender string, connections int) cell {
	return cell{o.name, contender, connections}
}

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

// existing returns each id of a table of a million rows once, in no order: 7919
// and a million are coprime.
func existing(n int64) int64 { return n*7919%million + 1 }

var (
	postgresRAM  = database{postgres, false}
	postgresDisk = database{postgres, true}
	sqliteRAM    = database{sqlite, false}
	sqliteDisk   = database{sqlite, true}
)

// comparison is a table of the results: contenders × operations × connections on
// a database.
type comparison struct {
	section     string // its name in the flag -only
	title       string
	database    database
	operations  []operation
	contenders  []string
	connections []int
	duration    time.Duration // of the only turn; 0: as the flags say
	claims      []claim
}

var comparisons = []comparison{
	{
		section: "postgres", title: "PostgreSQL on a RAM disk", database: postgresRAM,
		operations: []operation{create}, contenders: []string{service, plain, tuned, direct, noStore, pgbench}, connections: []int{1, 64, 256},
		claims: []claim{
			{rate, create.by(service, 256), create.by(plain, 256), "≥", 3.5},
			{rate, create.by(service, 256), create.by(direct, 256), "≥", 1.9},
			{rate, create.by(service, 256), create.by(noStore, 256), "≥", 0.8},
			{rate, create.by(service, 64), create.by(direct, 64), "≥", 1.5},
			{rate, create.by(service, 64), create.by(pgbench, 64), "≥", 0.9},
			{p99, create.by(service, 64), create.by(direct, 64), "≤", 1},
			{p99, create.by(service, 256), create.by(direct, 256), "≤", 1},
			{p50, create.by(service, 1), create.by(tuned, 1), "≤", 1.3},
		},
	},
	{
		section: "disk", title: "PostgreSQL on a real disk", database: postgresDisk,
		operations: []operation{create}, contenders: []string{service, tuned, direct, pgbench}, connections: []int{64},
		claims: []claim{{rate, create.by(service, 64), create.by(pgbench, 64), "≥", 1}},
	},
	{
		section: "sqlite", title: "SQLite on a RAM disk", database: sqliteRAM,
		operations: []operation{create}, contenders: []string{service, plain, tuned}, connections: []int{1, 64},
	},
	{
		section: "sqlite", title: "SQLite on a real disk", database: sqliteDisk,
		operations: []operation{create}, contenders: []string{service, plain, tuned}, connections: []int{1, 64},
		claims: []claim{{rate, create.by(service, 64), create.by(plain, 64), "≥", 5}},
	},
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
		section: "reads", title: "Reads from a million rows (the service pages by key, the baselines by offset)", database: postgresRAM,
		operations: []operation{get, firstPage, lastPage}, contenders: []string{service, plain, tuned}, connections: []int{64},
		claims: []claim{{rate, firstPage.by(service, 64), lastPage.by(service, 64), "≤", 1.5}},
	},
	{
		section: bulkSection, title: "Import and export of a million rows",
		claims: []claim{
			{rows, importCSV.on(postgresRAM), copyCSV.on(postgresRAM), "≥", 0.5},
			{rows, importNDJSON.on(postgresRAM), copyCSV.on(postgresRAM), "≥", 0.5},
			{growth, export.on(postgresRAM), cell{}, "≤", 32}, // after the imports
		},
	},
	{
		section: isolationSection, title: "An import of 2 million rows and clients that write the same rows", database: postgresRAM,
		operations: []operation{create, get},
		claims: []claim{
			{rate, rivalry.cell(create), imports.cell(create), "≥", 0.8},
			{p99, rivalry.cell(create), cell{}, "≤", 100},
			{rate, rivalry.cell(get), imports.cell(get), "≥", 0.8},
			{p99, rivalry.cell(get), cell{}, "≤", 100},
		},
	},
	{
		section: "memory", title: "Memory over a minute", database: postgresRAM,
		operations: []operation{create}, contenders: []string{service}, connections: []int{256}, duration: time.Minute,
		claims: []claim{{peak, create.by(service, 256), cell{}, "≤", 60}},
	},
}
