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

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// DefaultFile is read if it exists and no other file is named.
const DefaultFile = "configs/config.yaml"

// FileVariable is the environment variable that names another configuration file.
const FileVariable = "PLANTSTORE_CONFIG"

// Sources says where the configuration comes from. Flags override the environment,
// which overrides the file, which overrides the defaults.
type Sources struct {
	// Flags maps keys to flags; those that are not set have no effect.
	Flags map[string]*pflag.Flag
	// Environ is the environment, as os.Environ returns it.
	Environ []string
	// File is the path of the configuration file. If it is empty, PLANTSTORE_CONFIG
	// names the file, and otherwise it is DefaultFile.
	File string
}

// Load reads, merges and validates the configuration. An error is one line that names
// the key and what is allowed, but not the value, which may be a secret.
func Load(src Sources) (*Config, error) {
	var c Config
	settings := settingsOf(reflect.ValueOf(&c).Elem(), "")
	env := environment(src.Environ)
	v := viper.New()
	for _, s := range settings {
		v.SetDefault(s.Key, s.Default)
	}
	if err := readFile(v, settings, cmp.Or(src.File, env[FileVariable])); err != nil {
		return nil, err
	}
	if err := checkVariables(settings, env); err != nil {
		return nil, err
	}
	databaseSet := false
	for _, s := range settings {
		value, found, err := env.lookup(s.Variable())
		if err != nil {
			return nil, err
		}
		if flag := src.Flags[s.Key]; flag != nil && flag.Changed {
			value, found = flag.Value.String(), true
		}
		if found {
			v.Set(s.Key, value)
			databaseSet = databaseSet || s.Key == "database.url"
		}
		err = v.UnmarshalKey(s.Key, s.field.Addr().Interface(), strictly)
		if list, ok := s.field.Addr().Interface().(*[]string); ok {
			*list = slices.DeleteFunc(*list, func(s string) bool { return s == "" })
		}
		if err != nil || !s.inBounds() {
			return nil, fmt.Errorf("%s must be %s", s, s.allowed())
		}
		// The file that is part of the project has the default, which is no choice.
		databaseSet = databaseSet || s.Key == "database.url" && s.field.String() != s.Default
	}
	if err := c.validate(databaseSet); err != nil {
		return nil, err
	}
	c.Limits.Burst = cmp.Or(c.Limits.Burst, c.Limits.RequestsPerSecond)
	return &c, nil
}

func strictly(c *mapstructure.DecoderConfig) {
	c.WeaklyTypedInput = false
	c.DecodeHook = parse
}

// yamlLine matches the line number in an error of the YAML parser. The rest may repeat
// values.
var yamlLine = regexp.MustCompile(`line \d+`)

// readFile reads the configuration file path, or DefaultFile if path is empty and that
// file exists.
func readFile(v *viper.Viper, settings []Setting, path string) error {
	text, err := os.ReadFile(cmp.Or(path, DefaultFile))
	if path == "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the configuration file: %w", err)
	}
	path = cmp.Or(path, DefaultFile)
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(text)); err != nil {
		return fmt.Errorf("%s is not valid YAML: see %s", path, cmp.Or(yamlLine.FindString(err.Error()), "its beginning"))
	}
	for _, key := range slices.Sorted(slices.Values(v.AllKeys())) {
		if !slices.ContainsFunc(settings, func(s Setting) bool { return s.Key == key }) {
			return fmt.Errorf("%s: unknown key %q", path, key)
		}
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

// lookup returns the value of the variable name, or the text of the file that name_FILE
// names. An empty variable counts as unset: docker compose passes on those without a
// value.
func (vars variables) lookup(name string) (value string, found bool, err error) {
	value, path := vars[name], vars[name+"_FILE"]
	switch {
	case path == "":
		return value, value != "", nil
	case value != "":
		return "", false, fmt.Errorf("%s and %s_FILE are both set: unset one of them", name, name)
	}
	text, err := ReadFile(path)
	if err != nil {
		return "", false, fmt.Errorf("%s_FILE: %w", name, err)
	}
	return text, true, nil
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
func checkVariables(settings []Setting, vars variables) error {
	known := []string{FileVariable}
	for _, s := range settings {
		known = append(known, s.Variable(), s.Variable()+"_FILE")
	}
	var unknown []string
	for name, value := range vars {
		if strings.HasPrefix(name, "PLANTSTORE_") && !slices.Contains(known, name) && !kubernetesLink.MatchString(name+"="+value) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("unknown environment variable %s: see docs/configuration.md", strings.Join(unknown, ", "))
}
