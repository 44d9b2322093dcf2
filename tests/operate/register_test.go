package operate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"
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
