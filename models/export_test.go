package models

import (
	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/table"
)

// PlantStore keeps the plants of tests.
type PlantStore = Store[Plant, int64]

// NewPlantStore returns the store of the plants in db, which must be migrated.
func NewPlantStore(db *database.DB) *PlantStore { return NewStore[Plant, int64](db) }

// Each returns a function for Export that calls yield for each row.
func Each[T any](yield func(*T) error) func([]T) error {
	return func(rows []T) error {
		for i := range rows {
			if err := yield(&rows[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// PageSQL returns the query for the rows of a list.
func (s *Store[T, K]) PageSQL(tx *gorm.DB, f Filter[K]) (text string, values []any) {
	built := s.page(tx, f).Session(&gorm.Session{DryRun: true}).Table(s.table.Name).Select(table.Names(s.table.Columns)).Find(&[]map[string]any{})
	return built.Statement.SQL.String(), built.Statement.Vars
}
