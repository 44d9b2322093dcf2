package controllers

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore/models"
)

// Timestamps are the times of a stored row.
type Timestamps struct {
	// When the row was created, in UTC, to the microsecond.
	CreatedAt Timestamp `json:"created_at" binding:"required" swaggertype:"string" format:"date-time" example:"2026-11-21T10:00:00.120000Z"`
	// When the row was last written.
	UpdatedAt Timestamp `json:"updated_at" binding:"required" swaggertype:"string" format:"date-time" example:"2026-11-21T10:00:00.123456Z"`
} // @name Timestamps

// Timestamp is a time in a response: in UTC, always with six fractional digits, so that it sorts as
// text.
type Timestamp time.Time

// MarshalJSONTo writes nine digits and keeps six: time.RFC3339Nano, which leaves out zeros
// at the end, takes less time than other layouts.
func (t Timestamp) MarshalJSONTo(enc *jsontext.Encoder) error {
	text := append(enc.AvailableBuffer(), '"')
	text = time.Time(t).UTC().Truncate(time.Microsecond).Add(time.Nanosecond).AppendFormat(text, time.RFC3339Nano)
	return enc.WriteValue(append(text[:len(`"2006-01-02T15:04:05.000000`)], 'Z', '"'))
}

// EchoedTimestamps are the times of a row that a client sends back as it was read.
type EchoedTimestamps struct {
	// Ignored, but must be RFC 3339: a row can be sent back as it was read.
	CreatedAt *string `json:"created_at,omitzero" format:"date-time" extensions:"x-echo"`
	// Ignored, but must be RFC 3339: a row can be sent back as it was read.
	UpdatedAt *string `json:"updated_at,omitzero" format:"date-time" extensions:"x-echo"`
} // @name EchoedTimestamps

// checkTimestamps rejects timestamps that are not RFC 3339.
func (t *EchoedTimestamps) checkTimestamps() (err error) {
	if t.CreatedAt != nil {
		_, err = models.ParseTime("created_at", *t.CreatedAt)
	}
	if t.UpdatedAt != nil && err == nil {
		_, err = models.ParseTime("updated_at", *t.UpdatedAt)
	}
	return err
}
