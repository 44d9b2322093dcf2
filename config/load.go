package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/go-playground/validator/v10"
	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// DefaultFile is read if it exists and no other file is named.
const DefaultFile = "configs/config.yaml"

// FileVariable is the environment variable that names another configuration file.
const FileVariable = "PLANTSTORE_CONFIG"

// Load reads, merges and validates the configuration. Flags, by key, override the
// environment, which overrides the file, which overrides the defaults. If file is empty,
// PLANTSTORE_CONFIG names it, and otherwise it is DefaultFile. An error is a line that
// names the key and the valid values, but not the value, which may be a secret. Production
// requires the settings of the database only of a command that uses it.
func Load(file string, flags map[string]*pflag.Flag, usesDatabase bool) (*Config, error) {
	c, _, err := load(file, flags, usesDatabase)
	return c, err
}

// Effective is a setting with its value, *** if that is a secret, and where it comes from:
// a flag, a variable, the configuration file, or the default.
type Effective struct {
	Setting
	Value, Source string
}

// Describe is Load, but returns all settings with their values.
func Describe(file string, flags map[string]*pflag.Flag) (all []Effective, err error) {
	c, v, err := load(file, flags, true)
	if err != nil {
		return nil, err
	}
	for _, s := range settingsOf(reflect.ValueOf(c).Elem(), "") {
		e := Effective{s, s.text(), "default"}
		switch flag := flags[s.Key]; {
		case flag != nil && flag.Changed:
			e.Source = "--" + flag.Name
		case os.Getenv(s.Variable+"_FILE") != "":
			e.Source = s.Variable + "_FILE"
		case os.Getenv(s.Variable) != "":
			e.Source = s.Variable
		case v.InConfig(s.Key):
			e.Source = v.ConfigFileUsed()
		}
		all = append(all, e)
	}
	return all, nil
}

func load(file string, flags map[string]*pflag.Flag, usesDatabase bool) (*Config, *viper.Viper, error) {
	var c Config
	settings := settingsOf(reflect.ValueOf(&c).Elem(), "")
	if err := checkVariables(settings); err != nil {
		return nil, nil, err
	}
	v := viper.New()
	for _, s := range settings {
		if err := bind(v, s, flags[s.Key]); err != nil {
			return nil, nil, err
		}
	}
	databaseSet := !usesDatabase || v.IsSet("database.url")
	if err := readFile(v, settings, cmp.Or(file, os.Getenv(FileVariable))); err != nil {
		return nil, nil, err
	}
	validate := validator.New()
	for _, s := range settings {
		v.SetDefault(s.Key, s.Default)
		target := s.field.Addr().Interface()
		err := v.UnmarshalKey(s.Key, target, strictly)
		if list, ok := target.(*[]string); ok {
			*list = slices.DeleteFunc(*list, func(s string) bool { return s == "" })
		}
		if err != nil || validate.Var(s.field.Interface(), s.rules) != nil {
			return nil, nil, fmt.Errorf("%s must be %s", s, s.allowed())
		}
	}
	if err := c.validate(databaseSet); err != nil {
		return nil, nil, err
	}
	c.Limits.Burst = cmp.Or(c.Limits.Burst, c.Limits.RequestsPerSecond)
	return &c, v, nil
}

// bind binds s to its flag, which may be nil, and to its variable. An empty variable
// counts as unset: docker compose passes on variables without a value.
func bind(v *viper.Viper, s Setting, flag *pflag.Flag) error {
	name := s.Variable
	err := v.BindEnv(s.Key, name)
	if flag != nil {
		err = errors.Join(err, v.BindPFlag(s.Key, flag))
	}
	path := os.Getenv(name + "_FILE")
	if err != nil || path == "" {
		return err
	}
	if os.Getenv(name) != "" {
		return fmt.Errorf("%s and %s_FILE are both set: unset one of them", name, name)
	}
	text, err := ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s_FILE: %w", name, err)
	}
	if flag == nil || !flag.Changed {
		v.Set(s.Key, text)
	}
	return nil
}

func strictly(c *mapstructure.DecoderConfig) {
	c.WeaklyTypedInput = false
	c.DecodeHook = parse
}

