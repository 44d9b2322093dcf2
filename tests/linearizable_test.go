package tests

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"plantstore/database/dbtest"
)

// content is what clients write to a plant. The tag is JSON, and empty if there is none.
type content struct{ name, tag string }

// operation is a request for a plant, with at most one precondition. A PATCH leaves empty
// fields as they are.
type operation struct {
	method string
	id     int64
	content
	header, etags string
}

func (o operation) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %d %s %s %s", o.method, o.id, o.body(), o.header, o.etags)), " ")
}

func (o operation) body() string {
	var fields []string
	if o.method == "POST" {
		fields = append(fields, fmt.Sprintf(`"id":%d`, o.id))
	}
	if o.name != "" {
		fields = append(fields, fmt.Sprintf(`"name":%q`, o.name))
	}
	if o.tag != "" {
		fields = append(fields, `"tag":`+o.tag)
	}
	if fields == nil {
		return ""
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// outcome is a response: its error code or else its status, and the plant and the ETag if
// it has them. The code is 0 if a write may or may not have happened.
type outcome struct {
	code int
	content
	etag string
}

func (o outcome) String() string {
	if o.code == 0 {
		return "unknown"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s %s", o.code, o.name, o.tag, o.etag))
}

// register is what a plant is at some moment; all is empty if it does not exist. The ETag
// of a write without a response is empty until a read shows it. As every client has its
// ETags from responses, none can have this one.
type register struct {
	content
	etag string
}

// after returns the code of the response to o, according to docs/api.md, and the plant
// afterwards, without the new ETag of a write.
func (r register) after(o operation) (code int, next register) {
	exists := r.name != ""
	matches := exists && (o.etags == "*" || r.etag != "" && strings.Contains(o.etags, r.etag))
	holds := o.header == "" || matches == (o.header == "If-Match")
	switch {
	case !exists && o.method != "POST" && o.method != "PUT":
		return 40401, r
	case o.method == "GET" && !holds:
		return 304, r
	case o.method == "GET":
		return 200, r
	case o.method == "POST" && exists && r.content == o.content:
		return 40902, r
	case o.method == "POST" && exists:
		return 40901, r
	case !holds:
		return 41201, r
	case o.method == "DELETE":
		return 204, register{}
	case o.method == "PATCH":
		next.content = content{cmp.Or(o.name, r.name), cmp.Or(o.tag, r.tag)}
		if o.tag == "null" {
			next.tag = ""
		}
		return 200, next
	case o.method == "PUT" && !exists:
		return 201, register{content: o.content}
	}
	return 200, register{content: o.content}
}

// step reports whether o can have the outcome got at this moment, and returns the plant
// afterwards.
func (r register) step(o operation, got outcome) (bool, register) {
	code, next := r.after(o)
	switch {
	case got.code == 0: // it took effect here, or after all others
		return true, next
	case got.code != code:
		return false, r
	case code == 304:
		return got.etag == r.etag, r
	case o.method == "GET" && code == 200:
		return got.content == r.content && (r.etag == "" || r.etag == got.etag), register{got.content, got.etag}
	case code == 200, code == 201: // every write changes the ETag
		next.etag = got.etag
		return got.content == next.content && got.etag != r.etag, next
	}
	return true, next
}

// registers is the model of the service: a register for each plant.
func registers() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, output any) (bool, any) {
			return state.(register).step(input.(operation), output.(outcome))
		},
		Partition: byPlant,
	}
}

func byPlant(all []porcupine.Operation) (plants [][]porcupine.Operation) {
	index := make(map[int64]int)
	for _, o := range all {
		id := o.Input.(operation).id
		if _, ok := index[id]; !ok {
			index[id] = len(plants)
			plants = append(plants, nil)
		}
		plants[index[id]] = append(plants[index[id]], o)
	}
	return plants
}

// history records what concurrent clients sent and received.
type history struct {
	t       *testing.T
	random  *rand.Rand
	plants  []int64
	methods []string // as often as their share
	clock   atomic.Int64

	mu         sync.Mutex // guards the fields below
	operations []porcupine.Operation
	etags      map[int64][]string // of each plant, in the order of responses
}

