package cmd

import (
	"errors"

	"github.com/spf13/pflag"

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
	for _, f := range []struct {
		set       *pflag.FlagSet
		name, key string
	}{
		{flags, "env", "env"},
		{flags, "host", "server.host"},
		{flags, "port", "server.port"},
		{flags, "database-url", "database.url"},
		{flags, "log-level", "log.level"},
		{s.clientFlags, "url", "client.url"},
	} {
		setting := config.SettingOf(f.key)
		f.set.String(f.name, setting.Default, setting.Usage()+" [$"+setting.Variable+"]")
		s.flags[f.key] = f.set.Lookup(f.name)
	}
	token := config.SettingOf("client.token")
	s.clientFlags.Var(new(secretFile), "token-file", "`FILE` with the "+token.Usage()+" [$"+token.Variable+"_FILE]")
	s.flags[token.Key] = s.clientFlags.Lookup("token-file")
}

func (s *settings) load() (*config.Config, error) {
	cfg, err := config.Load(s.file, s.flags)
	if err != nil {
		return nil, usageError(err)
	}
	return cfg, nil
}

// secretFile is a flag that takes the path of a file. Its value is the text in the file.
type secretFile string

// Set reads the file path.
func (f *secretFile) Set(path string) error {
	text, err := config.ReadFile(path)
	if err == nil && text == "" {
		err = errors.New("the file is empty")
	}
	*f = secretFile(text)
	return err
}

func (f *secretFile) String() string { return string(*f) }

// Type returns the name of the value in the usage.
func (f *secretFile) Type() string { return "file" }
