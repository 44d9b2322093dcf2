package cmd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/config"
	"plantstore/routes"
)

// settings is the part of the configuration that comes from the command line.
type settings struct {
	file, tokenFile string
	warnings        []string               // of secrets that other users may know
	resource        routes.Resource        // of import, export and follow
	flags           map[string]*pflag.Flag // by the key of the setting
	values          []config.Setting       // that load has loaded
	all             *pflag.FlagSet
}

// The flags of the settings that commands use. A command has no flag that it would ignore.
const (
	localFlags    = "config host port" // they tell where the service on this machine is
	clientFlags   = "config url token-file resource"
	databaseFlags = "config env database-url log-level"
	serviceFlags  = databaseFlags + " host port"
)

// newSettings creates the flags of the settings. Secrets have no flags: other users of the
// machine can read command lines.
func newSettings() *settings {
	s := &settings{flags: make(map[string]*pflag.Flag), all: pflag.NewFlagSet("settings", pflag.ContinueOnError)}
	s.all.StringVar(&s.file, "config", "", "configuration file [$"+config.FileVariable+"] (default "+config.DefaultFile+", if it exists)")
	for name, key := range map[string]string{
		"env": "env", "host": "server.host", "port": "server.port", "database-url": "database.url", "log-level": "log.level", "url": "client.url", "admin-address": "server.admin_address",
	} {
		setting := config.SettingOf(key)
		s.all.String(name, setting.Default, setting.Usage()+" [$"+setting.Variable+"]")
		s.flags[key] = s.all.Lookup(name)
	}
	token := config.SettingOf("client.token")
	s.all.StringVar(&s.tokenFile, "token-file", "", "`FILE` with the "+token.Usage()+" [$"+token.Variable+"_FILE]")
	resources, names := routes.Resources(routes.Options{}), []string{}
	for _, r := range resources {
		names = append(names, r.Name())
	}
	s.resource = resources[0]
	s.all.Func("resource", fmt.Sprintf("`NAME` of the rows: %s (default %s)", strings.Join(names, ", "), names[0]), func(name string) error {
		i := slices.Index(names, name)
		if i < 0 {
			return errors.New("there is no such resource")
		}
		s.resource = resources[i]
		return nil
	})
	return s
}

// addTo adds the flags with the given names to cmd.
func (s *settings) addTo(cmd *cobra.Command, names string) *cobra.Command {
	for name := range strings.FieldsSeq(names) {
		cmd.Flags().AddFlag(s.all.Lookup(name))
	}
	return cmd
}

// Whether a command uses the database, for load, or calls a service.
const (
	usesDatabase = true
	callsService = false
)

// load loads the configuration. Its errors are errors in the usage.
func (s *settings) load(needsDatabase bool) (*config.Config, error) {
	cfg, values, err := config.Load(s.file, s.flags, needsDatabase)
	if err != nil {
		return nil, usageError(err)
	}
	s.values = values
	for _, setting := range values {
		s.checkFile(setting.Source, setting.SecretFile)
	}
	s.checkFile(config.SettingOf("server.tls_key").Key, cfg.Server.TLSKey)
	s.checkFile("--token-file", s.tokenFile)
	if needsDatabase {
		err = checkSettings(cfg)
	}
	return cfg, err
}

// checkFile adds a warning if others than root may know or change the secret in the file path, which source names.
func (s *settings) checkFile(source, path string) {
	if exposure := config.Exposure(path, os.Getuid(), 0); exposure != "" {
		s.warnings = append(s.warnings, fmt.Sprintf("the file of %s %s: chown it to the user of plantstore, and run chmod 600", source, exposure))
	}
}

// newLogger returns a logger that writes to standard error: JSON lines in production,
// and text in development. Its level can be changed. It does not sample: each request has a line. Sync it
// before the end.
func newLogger(cfg *config.Config) (*zap.Logger, zap.AtomicLevel) {
	level, _ := zap.ParseAtomicLevel(cfg.Log.Level) // config has validated it
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = func(d time.Duration, to zapcore.PrimitiveArrayEncoder) {
		to.AppendFloat64(float64(d.Microseconds()) / 1000) // milliseconds
	}
	encoder := zapcore.NewJSONEncoder
	if cfg.Log.Format == "console" || cfg.Log.Format == "auto" && cfg.Env == config.Development {
		encoding.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder
	}
	return zap.New(leveled{zapcore.NewCore(encoder(encoding), newLogWriter(os.Stderr), zap.DebugLevel), level}), level
}
