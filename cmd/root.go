// Package cmd is the command line. It is the only package that wires the parts of the
// program together.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"plantstore/config"
)

// Set by the linker: -ldflags "-X plantstore/cmd.version=… -X plantstore/cmd.commit=…".
var (
	version = "dev"
	commit  = "unknown"
)

// exitStatuses is part of the help of several commands.
const exitStatuses = `Exit status:
  0  success
  1  failure
  2  wrong usage or configuration`

// Exit statuses, the last two of single commands.
const (
	exitFailure  = 1
	exitUsage    = 2
	exitRejected = 3 // of import: rows were rejected
	exitFinal    = 3 // of follow: to start it again would not help
)

// exitError is an error with its own exit status.
type exitError struct {
	error
	status int
}

// errInterrupted is the cause of the end of a command's context if the signal is SIGINT, as from Ctrl-C.
var errInterrupted = fmt.Errorf("interrupted: %w", context.Canceled)

// usageError marks err as an error in the command line or the configuration.
func usageError(err error) error { return &exitError{err, exitUsage} }

// Main runs the program with args, which exclude its name, and returns its exit
// status. If that is not 0, it has written one line about the error to standard error.
// The first SIGINT, SIGTERM or SIGHUP ends it gracefully; the second exits at once.
func Main(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		signal.Notify(signals, syscall.SIGHUP) // a lost terminal: leave no half-written file
	}
	go func() {
		if <-signals == syscall.SIGINT {
			cancel(errInterrupted)
		}
		cancel(nil)
		<-signals
		os.Exit(exitFailure) // without a handler, process 1 of a container would ignore the signal
	}()

	root, started := newRoot(), false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	message := err.Error()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) { // by a signal
		message = "interrupted"
	}
	_, _ = fmt.Fprintln(os.Stderr, "plantstore:", oneLine(message))
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.status
	}
	if !started { // cobra has rejected the command line
		return exitUsage
	}
	return exitFailure
}

func newRoot() *cobra.Command {
	s := newSettings()
	root := &cobra.Command{
		Use:   "plantstore",
		Short: "An authenticated HTTP API that stores plants",
		Long: "An authenticated HTTP API that stores plants.\n\n" +
			"Without a command, it serves the API. Flags override environment variables, which override\n" +
			config.DefaultFile + ". docs/configuration.md lists all settings.\n\n" +
			exitStatuses,
		Example: "  plantstore --port 8081\n" +
			"  plantstore import plants.csv",
		Version:       version,
		Args:          takes(0),
		RunE:          s.serve,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	about := fmt.Sprintf("plantstore %s (commit %s, %s)\n", version, commit, runtime.Version())
	root.SetVersionTemplate(about)
	root.SetFlagErrorFunc(flagError)
	s.addTo(root, serviceFlags)
	root.AddCommand(
		s.addTo(&cobra.Command{
			Use: "serve", Short: "Serve the API (the default)", Args: takes(0), RunE: s.serve,
			Example: "  plantstore serve --port 8081 --log-level debug",
		}, serviceFlags),
		newMigrate(s), newToken(s), newImport(s), newExport(s), newFollow(s), newBackup(s), newRestore(s), newHealthcheck(s), newConfig(s),
		&cobra.Command{
			Use: "version", Short: "Print the version", Args: takes(0),
			Example: "  plantstore version",
			RunE: func(*cobra.Command, []string) error {
				_, err := fmt.Print(about)
				return err
			},
		})
	return root
}
