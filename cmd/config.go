package cmd

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

func newConfig(s *settings) *cobra.Command {
	return s.addTo(&cobra.Command{
		Use:   "config",
		Short: "Check all settings, and print their values and where these come from",
		Long: "Check all settings, and print their values and where these come from: a flag, an environment\n" +
			"variable, the configuration file, or the default. Secrets are shown as ***. Certificates, databases\n" +
			"and addresses that the settings name need not exist.",
		Example: "  plantstore config --config production.yaml --env production",
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.load(usesDatabase)
			if err != nil {
				return err
			}
			if cfg.Auth.JWT.PublicKey != "" {
				if _, err := newJWTVerifier(cmd.Context(), cfg, zap.NewNop(), zap.NewNop()); err != nil {
					return err
				}
			}
			table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(table, "SETTING\tVALUE\tSOURCE")
			for _, e := range s.values {
				_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", e.Key, strings.ReplaceAll(e.Value, "\n", `\n`), e.Source)
			}
			return table.Flush()
		},
	}, serviceFlags)
}
