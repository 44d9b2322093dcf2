package config

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one setting, as the tags of its field define it.
type Setting struct {
	Key, Default, Description string
	// Bounds says which values are allowed, such as "at least 1". It is empty if any
	// value of the type is.
	Bounds string

	field reflect.Value
	tag   reflect.StructTag
}

// Settings returns all settings in the order of their fields.
func Settings() []Setting { return settingsOf(reflect.ValueOf(new(Config)).Elem(), "") }

// SettingOf returns the setting with the given key. It panics if there is none.
func SettingOf(key string) Setting {
	all := Settings()
	return all[slices.IndexFunc(all, func(s Setting) bool { return s.Key == key })]
}

func settingsOf(section reflect.Value, prefix string) (all []Setting) {
	for field, value := range section.Fields() {
		key := prefix + field.Tag.Get("key")
		switch {
		case field.Anonymous:
			all = append(all, settingsOf(value, prefix)...)
		case field.Type.Kind() == reflect.Struct:
			all = append(all, settingsOf(value, key+".")...)
		default:
			all = append(all, Setting{
				Key: key, Default: field.Tag.Get("default"), Description: field.Tag.Get("desc"),
				Bounds: boundsOf(field.Tag), field: value, tag: field.Tag,
			})
		}
	}
	return all
}

func boundsOf(tag reflect.StructTag) string {
	lowest, highest, names := tag.Get("min"), tag.Get("max"), strings.Fields(tag.Get("oneof"))
	switch {
	case len(names) > 0:
		last := len(names) - 1
		return strings.Join(names[:last], ", ") + " or " + names[last]
	case highest != "":
		return "from " + lowest + " to " + highest
	case lowest != "":
		return "at least " + lowest
	}
	return ""
}

// Variable returns the environment variable that sets s.
func (s Setting) Variable() string {
	switch s.Key {
	case "server.port":
		return "PORT"
	case "database.url":
		return "DATABASE_URL"
	}
	return "PLANTSTORE_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// Kind returns the kind of the value of s.
func (s Setting) Kind() reflect.Kind { return s.field.Kind() }

// String returns the key and the variable of s, to name it in messages.
func (s Setting) String() string { return s.Key + " (" + s.Variable() + ")" }

// Usage returns the description and the bounds of s.
func (s Setting) Usage() string {
	if s.Bounds == "" {
		return s.Description
	}
	return s.Description + " (" + s.Bounds + ")"
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
	case s.Bounds == "":
		return kind
	case s.field.Kind() == reflect.String:
		return s.Bounds
	case s.field.Kind() == reflect.Slice:
		return kind + ", of " + s.Bounds
	}
	return kind + ", " + s.Bounds
}

// inBounds reports whether the value of the field is within the bounds of its tags.
func (s Setting) inBounds() bool {
	if required := s.tag.Get("required") == "true"; required && s.field.Len() == 0 {
		return false
	}
	if names := strings.Fields(s.tag.Get("oneof")); len(names) > 0 {
		values, isList := s.field.Interface().([]string)
		if !isList {
			values = []string{s.field.String()}
		}
		return !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(names, v) })
	}
	lowest, highest := s.tag.Get("min"), s.tag.Get("max")
	return (lowest == "" || s.field.Int() >= s.bound(lowest)) && (highest == "" || s.field.Int() <= s.bound(highest))
}

// bound parses the text of a min or max tag.
func (s Setting) bound(text string) int64 {
	parsed, err := parse(reflect.TypeFor[string](), s.field.Type(), text)
	if err != nil {
		panic("config: tag of " + s.Key + ": " + err.Error())
	}
	return reflect.ValueOf(parsed).Int()
}

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
		parts := strings.Split(text, ",")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		return parts, nil
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