// yamlLine matches the line number in an error of the YAML parser. The rest may repeat
// values.
var yamlLine = regexp.MustCompile(`line \d+`)

// readFile reads the configuration file path. If path is empty, it reads DefaultFile, if
// that exists.
func readFile(v *viper.Viper, settings []Setting, path string) error {
	optional := path == ""
	path = cmp.Or(path, DefaultFile)
	text, err := os.ReadFile(path)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the configuration file: %w", err)
	}
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(text)); err != nil {
		return fmt.Errorf("%s is not valid YAML: see %s", path, cmp.Or(yamlLine.FindString(err.Error()), "its beginning"))
	}
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&document); err != nil {
		return nil // there are only comments
	}
	if !errors.Is(decoder.Decode(&second), io.EOF) {
		return fmt.Errorf("%s has a second document, after a line ---, which would be ignored: remove it", path)
	}
	if err := checkKeys(document.Content[0], "", settings); err != nil {
		return fmt.Errorf("%s, %w", path, err)
	}
	return nil
}

// keyName matches what may be repeated of an unknown key: without the space after a colon, a
// value is a part of its key.
var keyName = regexp.MustCompile(`^[A-Za-z_.-]+$`)

// decimal matches a decimal integer in YAML, where 010 is 8.
var decimal = regexp.MustCompile(`^[+-]?(0|[1-9][0-9]*)$`)

// checkKeys rejects the keys of section that no setting has: Viper ignores them, and reads Server
// as server.
func checkKeys(section *yaml.Node, prefix string, settings []Setting) error {
	for i := 0; i+1 < len(section.Content); i += 2 {
		name, value := section.Content[i], section.Content[i+1]
		key := prefix + name.Value
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		setting := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
		isSection := slices.ContainsFunc(settings, func(s Setting) bool { return strings.HasPrefix(s.Key, key+".") })
		switch {
		case name.Value == "<<":
			return fmt.Errorf("line %d: merge keys (<<) are not supported: repeat the keys", name.Line)
		case strings.Contains(name.Value, ".") && (setting >= 0 || isSection):
			return fmt.Errorf("line %d: unknown key %q: write %s on a line of its own, below its section", name.Line, key, key[strings.LastIndex(key, ".")+1:])
		case setting >= 0 && value.ShortTag() == "!!int" && !decimal.MatchString(value.Value):
			return fmt.Errorf("line %d: %s must be %s", name.Line, settings[setting], settings[setting].allowed())
		case setting >= 0:
		case !isSection && keyName.MatchString(name.Value):
			return fmt.Errorf("line %d: unknown key %q", name.Line, key)
		case !isSection:
			return fmt.Errorf("line %d: unknown key: write a name, a colon, a space and the value", name.Line)
		case value.Kind == yaml.MappingNode:
			if err := checkKeys(value, key+".", settings); err != nil {
				return err
			}
		case value.ShortTag() != "!!null": // null is a section whose keys are comments
			return fmt.Errorf("line %d: %q is a section: its keys belong below it", name.Line, key)
		}
	}
	return nil
}

// ReadFile returns the text of the file path without the newlines at its end. Its
// errors do not contain the path, which may be a secret in the wrong place.
func ReadFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return strings.TrimRight(string(text), "\r\n"), err
}

// kubernetesLink matches the variables that Kubernetes sets in every pod for services
// named plantstore or plantstore-….
var kubernetesLink = regexp.MustCompile(`^PLANTSTORE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=|` +
	`^PLANTSTORE_(\w+_)?PORT=(tcp|udp|sctp)://`)

// checkVariables rejects variables that look like ours but set nothing; most are
// misspelled.
func checkVariables(settings []Setting) error {
	known := []string{FileVariable}
	for _, s := range settings {
		known = append(known, s.Variable, s.Variable+"_FILE")
	}
	for _, entry := range slices.Sorted(slices.Values(os.Environ())) {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PLANTSTORE_") && !slices.Contains(known, name) && !kubernetesLink.MatchString(entry) {
			return fmt.Errorf("unknown environment variable %s: see docs/configuration.md", name)
		}
	}
	return nil
}
