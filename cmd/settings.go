package cmd

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/config"
)

// settings is the part of the configuration that comes from the command line.
type settings struct {
	file  string
	flags map[string]*pflag.Flag
	// clientFlags are the flags of the commands that call a service.
	clientFlags *pflag.FlagSet
}

// register adds the flags of all commands to flags, and creates s.clientFlags. Secrets
// have no flags: other users of the machine can read command lines.
func (s *settings) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.file, "config", "", "configuration file [$"+config.FileVariable+"] (default "+config.DefaultFile+", if it exists)")
	s.clientFlags = pflag.NewFlagSet("client", pflag.ContinueOnError)
	s.flags = make(map[string]*pflag.Flag)
	add := func(set *pflag.FlagSet, name, key string) {
		setting := config.SettingOf(key)
		set.String(name, setting.Default, setting.Usage()+" [$"+setting.Variable+"]")
		s.flags[key] = set.Lookup(name)
	}
	add(flags, "env", "env")
	add(flags, "host", "server.host")
	add(flags, "port", "server.port")
	add(flags, "database-url", "database.url")
	add(flags, "log-level", "log.level")
	add(s.clientFlags, "url", "client.url")

	// --token-file sets a flag that is on no command line.
	token, hidden := config.SettingOf("client.token"), pflag.NewFlagSet("hidden", pflag.ContinueOnError)
	add(hidden, "token", token.Key)
	s.clientFlags.Func("token-file", "`FILE` with the "+token.Usage()+" [$"+token.Variable+"_FILE]", func(path string) error {
		text, err := config.ReadFile(path)
		if err == nil && text == "" {
			err = errors.New("the file is empty")
		}
		return errors.Join(err, hidden.Set("token", text))
	})
}

func (s *settings) load() (*config.Config, error) {
	cfg, err := config.Load(s.file, s.flags)
	if err != nil {
		return nil, usageError(err)
	}
	return cfg, nil
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
