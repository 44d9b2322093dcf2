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

	"github.com/go-playground/validator/v10"
	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// DefaultFile is read if it exists and no other file is named.
const DefaultFile = "configs/config.yaml"

// FileVariable is the environment variable that names another configuration file.
const FileVariable = "PLANTSTORE_CONFIG"

// Load reads, merges and validates the configuration. It returns the settings, too, with their values and sources.
// Flags, by key, override the environment, which overrides the file, which overrides the defaults. If file is empty,
// FileVariable names it, and otherwise it is DefaultFile. An error is a line that names the key and the valid values,
// but not the value, which may be a secret. Only a command that uses the database must name it in production.
func Load(file string, flags map[string]*pflag.Flag, usesDatabase bool) (*Config, []Setting, error) {
	c, v, validate := new(Config), viper.New(), validator.New()
	strictly := func(d *mapstructure.DecoderConfig) { d.WeaklyTypedInput, d.DecodeHook = false, parse }
	settings := settingsOf(reflect.ValueOf(c).Elem(), "")
	if err := checkVariables(settings); err != nil {
		return nil, nil, err
	}
	if err := readFile(v, settings, cmp.Or(file, os.Getenv(FileVariable))); err != nil {
		return nil, nil, err
	}
	isDatabaseSet := !usesDatabase
	for i, s := range settings {
		source, err := override(v, s, flags[s.Key])
		if err != nil {
			return nil, nil, err
		}
		isDatabaseSet = isDatabaseSet || s.Key == "database.url" && source != ""
		err = v.UnmarshalKey(s.Key, s.field.Addr().Interface(), strictly)
		if err != nil || validate.Var(s.field.Interface(), s.rules) != nil {
			return nil, nil, fmt.Errorf("%s must be %s", s, s.allowed())
		}
		if source == "" && v.InConfig(s.Key) {
			source = v.ConfigFileUsed()
		}
		settings[i].Value, settings[i].Source = s.text(), cmp.Or(source, "default")
		if s.secret && strings.HasSuffix(source, "_FILE") {
			settings[i].SecretFile = os.Getenv(source)
		}
	}
	if err := c.validate(isDatabaseSet); err != nil {
		return nil, nil, err
	}
	c.Limits.Burst = cmp.Or(c.Limits.Burst, c.Limits.RequestsPerSecond)
	return c, settings, nil
}

// override sets s to its default, and overrides that and the file by the variables or by the flag,
// which may be nil. It returns the variable or the flag, or "". An empty variable counts as unset:
// docker compose passes on variables without a value.
func override(v *viper.Viper, s Setting, flag *pflag.Flag) (source string, err error) {
	v.SetDefault(s.Key, s.Default)
	text, path := os.Getenv(s.Variable), os.Getenv(s.Variable+"_FILE")
	switch {
	case text != "" && path != "":
		return "", fmt.Errorf("%s and %s_FILE are both set: unset one of them", s.Variable, s.Variable)
	case text != "":
		source = s.Variable
	case path != "":
		source = s.Variable + "_FILE"
		if text, err = ReadFile(path); err != nil {
			return "", fmt.Errorf("%s: %w", source, err)
		}
	}
	if framed.MatchString(text) { // docker --env-file, unlike a shell, keeps quotes
		return "", fmt.Errorf("%s begins or ends with white space or quotes: remove them", source)
	}
	if flag != nil && flag.Changed {
		source, text = "--"+flag.Name, flag.Value.String()
	}
	if source != "" {
		v.Set(s.Key, text)
	}
	return source, nil
}

var (
	// framed matches a line with white space or quotes around it.
	framed = regexp.MustCompile(`^\s.*$|^.*\s$|^".*"$|^'.*'$`)
	// yamlLine matches the line number in an error of the YAML parser. The rest may repeat values.
	yamlLine = regexp.MustCompile(`line \d+`)
	// keyName matches what may be repeated of an unknown key: without the space after a colon, a
	// value is a part of its key.
	keyName = regexp.MustCompile(`^[A-Za-z_.-]*:?`)
)

// readFile reads the configuration file path. If path is empty, it reads DefaultFile, if
// that exists. It rejects keys that no setting has, which Viper ignores.
func readFile(v *viper.Viper, settings []Setting, path string) error {
	v.SetConfigFile(cmp.Or(path, DefaultFile))
	v.SetConfigType("yaml")
	err := v.ReadInConfig()
	if path == "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, malformed := errors.AsType[viper.ConfigParseError](err); malformed {
		return fmt.Errorf("%s is not valid YAML: see %s", v.ConfigFileUsed(), cmp.Or(yamlLine.FindString(err.Error()), "its beginning"))
	}
	if err != nil {
		return fmt.Errorf("read the configuration file: %w", err)
	}
	for _, key := range slices.Sorted(slices.Values(v.AllKeys())) {
		isKnown := slices.ContainsFunc(settings, func(s Setting) bool {
			return s.Key == key || strings.HasPrefix(s.Key, key+".") && v.Get(key) == nil // a section whose keys are comments
		})
		if !isKnown {
			return fmt.Errorf("%s: unknown key %q: see docs/configuration.md", v.ConfigFileUsed(), keyName.FindString(key))
		}
	}
	return nil
}

// ReadFile returns the text of the file path, without a byte order mark at its start and newlines at its
// end. Its errors do not contain the path, which may be a secret in the wrong place.
func ReadFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	if bytes.IndexByte(text, 0) >= 0 { // as in UTF-16
		err = errors.New("the file is not text in UTF-8")
	}
	return strings.TrimRight(strings.TrimPrefix(string(text), "\ufeff"), "\r\n"), err
}

// kubernetesLink matches the variables that Kubernetes sets in every pod for services
// named plantstore or plantstore-….
var kubernetesLink = regexp.MustCompile(`^PLANTSTORE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=|` +
	`^PLANTSTORE_(\w+_)?PORT=(tcp|udp|sctp)://`)

// checkVariables rejects variables that look like ours but set nothing; most are misspelled.
func checkVariables(settings []Setting) error {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		isKnown := name == FileVariable || slices.ContainsFunc(settings, func(s Setting) bool { return s.Variable == strings.TrimSuffix(name, "_FILE") })
		if strings.HasPrefix(name, "PLANTSTORE_") && !isKnown && !kubernetesLink.MatchString(entry) {
			return fmt.Errorf("unknown environment variable %s: see docs/configuration.md", name)
		}
	}
	return nil
}
