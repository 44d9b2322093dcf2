package cmd

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"plantstore/config"
)

func newConfig(s *settings) *cobra.Command {
	show := s.addTo(&cobra.Command{
		Use:   "config",
		Short: "Print all settings and where their values come from",
		Long: "Print all settings, with their values and where these come from: a flag, an environment variable,\n" +
			"the configuration file, or the default. Secrets are shown as ***.",
		Example: "  plantstore config --config /etc/plantstore.yaml",
		Args:    takes(0),
		RunE: func(*cobra.Command, []string) error {
			_, all, err := config.Load(s.file, s.flags, usesDatabase)
			if err != nil {
				return usageError(err)
			}
			table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(table, "SETTING\tVALUE\tSOURCE")
			for _, e := range all {
				_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", e.Key, strings.ReplaceAll(e.Value, "\n", `\n`), e.Source)
			}
			return table.Flush()
		},
	}, serviceFlags)
	show.AddCommand(s.addTo(&cobra.Command{
		Use:   "check",
		Short: "Check the configuration without starting the service, such as in CI",
		Long: "Check the configuration without starting the service, such as in CI. Certificates, databases and\n" +
			"addresses that it names need not exist.",
		Example: "  plantstore config check --config production.yaml --env production",
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.load(usesDatabase)
			if err != nil {
				return err
			}
			if cfg.Auth.JWT.PublicKey != "" {
				if _, err := newJWTVerifier(cmd.Context(), cfg, zap.NewNop()); err != nil {
					return err
				}
			}
			cmd.PrintErrln("the configuration is valid")
			return nil
		},
	}, serviceFlags))
	return show
}
