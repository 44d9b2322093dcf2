package cmd

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// Set by the linker: -ldflags "-X plantstore/cmd.version=… -X plantstore/cmd.commit=…".
var (
	version = "dev"
	commit  = "unknown"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "plantstore %s (commit %s, %s)\n", version, commit, runtime.Version())
		},
	}
}
