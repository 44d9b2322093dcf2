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

// importOptions says what to import, and how.
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
		Short: "Send the plants in a file, or in standard input, to a running service",
		Long: "Send the plants in a file, or in standard input, to a running service: all of them, or none\n" +
			"where a row is refused. CSV has a header row of id, name and tag, NDJSON an object a line.\n\n" +
			"The summary is printed, and why a row was refused on standard error, with its line. To run an\n" +
			"import again is safe: rows that are stored already are counted as unchanged.\n\n" +
			exitStatuses + "\n  3  rows were refused",
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
			return importPlants(cmd.Context(), c, o, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&name, "format", "", "csv or ndjson (default by the extension of FILE: .csv, .ndjson or .jsonl)")
	cmd.Flags().BoolVar(&o.partial, "partial", false, "store the other rows where some are refused")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "store nothing, only say what would become of it")
	cmd.Flags().AddFlagSet(s.clientFlags)
	return cmd
}

func importPlants(ctx context.Context, c *client, o importOptions, stdin io.Reader, stdout, stderr io.Writer) error {
	name, size := "stdin", int64(-1)
	progress := newProgress(stderr, "reading")
	defer progress.stop()
	body := &rowReader{Reader: stdin, header: o.format.header, progress: progress}
	total := int64(-1)
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
		if info.Mode().IsRegular() { // a pipe has no size, and cannot be read twice
			size = info.Size()
			if progress != nil {
				if total, err = countRows(file, o.format); err != nil {
					return err
				}
			}
		}
	}
	body.end = func() { progress.show("all sent, waiting for the answer", -1) }
	progress.rows("importing", total)
	report, err := c.importRows(ctx, o, body, size)
	progress.stop()
	if err != nil {
		return err
	}
	printReport(stdout, stderr, name, o, report)
	return refusedRows(o, report)
}

// countRows counts the rows in file and goes back to its beginning.
func countRows(file *os.File, f format) (int64, error) {
	rows := &rowReader{Reader: file, header: f.header}
	if _, err := io.Copy(io.Discard, rows); err != nil {
		return 0, err
	}
	_, err := file.Seek(0, io.SeekStart)
	return rows.rows, err
}

// importRows sends body, and returns what became of its rows.
func (c *client) importRows(ctx context.Context, o importOptions, body io.Reader, size int64) (*controllers.ImportReport, error) {
	query := make(url.Values)
	if o.partial {
		query.Set("mode", "partial")
	}
	if o.dryRun {
		query.Set("dry_run", "true")
	}
	header := http.Header{"Content-Type": {o.format.mediaType}}
	response, err := c.send(ctx, http.MethodPost, "plants/import", query, header, body, size, "application/json")
	refused, answered := errors.AsType[*answerError](err)
	if answered && refused.Report != nil {
		return refused.Report, nil
	}
	var report controllers.ImportReport
	if err == nil {
		defer response.Body.Close()
		if err = json.NewDecoder(response.Body).Decode(&report); err != nil {
			err = broken(ctx, err)
		}
	}
	if trouble, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("%w; nothing was stored", trouble) // the service has not had the end
	}
	if errors.Is(err, errBroken) || answered && refused.status >= 500 {
		return nil, fmt.Errorf("%w; it is safe to run the import again: rows that are stored already are counted as unchanged", err)
	}
	return &report, err
}

// printReport prints the summary on stdout and the rows that were refused on
// stderr, as compilers print errors, for editors to find the lines.
func printReport(stdout, stderr io.Writer, name string, o importOptions, report *controllers.ImportReport) {
	for _, row := range report.Errors {
		_, _ = fmt.Fprintf(stderr, "%s:%d: %d %s\n", name, row.Line, row.Code, row.Message)
	}
	if more := report.Refused - len(report.Errors); more > 0 {
		_, _ = fmt.Fprintf(stderr, "%s: and %d more, which the service does not list\n", name, more)
	}
	outcome := "stored"
	switch {
	case o.dryRun:
		outcome = "dry run, nothing stored"
	case !report.Stored:
		outcome = "nothing stored"
	}
	_, _ = fmt.Fprintf(stdout, "%d rows: %d created, %d unchanged, %d refused; %s\n",
		report.Rows, report.Created, report.Unchanged, report.Refused, outcome)
}

// refusedRows returns the error of an import that refused rows.
func refusedRows(o importOptions, report *controllers.ImportReport) error {
	if report.Refused == 0 {
		return nil
	}
	var outcome string
	switch {
	case report.Stored:
		outcome = "the others are stored"
	case o.dryRun:
		outcome = "nothing was stored, as this was a dry run"
	default:
		outcome = "nothing was stored; --partial stores the others"
	}
	return &exitError{3, fmt.Errorf("%d of %d rows refused: %s", report.Refused, report.Rows, outcome)}
}
