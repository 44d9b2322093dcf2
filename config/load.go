package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"plantstore/configs"
)

// DefaultFile is read where it exists and no other file is named.
const DefaultFile = "configs/config.yaml"

// FileVariable names another configuration file, which must then exist.
const FileVariable = "PLANTSTORE_CONFIG"

// Sources says where the configuration comes from. A flag beats the environment,
// which beats the file, which beats the defaults.
type Sources struct {
	// Flags maps keys to flags; only those that were set count.
	Flags map[string]*pflag.Flag
	// Environ is the environment, as os.Environ returns it.
	Environ []string
	// File is the path of the configuration file; where it is empty,
	// PLANTSTORE_CONFIG names it, or else it is DefaultFile.
	File string
}

// Load reads, merges and validates the configuration. An error is one line that
// names the key and what is allowed, never the value: it may be a secret.
func Load(src Sources) (*Config, error) {
	v := viper.New()
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(configs.Defaults)); err != nil {
		return nil, fmt.Errorf("the built-in configuration: %w", err)
	}
	keys, defaultURL := v.AllKeys(), v.GetString("database.url")
	env := environment(src.Environ)

	file, required := src.File, true
	if file == "" {
		file = env[FileVariable]
	}
	if file == "" {
		file, required = DefaultFile, false
	}
	if err := mergeFile(v, keys, file, required); err != nil {
		return nil, err
	}
	databaseNamed := v.GetString("database.url") != defaultURL

	if err := checkVariables(keys, env); err != nil {
		return nil, err
	}
	for _, key := range keys {
		value, found, err := env.lookup(Variable(key))
		if err != nil {
			return nil, err
		}
		if flag := src.Flags[key]; flag != nil && flag.Changed {
			value, found = flag.Value.String(), true
		}
		if found {
			v.Set(key, value)
			databaseNamed = databaseNamed || key == "database.url"
		}
	}

	var c Config
	if err := decode(v, &c); err != nil {
		return nil, err
	}
	for _, list := range []*[]string{&c.Auth.Tokens, &c.Server.TrustedProxies, &c.Server.CORSOrigins} {
		*list = slices.DeleteFunc(*list, func(s string) bool { return s == "" })
	}
	if err := c.validate(databaseNamed); err != nil {
		return nil, err
	}
	return &c, nil
}

// Variable returns the environment variable that sets key.
func Variable(key string) string {
	switch key {
	case "server.port":
		return "PORT"
	case "database.url":
		return "DATABASE_URL"
	}
	return "PLANTSTORE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// yamlLine finds the line number in an error of the YAML parser, the rest of
// which may repeat values.
var yamlLine = regexp.MustCompile(`line \d+`)

func mergeFile(v *viper.Viper, known []string, path string, required bool) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the configuration file: %w", err)
	}
	file := viper.New()
	file.SetConfigType("yaml")
	if err := file.ReadConfig(bytes.NewReader(text)); err != nil {
		return fmt.Errorf("%s is not valid YAML: see %s", path, cmp.Or(yamlLine.FindString(err.Error()), "its beginning"))
	}
	for _, key := range file.AllKeys() {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%s: unknown key %q", path, key)
		}
	}
	if err := v.MergeConfigMap(file.AllSettings()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// variables is an environment.
type variables map[string]string

func environment(environ []string) variables {
	vars := make(variables, len(environ))
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		vars[name] = value
	}
	return vars
}

// lookup returns the value of the variable name, or of the file that name_FILE
// names, without the line's end. An empty variable counts as not set, as
// docker compose passes those that have no value.
func (vars variables) lookup(name string) (value string, found bool, err error) {
	value, path := vars[name], vars[name+"_FILE"]
	switch {
	case path == "":
		return value, value != "", nil
	case value != "":
		return "", false, fmt.Errorf("%s and %s_FILE are both set: set one of them", name, name)
	}
	text, err := os.ReadFile(path)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err // without the path: it may be the secret itself
	}
	if err != nil {
		return "", false, fmt.Errorf("%s_FILE: %w", name, err)
	}
	return strings.TrimRight(string(text), "\r\n"), true, nil
}

// kubernetesLink matches the variables that Kubernetes sets in every pod for a
// service named plantstore.
var kubernetesLink = regexp.MustCompile(`^PLANTSTORE_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$`)

// checkVariables refuses a variable of ours that sets nothing, most often a
// mistyped one.
func checkVariables(keys []string, vars variables) error {
	known := []string{FileVariable}
	for _, key := range keys {
		known = append(known, Variable(key), Variable(key)+"_FILE")
	}
	var unknown []string
	for name := range vars {
		if strings.HasPrefix(name, "PLANTSTORE_") && !slices.Contains(known, name) && !kubernetesLink.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("unknown environment variable %s: the README lists those there are", strings.Join(unknown, ", "))
}

// decode fills c from v, and on failure names the first key whose value has the
// wrong type.
func decode(v *viper.Viper, c *Config) error {
	err := v.Unmarshal(c, viper.DecodeHook(mapstructure.ComposeDecodeHookFunc(
		refuseOtherKinds,
		mapstructure.StringToTimeDurationHookFunc(),
		splitList,
	)))
	if err == nil {
		return nil
	}
	failed, ok := errors.AsType[*mapstructure.DecodeError](err)
	if !ok {
		return errors.New("the configuration cannot be read")
	}
	key := strings.ToLower(failed.Name())
	return fmt.Errorf("%s (%s) must be %s", key, Variable(key), typeOf(key))
}

// typeOf describes the type of a key's value in words.
func typeOf(key string) string {
	t := reflect.TypeFor[Config]()
	for part := range strings.SplitSeq(key, ".") {
		name, _, _ := strings.Cut(part, "[")
		for field := range t.Fields() {
			if field.Tag.Get("mapstructure") == name {
				t = field.Type
				break
			}
		}
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 500ms, 5s or 2m"
	case t.Kind() == reflect.Slice:
		return "a list, separated by commas in the environment"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Struct:
		return "a group of keys"
	}
	return "an integer"
}

// refuseOtherKinds stops the conversions between kinds that Viper allows, such
// as 80.5 for an integer, 1 for true, and 5 for five nanoseconds. Text is
// parsed: the environment has nothing else.
func refuseOtherKinds(from, to reflect.Type, value any) (any, error) {
	fits := true
	switch kind := from.Kind(); {
	case kind == reflect.String && value != "":
	case to == reflect.TypeFor[time.Duration]():
		fits = false
	case to.Kind() == reflect.Int, to.Kind() == reflect.Int64:
		fits = kind == reflect.Int
	case to.Kind() == reflect.Bool, to.Kind() == reflect.String:
		fits = kind == to.Kind()
	}
	if !fits {
		return nil, errors.New("wrong type")
	}
	return value, nil
}

// splitList cuts a text at its commas where a list is wanted.
func splitList(from, to reflect.Type, value any) (any, error) {
	if from.Kind() != reflect.String || to != reflect.TypeFor[[]string]() {
		return value, nil
	}
	parts := strings.Split(value.(string), ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts, nil
}
