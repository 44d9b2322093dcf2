package main

import (
	"encoding/json"
	"log"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"plantstore/database/table"
	"plantstore/models"
)

// object is a JSON object.
type object = map[string]any

// at returns the object at path in o. It adds empty ones for absent names.
func at(o object, path ...string) object {
	for _, name := range path {
		if o[name] == nil {
			o[name] = object{}
		}
		o = o[name].(object)
	}
	return o
}

// walk calls visit for each object in value.
func walk(value any, visit func(object)) {
	list, _ := value.([]any)
	if o, ok := value.(object); ok {
		visit(o)
		list = slices.Collect(maps.Values(o))
	}
	for _, child := range list {
		walk(child, visit)
	}
}

// nameOf returns the name of a model, as in x-rule and in prose.
func nameOf(model models.Model) string { return strings.ToLower(reflect.TypeOf(model).Name()) }

// rules returns the rules of all models by model and column, as in plant.name, and the rules
// of a part of a text, as in plant.name.part.
func rules() map[string]models.Rule {
	all := make(map[string]models.Rule)
	for _, model := range models.All() {
		for column, rule := range model.Rules() {
			name := nameOf(model) + "." + column
			all[name] = rule
			if text, ok := models.Base(rule).(models.Text); ok {
				all[name+".part"] = text.Part()
			}
		}
	}
	return all
}

// addRules lets the properties of the resources' schemas name the rules of their columns, and have the formats of the
// fields' types. Only what a client reads, or sends back as it was read, has the columns of the server.
func addRules(schemas object) {
	formats := map[reflect.Type]string{reflect.TypeFor[int64](): "int64", reflect.TypeFor[time.Time](): "date-time"}
	for _, r := range resources() {
		d := describe(r)
		for _, name := range []string{d.Type, "New" + d.Type, "Stored" + d.Type, d.Type + "Replacement", d.Type + "Patch"} {
			if schemas[name] == nil { // only POST /plants responds with a Plant
				continue
			}
			properties, rules := at(schemas, name, "properties"), r.Model().Rules()
			for column := range rules {
				property, ok := properties[column].(object)
				if !ok {
					continue
				}
				property["x-rule"] = d.Rule + "." + column
				switch {
				case !rules.Server(column), name == "Stored"+d.Type:
				case name == d.Type+"Replacement":
					property["x-echo"] = true
				default:
					delete(properties, column)
				}
			}
			for _, c := range table.OfModel(r.Model()).Content {
				if property, ok := properties[c.DBName].(object); ok && formats[c.IndirectFieldType] != "" {
					property["format"] = formats[c.IndirectFieldType]
				}
			}
			checkContent(r.Model(), name, at(schemas, name))
		}
	}
}

// checkContent ends the program if the properties of a schema are not as the columns of the model demand.
func checkContent(model models.Model, name string, schema object) {
	required, _ := schema["required"].([]any)
	for _, c := range table.OfModel(model).Content {
		if model.Rules().Server(c.DBName) { // whose properties depend on the schema
			continue
		}
		property, ok := at(schema, "properties")[c.DBName].(object)
		switch isRequired := slices.Contains(required, any(c.DBName)); {
		case !ok:
			log.Fatalf("%s has no property with the name of the column %s: see the json tags of the content", name, c.DBName)
		case isRequired && c.FieldType.Kind() == reflect.Pointer:
			log.Fatalf(`%s.%s has binding:"required", but the model's %[2]s is a pointer`, name, c.DBName)
		case !isRequired && c.FieldType.Kind() != reflect.Pointer:
			log.Fatalf(`%s.%s needs binding:"required", or the model's field %s must be a pointer`, name, c.DBName, c.Name)
		case property["example"] == nil && isText(models.Base(model.Rules()[c.DBName])):
			log.Fatalf("%s.%s needs an example", name, c.DBName)
		}
	}
}

// isText reports whether rule is the rule of a text, of which only an example can tell what it looks like.
func isText(rule models.Rule) bool {
	_, is := rule.(models.Text)
	return is
}

// completeSchema replaces x-rule by the rule that it names, makes what has x-ref the schema that it names, or null,
// and removes the names of constants in Go and, beside a $ref, the names of parameters, which
// swag calls summary.
func completeSchema(schema object) {
	if schema["$ref"] != nil {
		delete(schema, "summary")
	}
	if reference, ok := schema["x-ref"].(string); ok {
		delete(schema, "x-ref")
		delete(schema, "type")
		schema["oneOf"] = []any{object{"$ref": "#/components/schemas/" + reference}, object{"type": "null"}}
	}
	maps.DeleteFunc(schema, func(key string, _ any) bool { return strings.HasPrefix(key, "x-enum-") })
	name, ok := schema["x-rule"].(string)
	if !ok {
		return
	}
	delete(schema, "x-rule")
	rule, ok := rules()[name]
	if !ok {
		log.Fatalf("x-rule=%s: no model of models.All has this rule", name)
	}
	says := rule.Schema()
	comment, isCommented := schema["description"].(string)
	if words, ok := says["description"].(string); ok && isCommented {
		says["description"] = strings.TrimSuffix(comment, ".") + ": " + words + "."
	}
	if text, ok := schema["example"].(string); ok && (says["type"] == "object" || says["type"] == "array") {
		schema["example"] = decode(text)
	}
	maps.Copy(schema, says)
}

// decode returns the value of an example in JSON.
func decode(text string) (value any) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		log.Fatalf("the example %s: %v", text, err)
	}
	return value
}

// limitInt64 adds the limits of an int64, which its format alone does not imply, unless it has its
// own.
func limitInt64(schema object) {
	for limit, value := range map[string]int64{"minimum": math.MinInt64, "maximum": math.MaxInt64} {
		if schema["format"] == "int64" && schema[limit] == nil {
			schema[limit] = value
		}
	}
}
