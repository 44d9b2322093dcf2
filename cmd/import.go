package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"plantstore/controllers"
)

type importOptions struct {
	path    string // - for standard input
	format  format
	partial bool
	dryRun  bool
}

func newImport(s *settings) *cobra.Command {
	var o importOptions
	var name string
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Send the plants in a file or in standard input to a running service",
		Long: "Send the plants in a file or in standard input to a running service. It stores all of them,\n" +
			"or none if it rejects a row. CSV has a header row of id, name and tag; NDJSON has one object\n" +
			"per line.\n\n" +
			"The summary is printed on standard output, and each rejected row, with its line and the\n" +
			"reason, on standard error. It is safe to run an import again: stored rows count as unchanged.\n\n" +
			exitStatuses + "\n  3  rows were rejected",
		Example: "  plantstore import configs/sample-plants.csv\n" +
			"  zcat plants.ndjson.gz | plantstore import - --format ndjson --partial",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.path = args[0]
			if o.format, err = formatOf(name, o.path, ""); err != nil {
				return err
			}
			c, err := s.client()
			if err != nil {
				return err
			}
			return importPlants(cmd, c, o)
		},
	}
	cmd.Flags().StringVar(&name, "format", "", "csv or ndjson (default: by the extension of FILE: .csv, .ndjson or .jsonl)")
	cmd.Flags().BoolVar(&o.partial, "partial", false, "store valid rows even if others are rejected")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "store nothing, only report what would happen")
	cmd.Flags().AddFlagSet(s.clientFlags)
	return cmd
}

func importPlants(cmd *cobra.Command, c *client, o importOptions) error {
	name, size, total := "stdin", int64(-1), int64(-1)
	body := &rowReader{Reader: cmd.InOrStdin(), header: o.format.header}
	progress := &body.progress
	progress.w = cmd.ErrOrStderr()
	defer progress.stop()
	if o.path != "-" {
		file, err := os.Open(o.path)
		if err != nil {
			return err
		}
		defer file.Close()
		name, body.Reader = o.path, file
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() { // a pipe has no size and cannot be read twice
			size = info.Size()
			if isTerminal(progress.w) {
				progress.show("reading", -1)
				if total, err = countRows(file, o.format); err != nil {
					return err
				}
			}
		}
	}
	body.end = func() { progress.show("all rows sent, waiting for the response", -1) }
	progress.rows("importing", total)
	report, err := c.importRows(cmd.Context(), o, body, size)
	progress.stop()
	if err != nil {
		return err
	}
	return printReport(cmd, name, o, report)
}

// countRows counts the rows in file and returns to its beginning.
func countRows(file *os.File, f format) (int64, error) {
	rows := &rowReader{Reader: file, header: f.header}
	if _, err := io.Copy(io.Discard, rows); err != nil {
		return 0, err
	}
	_, err := file.Seek(0, io.SeekStart)
	return rows.rows, err
}

// importRows sends body and returns the report of the service.
func (c *client) importRows(ctx context.Context, o importOptions, body io.Reader, size int64) (*controllers.ImportReport, error) {
	query := make(url.Values)
	if o.partial {
		query.Set("mode", "partial")
	}
	if o.dryRun {
		query.Set("dry_run", "true")
	}
	response, err := c.send(ctx, request{
		method: http.MethodPost, path: "plants/import", query: query,
		body: body, bodySize: size, bodyType: o.format.mediaType, accept: "application/json",
	})
	failed, responded := errors.AsType[*responseError](err)
	if responded && failed.Report != nil {
		return failed.Report, nil
	}
	var report controllers.ImportReport
	if err == nil {
		defer response.Body.Close()
		if err = json.NewDecoder(response.Body).Decode(&report); err != nil {
			err = incomplete(ctx, err)
		}
	}
	if local, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("%w; nothing was stored", local) // the service did not receive the end
	}
	if errors.Is(err, errIncomplete) || responded && failed.status >= 500 {
		return nil, fmt.Errorf("%w; it is safe to run the import again: stored rows count as unchanged", err)
	}
	return &report, err
}

// printReport prints the summary on standard output, in the words of the report, and
// the rejected rows on standard error, in the form of compiler errors. It returns an
// error if rows were rejected.
func printReport(cmd *cobra.Command, name string, o importOptions, report *controllers.ImportReport) error {
	for _, row := range report.Errors {
		cmd.PrintErrf("%s:%d: %d %s\n", name, row.Line, row.Code, row.Message)
	}
	if more := report.Rejected - len(report.Errors); more > 0 {
		cmd.PrintErrf("%s: and %d more, which the service does not list\n", name, more)
	}
	outcome, others := "stored", "the others are stored"
	switch {
	case o.dryRun:
		outcome, others = "dry run, nothing stored", "nothing was stored in this dry run"
	case !report.Stored:
		outcome, others = "nothing stored", "nothing was stored; --partial stores the others"
	}
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%d rows: %d created, %d unchanged, %d refused; %s\n",
		report.Rows, report.Created, report.Unchanged, report.Rejected, outcome)
	if report.Rejected > 0 {
		return &exitError{3, fmt.Errorf("%d of %d rows rejected: %s", report.Rejected, report.Rows, others)}
	}
	return nil
}
