package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Setting is a setting, as the tags of its field define it.
type Setting struct {
	Key, Variable, Default, Description string
	// Load sets the value, *** if that is a secret, and where it comes from: a flag, a variable,
	// the configuration file, or the default.
	Value, Source string
	SecretFile    string // from which Load has read the secret, or ""

	bounds string // "at least 1", or "" if the type has no other bounds
	secret bool   // the value is or has a password or a token
	field  reflect.Value
	rules  string // for validator
}

// Settings returns all settings in the order of their fields, which belong to a Config that stays empty.
var Settings = sync.OnceValue(func() []Setting { return settingsOf(reflect.ValueOf(new(Config)).Elem(), "") })

// SettingOf returns the setting with the given key. It panics if the key is unknown.
func SettingOf(key string) Setting {
	all := Settings()
	return all[slices.IndexFunc(all, func(s Setting) bool { return s.Key == key })]
}

func settingsOf(section reflect.Value, prefix string) (all []Setting) {
	for field, value := range section.Fields() {
		key, rules := prefix+field.Tag.Get("key"), field.Tag.Get("validate")
		if value.Kind() == reflect.Struct {
			all = append(all, settingsOf(value, key+".")...)
			continue
		}
		all = append(all, Setting{
			Key:      key,
			Variable: cmp.Or(field.Tag.Get("env"), "PLANTSTORE_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))),
			Default:  field.Tag.Get("default"), Description: field.Tag.Get("desc"),
			bounds: boundsOf(rules), secret: field.Tag.Get("secret") == "true", field: value, rules: rules,
		})
	}
	return all
}

// boundsOf describes rules for validator.
func boundsOf(rules string) (bounds string) {
	var lowest string
	for rule := range strings.SplitSeq(rules, ",") {
		name, parameter, _ := strings.Cut(rule, "=")
		switch name {
		case "min":
			lowest, bounds = parameter, "at least "+parameter
		case "max":
			bounds = "from " + lowest + " to " + parameter
		case "oneof":
			values := strings.Fields(parameter)
			last := len(values) - 1
			bounds = strings.Join(values[:last], ", ") + " or " + values[last]
		}
	}
	return bounds
}

// Kind returns the kind of the value of s.
func (s Setting) Kind() reflect.Kind { return s.field.Kind() }

// text returns the value of s, as in the environment.
func (s Setting) text() string {
	text := fmt.Sprint(s.field.Interface())
	if list, ok := s.field.Interface().([]string); ok {
		text = strings.Join(list, ",")
	}
	// The path of a SQLite file is no secret, unless it is a URL that was put there by mistake.
	isFile := s.Key == "database.url" && strings.HasPrefix(text, "sqlite:") && !strings.Contains(text, "@")
	if s.secret && text != "" && !isFile {
		return "***"
	}
	return text
}

// String returns the key and the variable of s, to name it in messages.
func (s Setting) String() string { return s.Key + " (" + s.Variable + ")" }

// Usage returns the description and the bounds of s.
func (s Setting) Usage() string {
	if s.bounds == "" {
		return s.Description
	}
	return s.Description + " (" + s.bounds + ")"
}

// allowed describes the type and bounds of s.
func (s Setting) allowed() string {
	kind := "a decimal integer"
	switch s.field.Interface().(type) {
	case time.Duration:
		kind = "a duration such as 500ms, 5s or 2m"
	case []string:
		kind = "a list, comma-separated in the environment"
	case bool:
		kind = "true or false"
	case string:
		kind = "a string"
	}
	switch {
	case s.bounds == "":
		return kind
	case s.field.Kind() == reflect.String:
		return s.bounds
	case s.field.Kind() == reflect.Slice:
		return kind + ", of " + s.bounds
	}
	return kind + ", " + s.bounds
}

var listSeparator = regexp.MustCompile(`\s*,\s*`)

// parse is a decoding hook. It parses text, which is all that the environment has, and
// rejects the conversions that mapstructure would make: 80.5 to an integer, and 5 to
// five nanoseconds.
func parse(from, to reflect.Type, value any) (any, error) {
	text, isText := value.(string)
	switch {
	case to == reflect.TypeFor[time.Duration]() && isText:
		return time.ParseDuration(text)
	case to.Kind() == reflect.Bool && isText:
		return strconv.ParseBool(text)
	case to.Kind() == reflect.Slice && isText:
		return slices.DeleteFunc(listSeparator.Split(strings.TrimSpace(text), -1), func(s string) bool { return s == "" }), nil
	case to.Kind() == reflect.Int || to.Kind() == reflect.Int64:
		if isText {
			return strconv.ParseInt(text, 10, 64)
		}
		if from.Kind() != reflect.Int || to == reflect.TypeFor[time.Duration]() {
			return nil, errors.New("wrong type")
		}
	}
	return value, nil
}
