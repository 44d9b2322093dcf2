package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// takes returns a check that a command has n arguments, or at least n if its usage ends in an
// ellipsis. Its errors do not repeat arguments, which may be secrets.
func takes(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if slices.Contains(args, "") { // as of a variable that is not set
			return withHelp(cmd, errors.New("an argument is empty"))
		}
		if len(args) == n || len(args) > n && strings.HasSuffix(cmd.Use, "...") {
			return nil
		}
		_, usage, _ := strings.Cut(cmd.Use, " ")
		problem := "takes " + cmp.Or(usage, "no arguments")
		if cmd.HasSubCommands() {
			problem = "has no such command"
		}
		return withHelp(cmd, fmt.Errorf("`%s` %s", cmd.CommandPath(), problem))
	}
}

// flagError returns an error of pflag without the values of flags, which may be secrets.
func flagError(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		err = fmt.Errorf("--%s has an invalid value", invalid.GetFlag().Name)
	}
	if _, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		err = errors.New("malformed flag")
	}
	return withHelp(cmd, err)
}

// withHelp returns a [usageError] that says where the help of cmd is.
func withHelp(cmd *cobra.Command, err error) error {
	return usageError(fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath()))
}