// newHistory returns the history of a number of new plants. The choices of its clients
// depend on seed; the order of their requests is up to the machine.
func newHistory(t *testing.T, seed uint64, plants int, methods ...string) *history {
	h := &history{t: t, random: rand.New(rand.NewPCG(seed, 0)), methods: methods, etags: make(map[int64][]string)} //nolint:gosec // must be repeatable
	for range plants {
		h.plants = append(h.plants, ids.Add(1))
	}
	return h
}

// choose returns an operation on one of the plants. The few different contents are the
// same for all clients, so that some POSTs repeat what is stored, and name their plant, so
// that a mix-up of rows shows.
func (h *history) choose(random *rand.Rand) operation {
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	o := operation{method: pick(h.methods...), id: h.plants[random.IntN(len(h.plants))]}
	switch o.content = (content{nameOf(o.id) + pick("a", "b"), pick("", `""`, `"x"`)}); o.method {
	case "GET", "DELETE":
		o.content = content{}
	case "PATCH":
		o.content = []content{{name: o.name}, {tag: cmp.Or(o.tag, "null")}, {o.name, cmp.Or(o.tag, "null")}}[random.IntN(3)]
	}
	h.mu.Lock()
	known := h.etags[o.id]
	h.mu.Unlock()
	if o.method == "POST" || random.IntN(2) == 0 || len(known) == 0 {
		return o
	}
	last, one := known[len(known)-1], known[random.IntN(len(known))]
	switch chance := random.IntN(8); {
	case o.method == "GET":
		o.header, o.etags = "If-None-Match", last
	case chance == 0:
		o.header, o.etags = "If-None-Match", "*"
	case chance == 1:
		o.header, o.etags = "If-Match", "*"
	case chance == 2:
		o.header, o.etags = "If-Match", one
	case chance == 3:
		o.header, o.etags = "If-Match", one+", "+last
	default:
		o.header, o.etags = "If-Match", last
	}
	return o
}

// do sends o and records its outcome. It fails if the connection breaks.
func (h *history) do(s *service, transport *http.Transport, o operation) error {
	path := "/plants"
	if o.method != "POST" {
		path += "/" + strconv.FormatInt(o.id, 10)
	}
	headers := as(token)
	if o.header != "" {
		headers = append(headers, o.header, o.etags)
	}
	call := h.clock.Add(1)
	r, err := s.tryOn(transport, o.method, path, strings.NewReader(o.body()), headers...)
	end := h.clock.Add(1)

	got := outcome{code: cmp.Or(r.code(), r.status), etag: r.etag()}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED): // it was not sent
		return err
	case err != nil, got.code == 50302:
		if o.method == "GET" {
			return err
		}
		got, end = outcome{}, math.MaxInt64
	case got.code == 50301: // nothing was stored
		return nil
	case got.code == 200 || got.code == 201:
		p := r.plant()
		if p.ID != o.id && o.method != "POST" {
			h.t.Errorf("%v: got %v", o, r)
		}
		if got.name = p.Name; p.Tag != nil {
			got.tag = strconv.Quote(*p.Tag)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{Input: o, Call: call, Output: got, Return: end})
	if got.etag != "" && !slices.Contains(h.etags[o.id], got.etag) {
		h.etags[o.id] = append(h.etags[o.id], got.etag)
	}
	return err
}

// run lets clients send n operations each, or until their connection breaks. The service
// is killed after some of the responses, unless that is 0.
func (h *history) run(s *service, n int, kill int64) {
	var group sync.WaitGroup
	var responses atomic.Int64
	for range clients {
		random := rand.New(rand.NewPCG(h.random.Uint64(), 0)) //nolint:gosec // must be repeatable
		group.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for range n {
				if err := h.do(s, transport, h.choose(random)); err != nil {
					if kill == 0 {
						h.t.Error(err)
					}
					return
				}
				if responses.Add(1) == kill {
					_ = s.process.Kill()
				}
			}
		})
	}
	group.Wait()
	if kill > 0 {
		s.checkKilled(h.t)
	}
}

// read gets each plant.
func (h *history) read(s *service) {
	h.t.Helper()
	for _, id := range h.plants {
		must(h.t, h.do(s, connections, operation{method: "GET", id: id}))
	}
}

