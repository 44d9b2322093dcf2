package models

import (
	"reflect"

	"plantstore/database/table"
)

// Ref is the rule of a column with the key of a row of the model To, which must exist, or nil. A migration
// declares the reference in the database, which enforces it.
type Ref struct{ To Model }

// Schema implements [Rule].
func (r Ref) Schema() map[string]any {
	return map[string]any{"x-references": table.OfModel(r.To).Name}
}

// SQL implements [Rule].
func (r Ref) SQL() table.Type {
	key := table.OfModel(r.To).Key
	if rule := r.To.Rules()[key.DBName]; rule != nil {
		return rule.SQL()
	}
	return key.Type
}

func (r Ref) fits(t reflect.Type) bool { return t == table.OfModel(r.To).Key.FieldType }

func (Ref) check(field string, value reflect.Value) error {
	if value.Type() == reflect.TypeFor[ID]() {
		return UUID().Check(field, value.String())
	}
	return nil
}

// Unique is Rule for a column whose values are unique in the table. A migration declares that in the database,
// which enforces it.
type Unique struct{ Rule }

// Schema implements [Rule].
func (u Unique) Schema() map[string]any {
	schema := u.Rule.Schema()
	schema["x-unique"] = true
	return schema
}
