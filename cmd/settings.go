package cmd

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/config"
)

// settings is the part of the configuration that comes from the command line.
type settings struct {
	file  string
	flags map[string]*pflag.Flag
	all   *pflag.FlagSet
}

// The flags of the settings that commands use. A command has no flag that it would ignore.
const (
	localFlags    = "config host port" // they tell where the service on this machine is
	clientFlags   = localFlags + " url token-file"
	databaseFlags = "config env database-url log-level"
	serviceFlags  = databaseFlags + " host port"
)

// newSettings creates the flags of the settings. Secrets have no flags: other users of the
// machine can read command lines.
func newSettings() *settings {
	s := &settings{flags: make(map[string]*pflag.Flag), all: pflag.NewFlagSet("settings", pflag.ContinueOnError)}
	s.all.StringVar(&s.file, "config", "", "configuration file [$"+config.FileVariable+"] (default "+config.DefaultFile+", if it exists)")
	add := func(set *pflag.FlagSet, name, key string) {
		setting := config.SettingOf(key)
		set.String(name, setting.Default, setting.Usage()+" [$"+setting.Variable+"]")
		s.flags[key] = set.Lookup(name)
	}
	add(s.all, "env", "env")
	add(s.all, "host", "server.host")
	add(s.all, "port", "server.port")
	add(s.all, "database-url", "database.url")
	add(s.all, "log-level", "log.level")
	add(s.all, "url", "client.url")

	// --token-file sets a flag that is on no command line.
	token, hidden := config.SettingOf("client.token"), pflag.NewFlagSet("hidden", pflag.ContinueOnError)
	add(hidden, "token", token.Key)
	s.all.Func("token-file", "`FILE` with the "+token.Usage()+" [$"+token.Variable+"_FILE]", func(path string) error {
		text, err := config.ReadFile(path)
		if err == nil && text == "" {
			err = errors.New("the file is empty")
		}
		return errors.Join(err, hidden.Set("token", text))
	})
	return s
}

// addTo adds the flags with the given names to cmd, with the completion of their values.
func (s *settings) addTo(cmd *cobra.Command, names string) *cobra.Command {
	for name := range strings.FieldsSeq(names) {
		cmd.Flags().AddFlag(s.all.Lookup(name))
	}
	for key, flag := range s.flags {
		if cmd.Flags().Lookup(flag.Name) != nil {
			complete(cmd, flag.Name, cobra.ShellCompDirectiveNoFileComp, config.SettingOf(key).Values...)
		}
	}
	complete(cmd, "config", cobra.ShellCompDirectiveFilterFileExt, "yaml", "yml")
	complete(cmd, "token-file", cobra.ShellCompDirectiveDefault)
	return cmd
}

// withFile lets shells offer files as the arguments of cmd.
func withFile(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	return cmd
}

// complete sets the values that shells offer for a flag of cmd, if it has that flag.
func complete(cmd *cobra.Command, flag string, directive cobra.ShellCompDirective, values ...string) {
	// Commands share flags and their values, so all but the first fail.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, directive))
}

// Whether a command uses the database, for load, or calls a service.
const (
	usesDatabase = true
	callsService = false
)

// load loads the configuration. Its errors are errors in the usage.
func (s *settings) load(needsDatabase bool) (*config.Config, error) {
	cfg, _, err := config.Load(s.file, s.flags, needsDatabase)
	if err != nil {
		return nil, usageError(err)
	}
	if needsDatabase {
		err = checkSettings(cfg)
	}
	return cfg, err
}

// newLogger returns a logger that writes to standard error: JSON lines in production,
// and text in development. It does not sample: each request has a line.
func newLogger(cfg *config.Config) *zap.Logger {
	level, _ := zapcore.ParseLevel(cfg.Log.Level) // config has validated it
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = encodeMilliseconds
	encoder := zapcore.NewJSONEncoder
	if cfg.Log.Format == "console" || cfg.Log.Format == "auto" && cfg.Env == config.Development {
		encoding.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder
	}
	return zap.New(zapcore.NewCore(encoder(encoding), logWriter{zapcore.Lock(os.Stderr)}, level))
}

// encodeMilliseconds writes a duration as a number of milliseconds.
func encodeMilliseconds(d time.Duration, to zapcore.PrimitiveArrayEncoder) {
	to.AppendFloat64(float64(d.Microseconds()) / 1000)
}