// check reports an error unless the history is linearizable: every operation looks as if
// it happened at one moment between its request and its response. ETags are all different.
func (h *history) check() {
	h.t.Helper()
	writers := make(map[string]porcupine.Operation)
	for _, o := range h.operations {
		if !wrote(o) || o.Output.(outcome).etag == "" {
			continue
		}
		version := fmt.Sprint(o.Input.(operation).id, " ", o.Output.(outcome).etag)
		if other, ok := writers[version]; ok {
			h.t.Error("two writes of a plant have the same ETag:" + describe([]porcupine.Operation{other, o}))
		}
		writers[version] = o
	}
	result := porcupine.CheckOperationsTimeout(registers(), h.operations, patience)
	if result == porcupine.Ok {
		return
	}
	h.t.Errorf("a history of %d operations on %d plants: got %s, want it to be linearizable", len(h.operations), len(h.plants), result)
	for _, plant := range byPlant(h.operations) {
		if isIllegal(plant) {
			h.t.Log("these operations, with the times of request and response, fit into no order:" + describe(smallest(plant)))
		}
	}
}

// wrote reports whether o was acknowledged and wrote something.
func wrote(o porcupine.Operation) bool {
	switch o.Output.(outcome).code {
	case 201, 204:
		return true
	case 200:
		return o.Input.(operation).method != "GET"
	}
	return false
}

func isIllegal(operations []porcupine.Operation) bool {
	return porcupine.CheckOperationsTimeout(registers(), operations, patience) == porcupine.Illegal
}

// smallest leaves out what a history does not need to be illegal: all after the first
// response that cannot be explained, and operations that wrote nothing.
func smallest(all []porcupine.Operation) []porcupine.Operation {
	ends := slices.Clone(all)
	slices.SortFunc(ends, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, last := range ends {
		var part []porcupine.Operation
		for _, o := range all {
			if o.Return > last.Return { // in flight
				o.Output, o.Return = outcome{}, math.MaxInt64
			}
			if o.Call < last.Return {
				part = append(part, o)
			}
		}
		if isIllegal(part) {
			all = part
			break
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		without := slices.Delete(slices.Clone(all), i, i+1)
		if !wrote(all[i]) && isIllegal(without) {
			all = without
		}
	}
	return all
}

func describe(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var text strings.Builder
	for _, o := range operations {
		end := "…"
		if o.Return != math.MaxInt64 {
			end = strconv.FormatInt(o.Return, 10)
		}
		fmt.Fprintf(&text, "\n%6d–%-6s %v → %v", o.Call, end, o.Input, o.Output)
	}
	return text.String()
}

// numberFrom returns a number from the environment, or otherwise its default.
func numberFrom(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	must(t, err)
	return n
}

// seedOf returns the number on which the choices of a test depend: SEED repeats them.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := numberFrom(t, "SEED", rand.Uint64())
	t.Logf("SEED=%d", seed)
	return seed
}

// tallies counts operations by method and outcome.
type tallies map[string]int

func (c tallies) add(h *history) {
	for _, o := range h.operations {
		c[fmt.Sprint(o.Input.(operation).method, " ", o.Output.(outcome).code)]++
		c["all"]++
	}
}

// TestLinearizable checks histories of all operations on a few plants, of which three in
// ten contain a kill of the service. HISTORIES is their number for each database.
func TestLinearizable(t *testing.T) {
	histories, seed := numberFrom(t, "HISTORIES", 10), seedOf(t)
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		begin, kills, counts := time.Now(), 0, tallies{}
		s := start(t, "DATABASE_URL="+url)
		for n := range histories {
			h := newHistory(t, seed+n, 3, "POST", "POST", "PUT", "PUT", "PATCH", "DELETE", "GET", "GET")
			if n%10%3 == 1 {
				h.run(s, 20, 20+h.random.Int64N(200))
				kills++
				s = start(t, "DATABASE_URL="+url)
			}
			h.run(s, 20, 0)
			h.read(s)
			h.check()
			counts.add(h)
			if t.Failed() {
				t.Fatalf("history %d of SEED=%d", n, seed)
			}
		}
		t.Logf("%d histories of %d operations with %d kills in %v: %v", histories, counts["all"], kills, time.Since(begin).Round(time.Second), counts)
		for _, want := range strings.Split("POST 200,POST 40901,POST 40902,PUT 200,PUT 201,PUT 41201,PATCH 200,PATCH 40401,PATCH 41201,"+
			"DELETE 204,DELETE 40401,DELETE 41201,GET 200,GET 304,GET 40401", ",") {
			if counts[want] == 0 {
				t.Errorf("got no %s, want each outcome", want)
			}
		}
	})
}

