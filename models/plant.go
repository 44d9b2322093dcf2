// Package models holds the GORM models, the rules of their values, and the stores
// that keep them in a database. It knows nothing of HTTP.
package models

import "time"

// Plant is a row of the table plants.
type Plant struct {
	// ID is chosen by the client; every int64 is valid. Without autoIncrement:false,
	// GORM would leave a key of zero to the database.
	ID   int64 `gorm:"primaryKey;autoIncrement:false"`
	Name string
	Tag  *string // nil if the plant has no tag, which differs from an empty tag
	// The store sets the timestamps, to the microsecond. Every write moves UpdatedAt
	// forward, so it is the version of the row.
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Rules returns the rules of the columns. The migrations repeat them as CHECK constraints.
func (Plant) Rules() Rules {
	return Rules{
		"name": Text{Min: 1, Max: 255, NotBlank: true},
		"tag":  Text{Max: 255},
	}
}

// Feed lets clients follow the changes of plants. It names the table with the state of the feed.
func (Plant) Feed() string { return "feed" }
