// Package cmd is the command line. Here, and only here, the parts of the program
// are put together.
package cmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plantstore/config"
)

// Main runs the program with the arguments args, without its name, and returns
// its exit status: 0, or 1 with one line on standard error that says why. The
// first SIGINT or SIGTERM ends it in good order; the second ends it at once.
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
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(stderr, "plantstore:", strings.Join(strings.Fields(err.Error()), " "))
		return 1
	}
	return 0
}

func newRoot(environ []string) *cobra.Command {
	settings := &settings{environ: environ}
	serve := newServe(settings)
	root := &cobra.Command{
		Use:   "plantstore",
		Short: "An authenticated HTTP API that stores plants",
		Long: "An authenticated HTTP API that stores plants.\n\n" +
			"Without a command, it serves. It is configured by flags, by the environment and by\n" +
			config.DefaultFile + ", in this order of precedence; the README lists every setting.",
		Args:          cobra.NoArgs,
		RunE:          serve.RunE,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	settings.register(root.PersistentFlags())
	root.AddCommand(serve, newMigrate(settings), newSearchIndex(settings), newHealthcheck(settings), newVersion())
	return root
}

// settings is what the command line says of the configuration.
type settings struct {
	environ []string
	file    string
	flags   map[string]*pflag.Flag
}

// register adds the flags that every command has. Secrets have none: anyone on
// the machine can read a command line.
func (s *settings) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.file, "config", "", "configuration file (default "+config.DefaultFile+", if it exists)")
	s.flags = make(map[string]*pflag.Flag)
	for _, f := range []struct{ name, key, usage string }{
		{"env", "env", "development or production"},
		{"host", "server.host", "address to listen on"},
		{"port", "server.port", "port to listen on"},
		{"database-url", "database.url", "sqlite:PATH or postgres://…; one with a password belongs in the environment"},
		{"log-level", "log.level", "debug, info, warn or error"},
	} {
		flags.String(f.name, "", fmt.Sprintf("%s [$%s]", f.usage, config.Variable(f.key)))
		s.flags[f.key] = flags.Lookup(f.name)
	}
}

func (s *settings) load() (*config.Config, error) {
	return config.Load(config.Sources{Flags: s.flags, Environ: s.environ, File: s.file})
}
