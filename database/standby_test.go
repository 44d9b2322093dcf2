package database

import (
	"testing"
	"time"
)

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
