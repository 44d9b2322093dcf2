package operate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/anishathalye/porcupine"

	"plantstore/tests/service"
)

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
		h.plants = append(h.plants, service.IDs.Add(1))
	}
	return h
}

// choose returns an operation on one of the plants. The few different contents are the
// same for all clients, so that some POSTs repeat what is stored, and name their plant, so
// that a mix-up of rows shows.
func (h *history) choose(random *rand.Rand) operation {
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	o := operation{method: pick(h.methods...), id: h.plants[random.IntN(len(h.plants))]}
	switch o.content = (content{service.NameOf(o.id) + pick("a", "b"), pick("", `""`, `"x"`)}); o.method {
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

// errUnavailable is the error of a request that got error 50302.
var errUnavailable = errors.New("the database is unavailable")

// do sends o and records its outcome. It fails if that is unknown: if the connection breaks,
// or with errUnavailable.
func (h *history) do(s *service.Service, transport *http.Transport, o operation) error {
	path := "/plants"
	if o.method != "POST" {
		path += "/" + strconv.FormatInt(o.id, 10)
	}
	headers := service.As(service.Token)
	if o.header != "" {
		headers = append(headers, o.header, o.etags)
	}
	call := h.clock.Add(1)
	r, err := s.TryOn(transport, o.method, path, strings.NewReader(o.body()), headers...)
	end := h.clock.Add(1)

	got := outcome{code: cmp.Or(r.Code(), r.Status), etag: r.ETag()}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED): // it was not sent
		return err
	case err != nil, got.code == 50302:
		if err == nil {
			err = errUnavailable
		}
		if o.method == "GET" {
			return err
		}
		got, end = outcome{}, math.MaxInt64
	case got.code == 50301: // nothing was stored
		return nil
	case got.code == 200 || got.code == 201:
		p := r.Plant()
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

// run lets clients send n operations each, or until the outcome of one is unknown: more of
// them would make the history too long to check. Each client uses one of the replicas. After
// some of the responses, a fault begins, unless it is nil.
func (h *history) run(replicas []*service.Service, n int, after int64, fault func()) {
	var group sync.WaitGroup
	var responses atomic.Int64
	for i := range service.Clients {
		s := replicas[i%len(replicas)]
		random := rand.New(rand.NewPCG(h.random.Uint64(), 0)) //nolint:gosec // must be repeatable
		group.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for range n {
				if err := h.do(s, transport, h.choose(random)); err != nil {
					if fault == nil && !errors.Is(err, errUnavailable) {
						h.t.Error(err)
					}
					return
				}
				if responses.Add(1) == after && fault != nil {
					fault()
				}
			}
		})
	}
	group.Wait()
}

// read gets each plant from each replica.
func (h *history) read(replicas []*service.Service) {
	h.t.Helper()
	for _, s := range replicas {
		for _, id := range h.plants {
			service.Must(h.t, h.do(s, service.Connections, operation{method: "GET", id: id}))
		}
	}
}

// check reports an error unless the history is linearizable.
func (h *history) check() {
	h.t.Helper()
	if found := contradiction(h.operations); found != "" {
		h.t.Error(found + explain(h.operations))
	}
}

// checkFalsified reports an error unless check would find that a response, which random
// chooses, has a tag that no client has written. It does nothing if there are unknown
// outcomes: with many of them, it can take too long to see that none explains the response.
func (h *history) checkFalsified(random *rand.Rand) (done bool) {
	h.t.Helper()
	var responses []int // with a plant
	for i, o := range h.operations {
		switch got := o.Output.(outcome); {
		case got.code == 0:
			return false
		case got.name != "":
			responses = append(responses, i)
		}
	}
	i, operations := responses[random.IntN(len(responses))], slices.Clone(h.operations)
	received := operations[i].Output.(outcome)
	operations[i].Output = outcome{received.code, content{received.name, `"y"`}, received.etag}
	if !isContradiction(operations) {
		h.t.Errorf("got a linearizable history with a falsified response:%s", describe(operations[i:i+1]))
	}
	return true
}

// contradiction returns nothing if the history is linearizable: every operation looks as if
// it happened at one moment between its request and its response. ETags are all different.
// Otherwise it says why not.
func contradiction(operations []porcupine.Operation) string {
	writers := make(map[string]porcupine.Operation)
	for _, o := range operations {
		if !wrote(o) || o.Output.(outcome).etag == "" {
			continue
		}
		version := fmt.Sprint(o.Input.(operation).id, " ", o.Output.(outcome).etag)
		if other, ok := writers[version]; ok {
			return "two writes of a plant have the same ETag:" + describe([]porcupine.Operation{other, o})
		}
		writers[version] = o
	}
	result := porcupine.CheckOperationsTimeout(registers(), operations, service.Patience)
	if result == porcupine.Ok {
		return ""
	}
	return fmt.Sprintf("a history of %d operations: got %s, want it to be linearizable", len(operations), result)
}

// isContradiction reports whether check would find that operations contradict each other,
// and not only that it took too long.
func isContradiction(operations []porcupine.Operation) bool {
	found := contradiction(operations)
	return found != "" && !strings.Contains(found, string(porcupine.Unknown))
}

// explain returns the operations that contradict each other. This can take minutes.
func explain(operations []porcupine.Operation) string {
	var text strings.Builder
	for _, plant := range byPlant(operations) {
		if isIllegal(plant) {
			text.WriteString("\nthese operations, with the times of request and response, fit into no order:" + describe(smallest(plant)))
		}
	}
	return text.String()
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
	return porcupine.CheckOperationsTimeout(registers(), operations, service.Patience) == porcupine.Illegal
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
