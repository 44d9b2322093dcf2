package table_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"plantstore/database/table"
)

// pot is a model with a text key, which is not its first field.
type pot struct {
	Width     int64
	Code      string `gorm:"primaryKey"`
	Label     *string
	CreatedAt time.Time
	Clay      bool `gorm:"column:is_clay"`
	UpdatedAt time.Time
}

func TestOf(t *testing.T) {
	pots := table.Of[pot]()
	for _, test := range []struct{ name, got, want string }{
		{"the table has GORM's name", pots.Name, "pots"},
		{"the noun is the model's name", pots.Noun, "pot"},
		{"the key is the primary key", pots.Key.DBName, "code"},
		{"CreatedAt is a timestamp", pots.Created.DBName, "created_at"},
		{"UpdatedAt is a timestamp", pots.Updated.DBName, "updated_at"},
		{"the content is the other columns", table.Names(pots.Content), "width, label, is_clay"},
		{"the data begins with the key", table.Names(pots.Data), "code, width, label, is_clay"},
		{"the timestamps come last", table.Names(pots.Columns), "code, width, label, is_clay, created_at, updated_at"},
		{
			"an INSERT has the columns' names", pots.Insert.Write, "INSERT INTO pots (code, width, label, is_clay, created_at, updated_at)",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.got != test.want {
				t.Errorf("got %s, want %s", test.got, test.want)
			}
		})
	}
	t.Run("a column reads and writes its field", func(t *testing.T) {
		row := pot{Code: "a"}
		value := reflect.ValueOf(&row).Elem()
		if got := pots.Key.Of(value).String(); got != "a" {
			t.Errorf("got %q, want a", got)
		}
		now := time.Now()
		pots.Stamp(value, now)
		if row.CreatedAt != now || row.UpdatedAt != now {
			t.Errorf("got %v and %v, want %v", row.CreatedAt, row.UpdatedAt, now)
		}
	})
	t.Run("a noun may have several words", func(t *testing.T) {
		type GardenBed struct{}
		if got := table.NounOf(GardenBed{}); got != "garden bed" {
			t.Errorf("got %q, want garden bed", got)
		}
	})
	t.Run("a model needs no timestamps", func(t *testing.T) {
		type canary struct {
			ID int64 `gorm:"primaryKey;autoIncrement:false"`
		}
		canaries := table.Of[canary]()
		if canaries.Created != nil || canaries.Updated != nil || table.Names(canaries.Columns) != "id" {
			t.Errorf("got %+v", canaries)
		}
		canaries.Stamp(reflect.ValueOf(new(canary)).Elem(), time.Now()) // does not panic
	})
}

func TestOfPanics(t *testing.T) {
	type keyless struct{ Name string }
	type twoKeys struct {
		A, B int64 `gorm:"primaryKey"`
	}
	type counted struct{ ID int64 }
	type seconds struct {
		ID        string
		CreatedAt int64
	}
	for name, test := range map[string]struct {
		parse func()
		want  string
	}{
		"if the type is not a struct":          {func() { table.Of[int]() }, "parse the model int"},
		"if the model has no key":              {func() { table.Of[keyless]() }, "must have one primary key"},
		"if the model has two of them":         {func() { table.Of[twoKeys]() }, "must have one primary key"},
		"if the database would choose the key": {func() { table.Of[counted]() }, "autoIncrement:false"},
		"if a timestamp is a number":           {func() { table.Of[seconds]() }, "CreatedAt is not a time.Time"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if cause, _ := recover().(string); !strings.Contains(cause, test.want) {
					t.Errorf("got %q, want %q", cause, test.want)
				}
			}()
			test.parse()
		})
	}
}

func TestColumnEqual(t *testing.T) {
	type times struct {
		ID   int64 `gorm:"primaryKey;autoIncrement:false"`
		Name string
		Hash []byte
		At   *time.Time
		Note *string
	}
	now := time.Now()
	here := now.Round(0)
	row := times{Name: "a", Hash: []byte("x"), At: &here, Note: new("n")}
	for name, test := range map[string]struct {
		change func(*times)
		differ string // the columns
	}{
		"a copy has equal columns":       {func(r *times) { *r = times{0, "a", []byte("x"), &here, new("n")} }, ""},
		"a text differs":                 {func(r *times) { r.Name = "A" }, "name"},
		"bytes differ":                   {func(r *times) { r.Hash = nil }, "hash"},
		"a time differs":                 {func(r *times) { r.At = new(now.Add(1)) }, "at"},
		"nil differs from a value":       {func(r *times) { r.At, r.Note = nil, nil }, "at, note"},
		"nil differs from an empty text": {func(r *times) { r.Note = new("") }, "note"},
	} {
		t.Run(name, func(t *testing.T) {
			other := row
			test.change(&other)
			var differ []*table.Column
			for _, c := range table.Of[times]().Columns {
				a, b := reflect.ValueOf(&row).Elem(), reflect.ValueOf(&other).Elem()
				if c.Equal(a, b) != c.Equal(b, a) {
					t.Errorf("%s: a equals b, but b does not equal a", c.DBName)
				}
				if !c.Equal(a, b) {
					differ = append(differ, c)
				}
			}
			if got := table.Names(differ); got != test.differ {
				t.Errorf("got a difference in %q, want %q", got, test.differ)
			}
		})
	}
}
