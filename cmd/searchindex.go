package cmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"plantstore/database"
)

func newSearchIndex(s *settings) *cobra.Command {
	index := &cobra.Command{
		Use:   "search-index",
		Short: "Make the search of many plants fast, and inserts slower, or undo that",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	add := func(name, short, done string, action func(*database.DB, context.Context) error) {
		index.AddCommand(&cobra.Command{
			Use:   name,
			Short: short,
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return withDatabase(cmd, s, func(ctx context.Context, db *database.DB, w io.Writer) error {
					if err := action(db, ctx); err != nil {
						return err
					}
					_, _ = fmt.Fprintln(w, done)
					return nil
				})
			},
		})
	}
	add("create", "Make the indexes for the parameters tag and q, while the service goes on", "created", (*database.DB).CreateSearchIndexes)
	add("drop", "Remove them", "dropped", (*database.DB).DropSearchIndexes)
	return index
}
