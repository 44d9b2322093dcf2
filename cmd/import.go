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

func newImport(s *settings) *cobra.Command {
	var format string
	var partial, replace, dryRun, quiet bool
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Send the plants in a file or in standard input to a running service",
		Long: "Send the plants in a file or in standard input to a running service. It stores all of them,\n" +
			"or none if it rejects a row. CSV has a header row with the names of fields; NDJSON has one\n" +
			"object per line. Large files are compressed on the way; a file whose name ends in .gz is\n" +
			"sent as it is. Without --url, the service is the one on this machine, at the address and\n" +
			"port of its configuration.\n\n" +
			"A row whose id exists with different content is rejected, unless --replace is set. The\n" +
			"summary is printed on standard output, and each rejected row, with its line and the\n" +
			"reason, on standard error. It is safe to run an import again: stored rows count as unchanged.\n\n" +
			exitStatuses + "\n  3  rows were rejected",
		Example: "  plantstore import configs/sample-plants.csv\n" +
			"  plantstore import --replace plants.csv.gz\n" +
			"  zcat plants.ndjson.gz | plantstore import - --format ndjson --partial",
		Args: takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			plain, _ := cutGz(path)
			mediaType, err := mediaTypeOf(format, plain, "")
			if err != nil {
				return err
			}
			c, err := s.client()
			if err != nil {
				return err
			}
			query := make(url.Values)
			if partial {
				query.Set("mode", "partial")
			}
			if replace {
				query.Set("on_conflict", "replace")
			}
			if dryRun {
				query.Set("dry_run", "true")
			}
			c.quiet = quiet
			report, err := c.importFile(cmd.Context(), path, mediaType, query)
			if err != nil {
				return err
			}
			return c.printReport(report, path, dryRun)
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "csv or ndjson (default: by the extension of FILE: .csv, .ndjson or .jsonl)")
	cmd.Flags().BoolVar(&partial, "partial", false, "store valid rows even if others are rejected")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace plants that exist with different content")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "store nothing, only report what would happen")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only errors and rejected rows: no progress and no summary")
	complete(cmd, "format", cobra.ShellCompDirectiveNoFileComp, "csv", "ndjson")
	cmd.ValidArgsFunction = cobra.FixedCompletions(extensions(), cobra.ShellCompDirectiveFilterFileExt)
	return s.addTo(cmd, clientFlags)
}

// importFile sends the rows in the file path, or in standard input if path is -.
func (c *client) importFile(ctx context.Context, path, mediaType string, query url.Values) (*controllers.ImportReport, error) {
	rows, size := newRowReader(os.Stdin, mediaType), int64(-1)
	defer rows.stop()
	rows.quiet = c.quiet
	_, gzipped := cutGz(path)
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		rows.Reader = file
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() { // a pipe has no size
			size = info.Size()
		}
	}
	// The service responds when all is stored. Until then, the time that it takes is known.
	rows.end = func() {
		rows.show(fmt.Sprintf("%d rows sent, waiting for the service to store them", rows.rows))
	}
	body := io.Reader(rows)
	if gzipped {
		body = rows.Reader // its rows cannot be counted
		rows.show("importing")
	} else {
		rows.Reader = &plainReader{Reader: rows.Reader}
		rows.showCount("importing")
		if size >= gzipFrom {
			body, size, gzipped = compressed(rows), -1, true
		}
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target("plants/import", query), body)
	if err != nil {
		return nil, err
	}
	request.ContentLength = size // -1 is unknown
	request.Header.Set("Content-Type", mediaType)
	if gzipped {
		request.Header.Set("Content-Encoding", "gzip")
	}
	request.Header.Set("Accept", controllers.TypeJSON)
	request.Header.Set("Expect", "100-continue") // a rejection then comes before the rows
	return c.sendRows(request)
}

// sendRows returns the report of the service. Its errors say whether rows may be stored.
func (c *client) sendRows(request *http.Request) (*controllers.ImportReport, error) {
	response, err := c.send(request)
	var report controllers.ImportReport
	failed, responded := errors.AsType[*responseError](err)
	if responded && failed.report != nil {
		return failed.report, nil
	}
	if err == nil {
		defer response.Body.Close()
		if err = json.NewDecoder(response.Body).Decode(&report); err != nil {
			err = incomplete(request.Context(), err)
		}
	}
	if local, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("%w; nothing was stored", local) // the service did not receive the end
	}
	if errors.Is(err, errGzipped) {
		return nil, usageError(errGzipped)
	}
	if errors.Is(err, errIncomplete) || responded && failed.status >= 500 {
		return nil, fmt.Errorf("%w; it is safe to run the import again: stored rows count as unchanged", err)
	}
	return &report, err
}

// printReport prints the summary on standard output, in the words of the report, and
// the rejected rows on standard error, in the form of compiler errors. It returns an
// error if rows were rejected.
func (c *client) printReport(report *controllers.ImportReport, path string, dryRun bool) error {
	if path == "-" {
		path = "stdin"
	}
	for _, row := range report.Errors {
		fmt.Fprintf(os.Stderr, "%s:%d: %d %s\n", path, row.Line, row.Code, oneLine(row.Message))
	}
	if more := report.Rejected - len(report.Errors); more > 0 {
		fmt.Fprintf(os.Stderr, "%s: and %d more, which the service does not list\n", path, more)
	}
	outcome, others := "stored", "the others are stored"
	switch {
	case dryRun:
		outcome, others = "dry run, nothing stored", "nothing was stored in this dry run"
	case !report.Stored:
		outcome, others = "nothing stored", "nothing was stored; --partial stores the others"
	}
	if !c.quiet {
		fmt.Printf("%d rows: %d created, %d replaced, %d unchanged, %d refused; %s\n",
			report.Rows, report.Created, report.Replaced, report.Unchanged, report.Rejected, outcome)
	}
	if report.Rejected > 0 {
		return &exitError{fmt.Errorf("%d of %d rows rejected: %s", report.Rejected, report.Rows, others), exitRejected}
	}
	return nil
}
