package models

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// PlantStore keeps plants in a database. It is safe for concurrent use.
type PlantStore struct {
	db      *gorm.DB
	timeout time.Duration
}

// NewPlantStore returns a store on db, whose schema must be migrated. An
// operation that takes longer than timeout ends with ErrUnavailable.
func NewPlantStore(db *gorm.DB, timeout time.Duration) *PlantStore {
	return &PlantStore{db: db, timeout: timeout}
}

// Create validates and stores a new plant and fills in its CreatedAt and
// UpdatedAt. When it returns nil, the row is on disk.
//
// It fails with an *InvalidError when p breaks a rule, an *ExistsError when the
// id is taken, and an error that wraps ErrUnavailable when the database cannot
// be reached in time.
func (s *PlantStore) Create(ctx context.Context, p *Plant) error {
	if err := p.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	db := s.db.WithContext(ctx)

	for {
		insert := db.Clauses(clause.OnConflict{DoNothing: true}).Create(p)
		if insert.Error != nil {
			return storeError("insert plant", insert.Error)
		}
		if insert.RowsAffected == 1 {
			return nil
		}

		var stored Plant
		err := db.Where("id = ?", p.ID).Take(&stored).Error
		if errors.Is(err, gorm.ErrRecordNotFound) {
			continue // deleted between the two statements: the id is free again
		}
		if err != nil {
			return storeError("read the plant that holds the id", err)
		}
		return &ExistsError{ID: p.ID, Same: p.SameContent(&stored)}
	}
}
