package cmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"plantstore/database"
)

func newSearchIndex(s *settings) *cobra.Command {
	return newDatabaseCommands(s, "search-index", "Make the search of many plants fast, and inserts slower, or undo that",
		databaseCommand{"create", "Make the indexes for the parameters tag and q, while the service goes on", createSearchIndex},
		databaseCommand{"drop", "Remove them", dropSearchIndex})
}

func createSearchIndex(ctx context.Context, db *database.DB, w io.Writer) error {
	if err := db.CreateSearchIndexes(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, "created")
	return nil
}

func dropSearchIndex(ctx context.Context, db *database.DB, w io.Writer) error {
	if err := db.DropSearchIndexes(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, "dropped")
	return nil
}
