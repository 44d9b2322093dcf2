package controllers

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

func TestTimestampsHaveSixDigits(t *testing.T) {
	zone := time.FixedZone("", 2*60*60)
	for want, at := range map[string]time.Time{
		`"2026-11-21T10:00:00.000000Z"`: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
		`"2026-11-21T10:00:00.100000Z"`: time.Date(2026, 11, 21, 12, 0, 0, 100_000_000, zone),
		`"2026-11-21T10:00:00.181150Z"`: time.Date(2026, 11, 21, 10, 0, 0, 181_150_000, time.UTC),
		`"2026-11-21T10:00:00.000001Z"`: time.Date(2026, 11, 21, 10, 0, 0, 1_000, time.UTC),
		`"2026-11-21T10:00:00.123456Z"`: time.Date(2026, 11, 21, 10, 0, 0, 123_456_789, time.UTC),
		`"9999-12-31T23:59:59.000000Z"`: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		`"0001-01-01T00:00:00.000000Z"`: {},
	} {
		t.Run(want, func(t *testing.T) {
			if got, err := json.Marshal(Timestamp(at)); err != nil || string(got) != want {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}
