package database

import (
	"testing"
	"time"
)

// TestSampleKeepsWhatIsKnown: of a client with a lost write and a later one whose position is
// known, reads must see both.
func TestSampleKeepsWhatIsKnown(t *testing.T) {
	begin := time.Now()
	for name, test := range map[string]struct{ had, want need }{
		"a lost write before":  {need{0, begin.Add(-time.Second)}, need{490, time.Time{}}},
		"and a later position": {need{500, begin.Add(-time.Second)}, need{500, time.Time{}}},
		"a lost write after":   {need{500, begin.Add(time.Second)}, need{500, begin.Add(time.Second)}},
		"no lost write":        {need{500, time.Time{}}, need{500, time.Time{}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.had.from(begin, 490); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestStandbyIsAhead(t *testing.T) {
	now := time.Now()
	s := &standbys{history: []moment{{now.Add(-2 * time.Second), 100}, {now.Add(-time.Second), 200}}}
	for name, test := range map[string]struct {
		had          moment
		ahead, known bool
	}{
		"less":                         {moment{now.Add(-3 * time.Second), 199}, false, true},
		"as much":                      {moment{now.Add(-3 * time.Second), 200}, false, true},
		"more":                         {moment{now.Add(-3 * time.Second), 201}, true, true},
		"more than the primary before": {moment{now, 201}, false, false},
		"nothing yet":                  {moment{}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if ahead, known := s.isAhead(test.had); ahead != test.ahead || known != test.known {
				t.Errorf("got %t, %t, want %t, %t", ahead, known, test.ahead, test.known)
			}
		})
	}
}
