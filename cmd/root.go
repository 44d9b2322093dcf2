// Package cmd is the command line. Here, and only here, the parts of the program
// are put together.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plantstore/config"
	"plantstore/models"
)

// exitStatuses is what commands say of their exit status.
const exitStatuses = `Exit status:
  0  success
  1  failure
  2  wrong usage or configuration: nothing was attempted`

// exitError is an error with an exit status of its own.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usageError marks err as one of the command line or of the configuration.
func usageError(err error) error { return &exitError{2, err} }

// Main runs the program with the arguments args, without its name, and returns
// its exit status: 0, or another with one line on standard error that says why.
// The first SIGINT or SIGTERM ends it in good order; the second ends it at once.
func Main(args []string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(1)
	}()
	return run(ctx, args, os.Environ(), os.Stdout, os.Stderr)
}

func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	root := newRoot(environ)
	begun := false // what fails before is the usage
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := cmd.ValidateRequiredFlags() // which Cobra would do after this
		begun = err == nil
		return err
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !begun {
		err = usageError(err)
	}
	_, _ = fmt.Fprintln(stderr, "plantstore:", models.HideTokens(strings.Join(strings.Fields(err.Error()), " ")))
	if special, ok := errors.AsType[*exitError](err); ok {
		return special.status
	}
	return 1
}

func newRoot(environ []string) *cobra.Command {
	settings := &settings{environ: environ}
	serve := newServe(settings)
	root := &cobra.Command{
		Use:   "plantstore",
		Short: "An authenticated HTTP API that stores plants",
		Long: "An authenticated HTTP API that stores plants.\n\n" +
			"Without a command, it serves. It is configured by flags, by the environment and by\n" +
			config.DefaultFile + ", in this order of precedence; docs/configuration.md lists all settings.\n\n" +
			exitStatuses,
		Args:          cobra.NoArgs,
		RunE:          serve.RunE,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		// Without the value: it may be a token in place of the file that has it.
		if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
		}
		return err
	})
	settings.register(root.PersistentFlags())
	root.AddCommand(serve, newMigrate(settings), newSearchIndex(settings), newToken(settings), newImport(settings), newExport(settings), newHealthcheck(settings), newVersion())
	return root
}

// settings is what the command line says of the configuration.
type settings struct {
	environ []string
	file    string
	flags   map[string]*pflag.Flag
	// clientFlags are those of the commands that talk to a service.
	clientFlags *pflag.FlagSet
}

// register adds the flags that every command has, and makes the clients'.
// Secrets have none: anyone on the machine can read a command line.
func (s *settings) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.file, "config", "", "configuration file (default "+config.DefaultFile+", if it exists)")
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
		f.set.String(f.name, setting.Default, setting.Usage()+" [$"+setting.Variable()+"]")
		s.flags[f.key] = f.set.Lookup(f.name)
	}
	token := config.SettingOf("client.token")
	s.clientFlags.Var(new(secretFile), "token-file", "`FILE` with the "+token.Usage()+" [$"+token.Variable()+"_FILE]")
	s.flags[token.Key] = s.clientFlags.Lookup("token-file")
}

// secretFile is a flag that names a file, and has what the file holds for its
// value.
type secretFile string

// Set reads the file path, which no error repeats: it may be the secret itself.
func (f *secretFile) Set(path string) error {
	text, err := os.ReadFile(path)
	if *f = secretFile(strings.TrimRight(string(text), "\r\n")); err == nil && *f == "" {
		return errors.New("the file is empty")
	}
	return withoutPath(err)
}

func (f *secretFile) String() string { return string(*f) }

// Type names the flag's value in the usage.
func (f *secretFile) Type() string { return "file" }

func (s *settings) load() (*config.Config, error) {
	cfg, err := config.Load(config.Sources{Flags: s.flags, Environ: s.environ, File: s.file})
	if err != nil {
		return nil, usageError(err)
	}
	return cfg, nil
}

// client returns a client of the service that the configuration names.
func (s *settings) client() (*client, error) {
	cfg, err := s.load()
	if err != nil {
		return nil, err
	}
	return newClient(cfg)
}
