package models

import "plantstore/database"

// PlantStore keeps the plants of tests.
type PlantStore = Store[Plant, int64]

// NewPlantStore returns the store of the plants in db, which must be migrated.
func NewPlantStore(db *database.DB) *PlantStore { return NewStore[Plant, int64](db) }
