package models

import (
	"context"
	"database/sql"
	"time"
)

// Condition is what must hold of a row for a write to happen. It is decided by
// the statement that writes: of two writers with the same version, one wins.
type Condition struct {
	// Versions are those, by Plant.UpdatedAt, of which the row must have one; nil
	// asks for none.
	Versions []time.Time
	// Exists asks for any row, Absent for none.
	Exists, Absent bool
}

// matches returns the SQL for what c asks of a row that exists.
func (c Condition) matches() string {
	if c.Versions == nil {
		return ""
	}
	return " AND updated_at IN @versions"
}

// Put stores p under its id, whether or not there is a plant already, and fills
// in its CreatedAt and UpdatedAt. When it returns nil, the row is on disk.
//
// It fails with an *InvalidError when p breaks a rule, ErrCondition when c does
// not hold, ErrOverloaded when too much is waiting, and an error that wraps
// ErrUnavailable when the database cannot be reached in time. So do Patch and
// Delete.
func (s *PlantStore) Put(ctx context.Context, p *Plant, c Condition) error {
	if err := p.Validate(); err != nil {
		return err
	}
	const insert = "INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (@id, @name, @tag, @now, @now) ON CONFLICT (id) DO "
	set := "UPDATE SET name = @name, tag = @tag, updated_at = " + s.db.After("plants.updated_at", "@now")
	var statement string
	switch replaces := c.Versions != nil || c.Exists; {
	case replaces && c.Absent:
		return ErrCondition // no row is both there and not
	case replaces:
		statement = "UPDATE plants" + set[len("UPDATE"):] + " WHERE id = @id" + c.matches()
	case c.Absent:
		statement = insert + "NOTHING"
	default:
		statement = insert + set
	}
	stored, err := s.write(ctx, statement, c, sql.Named("id", p.ID), sql.Named("name", p.Name), sql.Named("tag", p.Tag))
	if err != nil {
		return storeError("put plant", err)
	}
	if stored == nil {
		return ErrCondition
	}
	*p = *stored
	return nil
}

// PlantPatch is a change to a plant. What is nil stays as it is.
type PlantPatch struct {
	Name *string
	Tag  **string // to nil: the plant has no tag any more
}

// Patch changes the plant id and returns it as it is then. When it returns no
// error, the row is on disk.
//
// It fails with an *InvalidError when the patch breaks a rule, ErrNotFound when
// there is no such plant, ErrCondition when c does not hold, and an error that
// wraps ErrUnavailable when the database cannot be reached in time.
func (s *PlantStore) Patch(ctx context.Context, id int64, patch PlantPatch, c Condition) (*Plant, error) {
	// The rules look at each text by itself; the one that stays has passed them.
	changed := Plant{ID: id, Name: "stays"}
	statement := "UPDATE plants SET updated_at = " + s.db.After("updated_at", "@now")
	if patch.Name != nil {
		changed.Name = *patch.Name
		statement += ", name = @name"
	}
	if patch.Tag != nil {
		changed.Tag = *patch.Tag
		statement += ", tag = @tag"
	}
	if err := changed.Validate(); err != nil {
		return nil, err
	}
	if c.Absent {
		return nil, s.refuse(ctx, id, c)
	}
	stored, err := s.write(ctx, statement+" WHERE id = @id"+c.matches(), c,
		sql.Named("id", id), sql.Named("name", changed.Name), sql.Named("tag", changed.Tag))
	if err != nil {
		return nil, storeError("patch plant", err)
	}
	if stored == nil {
		return nil, s.refuse(ctx, id, c)
	}
	return stored, nil
}

// Delete removes the plant id. When it returns nil, it is gone from the disk.
//
// It fails with ErrNotFound when there is no such plant, ErrCondition when c does
// not hold, and an error that wraps ErrUnavailable when the database cannot be
// reached in time.
func (s *PlantStore) Delete(ctx context.Context, id int64, c Condition) error {
	if c.Absent {
		return s.refuse(ctx, id, c)
	}
	stored, err := s.write(ctx, "DELETE FROM plants WHERE id = @id"+c.matches(), c, sql.Named("id", id))
	if err != nil {
		return storeError("delete plant", err)
	}
	if stored == nil {
		return s.refuse(ctx, id, c)
	}
	return nil
}

// write runs a statement that writes one row at most, and returns that row, or
// nil where there is none.
func (s *PlantStore) write(ctx context.Context, statement string, c Condition, args ...any) (*Plant, error) {
	ctx, end, err := s.writes.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	args = append(args, sql.Named("now", s.db.NowFunc()), sql.Named("versions", c.Versions))
	var rows []Plant
	if err := s.db.WithContext(ctx).Raw(statement+" RETURNING *", args...).Scan(&rows).Error; err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // no row is no error
	}
	return &rows[0], nil
}

// refuse says why no row of id was written: ErrNotFound, or ErrCondition where c
// asked for something.
func (s *PlantStore) refuse(ctx context.Context, id int64, c Condition) error {
	if c.Versions == nil && !c.Absent {
		return ErrNotFound
	}
	if _, err := s.Get(ctx, id); err != nil {
		return err
	}
	return ErrCondition
}
