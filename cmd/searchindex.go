package cmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"plantstore/database"
)

func newSearchIndex(s *settings) *cobra.Command {
	return newDatabaseCommands(s, "search-index", "Create or drop indexes that make searches of many plants fast and inserts slower",
		databaseCommand{"create", "Create the indexes for the parameters tag and q, while the service runs", thenPrint((*database.DB).CreateSearchIndexes, "created")},
		databaseCommand{"drop", "Drop these indexes", thenPrint((*database.DB).DropSearchIndexes, "dropped")})
}

func thenPrint(action func(*database.DB, context.Context) error, text string) func(context.Context, *database.DB, io.Writer) error {
	return func(ctx context.Context, db *database.DB, w io.Writer) error {
		err := action(db, ctx)
		if err == nil {
			_, err = fmt.Fprintln(w, text)
		}
		return err
	}
}
