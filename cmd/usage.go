package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// takes returns a check that a command has n arguments, or at least n if its usage ends in an
// ellipsis. Its errors do not repeat arguments, which may be secrets, except the short name of
// an unknown command.
func takes(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		_, names, _ := strings.Cut(cmd.Use, " ")
		switch {
		case cmd.HasSubCommands() && len(args) > 0:
			return unknownCommand(cmd, args[0])
		case slices.Contains(args, ""):
			return fmt.Errorf("`%s` got an empty argument: %s", cmd.CommandPath(), seeHelp(cmd))
		case len(args) < n:
			return fmt.Errorf("`%s` needs %s: %s", cmd.CommandPath(), names, seeHelp(cmd))
		case len(args) == n || strings.HasSuffix(names, "..."):
			return nil
		case n == 0:
			return fmt.Errorf("`%s` takes no arguments: %s", cmd.CommandPath(), seeHelp(cmd))
		}
		return fmt.Errorf("`%s` takes only %s, but got %d arguments: %s", cmd.CommandPath(), names, len(args), seeHelp(cmd))
	}
}

// helpTopic checks the arguments of the command help: they name a command.
func helpTopic(help *cobra.Command, args []string) error {
	cmd, rest, err := help.Root().Find(args)
	if err == nil && len(rest) > 0 {
		err = unknownCommand(cmd, rest[0])
	}
	return err
}

func seeHelp(cmd *cobra.Command) string { return "see `" + cmd.CommandPath() + " --help`" }

// unknownCommand returns the error of a group without the command name.
func unknownCommand(group *cobra.Command, name string) error {
	var names []string
	for _, c := range group.Commands() {
		names = append(names, c.Name())
	}
	advice := ": " + seeHelp(group)
	if similar := similarTo(name, names); len(similar) > 0 {
		advice = "; did you mean `" + group.CommandPath() + " " + strings.Join(similar, "` or `"+group.CommandPath()+" ") + "`?"
	}
	what := "such command" // name may be a secret
	if len(name) <= 20 {
		what = fmt.Sprintf("command %q", name)
	}
	return fmt.Errorf("`%s` has no %s%s", group.CommandPath(), what, advice)
}

// flagError replaces an error of pflag. It leaves out values, which may be tokens instead
// of the files that contain them.
func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0]) // whose flags are also unknown
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, unknown)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s needs a value: %s", missing.GetFlag().Name, seeHelp(cmd))
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if flag := invalid.GetFlag(); flag.Value.Type() == "bool" {
			return fmt.Errorf("--%s takes no value but true or false: %s", flag.Name, seeHelp(cmd))
		}
		return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
	}
	return fmt.Errorf("malformed flag: %s", seeHelp(cmd))
}

// unknownFlag returns the error of a flag that cmd does not have.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	flag := "--" + unknown.GetSpecifiedName()
	if shorthands := unknown.GetSpecifiedShortnames(); shorthands != "" {
		flag = "-" + shorthands
	}
	name, advice := strings.TrimLeft(flag, "-"), ": "+seeHelp(cmd)
	var own []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { own = append(own, f.Name) })
	if similar := similarTo(name, own); len(similar) > 0 {
		advice = "; did you mean --" + strings.Join(similar, " or --") + "?"
	}
	return fmt.Errorf("`%s` has no flag %s%s", cmd.CommandPath(), flag, advice)
}

// similarTo returns the names that are similar to a misspelled name, according to Cobra, which
// looks only for commands.
func similarTo(misspelled string, names []string) []string {
	if misspelled == "" {
		return nil
	}
	group := &cobra.Command{SuggestionsMinimumDistance: min(2, len(misspelled)-1)} // any letter is similar to any other
	for _, name := range names {
		group.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return slices.Sorted(slices.Values(group.SuggestionsFor(misspelled)))
}
