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

// Timestamp is a time.Time of a model in requests and responses. In responses it is in UTC, always with six
// fractional digits, so that it sorts as text.
type Timestamp time.Time

// MarshalJSONTo writes what String returns.
func (t Timestamp) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteValue(append(t.appendTo(append(enc.AvailableBuffer(), '"')), '"'))
}

// appendTo writes nine digits and keeps six: time.RFC3339Nano, which leaves out zeros at the end,
// takes less time than other layouts.
func (t Timestamp) appendTo(text []byte) []byte {
	start := len(text)
	text = time.Time(t).UTC().Truncate(time.Microsecond).Add(time.Nanosecond).AppendFormat(text, time.RFC3339Nano)
	return append(text[:start+len("2006-01-02T15:04:05.000000")], 'Z')
}

func (t Timestamp) String() string { return string(t.appendTo(nil)) }

// UnmarshalText reads a time of RFC 3339.
func (t *Timestamp) UnmarshalText(text []byte) error {
	at, err := models.ParseTime("", string(text))
	*t = Timestamp(at)
	return err
}

// EchoedTimestamps are the times of a row that a client sends back as it was read.
type EchoedTimestamps struct {
	// Ignored, but must be RFC 3339: a row can be sent back as it was read.
	CreatedAt *Timestamp `json:"created_at,omitzero" swaggertype:"string" format:"date-time" extensions:"x-echo"`
	// Ignored, but must be RFC 3339: a row can be sent back as it was read.
	UpdatedAt *Timestamp `json:"updated_at,omitzero" swaggertype:"string" format:"date-time" extensions:"x-echo"`
} // @name EchoedTimestamps
