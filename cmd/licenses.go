package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"plantstore/docs"
)

func newLicenses() *cobra.Command {
	return &cobra.Command{
		Use:     "licenses",
		Short:   "Print the licenses of the program and of all that is linked into it",
		Example: "  plantstore licenses | less",
		Args:    takes(0),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Print(docs.Licenses)
			return err
		},
	}
}
