package models

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"
)

// Get returns the plant id. It fails with ErrNotFound where there is none,
// ErrOverloaded when too much is waiting, and an error that wraps ErrUnavailable
// when the database cannot be reached in time.
func (s *PlantStore) Get(ctx context.Context, id int64) (*Plant, error) {
	ctx, end, err := s.reads.begin(ctx)
	if err != nil {
		return nil, storeError("get plant", err)
	}
	defer end()
	var p Plant
	err = s.db.Reads(ctx).Where("id = ?", id).Take(&p).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, storeError("get plant", err)
	}
	return &p, nil
}

// PlantFilter says which plants to list.
type PlantFilter struct {
	After *int64  // only those with a greater id
	Tag   *string // only those with this tag
	Name  string  // only those with this part in their name, in any case
	Limit int     // at most so many
}

// List returns plants by ascending id. What it costs does not depend on how many
// come before f.After. It fails with ErrOverloaded when too much is waiting, and
// with an error that wraps ErrUnavailable when the database cannot be reached in
// time.
func (s *PlantStore) List(ctx context.Context, f PlantFilter) ([]Plant, error) {
	ctx, end, err := s.reads.begin(ctx)
	if err != nil {
		return nil, storeError("list plants", err)
	}
	defer end()
	query := s.db.Reads(ctx).Order("id").Limit(f.Limit)
	if f.After != nil {
		query = query.Where("id > ?", *f.After)
	}
	if f.Tag != nil {
		query = query.Where("tag = ?", *f.Tag)
	}
	if f.Name != "" {
		condition, argument := s.db.Contains("name", f.Name)
		query = query.Where(condition, argument)
	}
	plants := make([]Plant, 0, f.Limit)
	if err := query.Find(&plants).Error; err != nil {
		return nil, storeError("list plants", err)
	}
	return plants, nil
}

// Export calls yield for every plant, by ascending id, as they are at one moment:
// writes that come meanwhile are not seen. The times of the plants are not set.
// It ends with the first error of yield, with ErrOverloaded where too many
// exports and imports are running, and with one that wraps ErrUnavailable when the
// database cannot be reached.
func (s *PlantStore) Export(ctx context.Context, yield func(*Plant) error) (err error) {
	if err := s.beginBulk(); err != nil {
		return err
	}
	defer s.endBulk()
	rows, err := s.db.Reads(ctx).Raw("SELECT id, name, tag FROM plants ORDER BY id").Rows()
	if err != nil {
		return storeError("export plants", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p Plant
		if err := rows.Scan(&p.ID, &p.Name, &p.Tag); err != nil {
			return storeError("export plants", err)
		}
		if err := yield(&p); err != nil {
			return err
		}
	}
	return storeError("export plants", rows.Err())
}

// beginBulk lets an import or an export begin, unless too many are running.
func (s *PlantStore) beginBulk() error {
	select {
	case s.bulk <- struct{}{}:
		return nil
	default:
		return fmt.Errorf("%w: %d imports and exports are running", ErrOverloaded, maxBulk)
	}
}

func (s *PlantStore) endBulk() { <-s.bulk }