// TestFalsifiedHistory falsifies single responses of a history: it is then not
// linearizable.
func TestFalsifiedHistory(t *testing.T) {
	t.Parallel()
	s := start(t, "DATABASE_URL="+dbtest.SQLite(t))
	h := newHistory(t, seedOf(t), 2, "POST", "PUT", "PATCH", "DELETE", "GET")
	h.run(s, 10, 0)
	first, id := len(h.operations), h.plants[0]
	a, b := content{nameOf(id) + "a", ""}, content{nameOf(id) + "b", `"x"`}
	for _, test := range []struct {
		method string
		content
		header, etags string
		code          int
	}{
		{method: "PUT", content: a}, // 201 or 200
		{method: "DELETE", header: "If-Match", etags: "NOW", code: 204},
		{method: "GET", code: 40401},
		{method: "DELETE", code: 40401},
		{method: "PATCH", content: b, code: 40401},
		{method: "PUT", content: a, header: "If-Match", etags: "*", code: 41201},
		{method: "POST", content: a, code: 200},
		{method: "POST", content: a, code: 40902},
		{method: "POST", content: b, code: 40901},
		{method: "GET", header: "If-None-Match", etags: "NOW", code: 304},
		{method: "PUT", content: b, code: 200},
		{method: "PUT", content: a, header: "If-Match", etags: "OLD", code: 41201},
		{method: "PATCH", content: a, header: "If-None-Match", etags: "*", code: 41201},
		{method: "GET", header: "If-None-Match", etags: "OLD", code: 200},
		{method: "PATCH", content: content{tag: "null"}, header: "If-Match", etags: "NOW", code: 200},
		{method: "DELETE", header: "If-Match", etags: "OLD", code: 41201},
		{method: "GET", code: 200},
		{method: "DELETE", code: 204},
		{method: "PUT", content: b, code: 201},
		{method: "GET", code: 200},
	} {
		known := append([]string{"", ""}, h.etags[id]...)
		etags := strings.NewReplacer("NOW", known[len(known)-1], "OLD", known[len(known)-2]).Replace(test.etags)
		must(t, h.do(s, connections, operation{test.method, id, test.content, test.header, etags}))
		if last := h.operations[len(h.operations)-1]; test.code != 0 && last.Output.(outcome).code != test.code {
			t.Fatalf("%v: got %v, want %d", last.Input, last.Output, test.code)
		}
	}
	h.check()

	codes := map[string][]int{
		"POST": {200, 40901, 40902}, "PUT": {200, 201, 41201}, "PATCH": {200, 40401, 41201},
		"DELETE": {204, 40401, 41201}, "GET": {200, 304, 40401},
	}
	for i := first; i < len(h.operations); i++ {
		o := h.operations[i].Input.(operation)
		received := h.operations[i].Output.(outcome)
		falsified := make([]outcome, 0, 4)
		for _, code := range codes[o.method] {
			if code != received.code {
				falsified = append(falsified, outcome{code, received.content, received.etag})
			}
		}
		if received.etag != "" { // a later operation shows every ETag
			falsified = append(falsified, outcome{received.code, received.content, `"another"`})
		}
		if received.name != "" {
			falsified = append(falsified, outcome{received.code, content{received.name, `"y"`}, received.etag})
		}
		for _, lie := range falsified {
			t.Run(fmt.Sprintf("%v with %v instead of %v", o, lie, received), func(t *testing.T) {
				operations := slices.Clone(h.operations)
				operations[i].Output = lie
				if !isIllegal(operations) {
					t.Error("got a linearizable history")
				}
			})
		}
	}
}
