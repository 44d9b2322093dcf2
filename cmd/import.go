package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"plantstore/controllers"
)

// importFlags are the flags of import that set a parameter of the query.
var importFlags = []struct{ name, parameter, value, usage string }{
	{"partial", "mode", "partial", "store valid rows even if others are rejected"},
	{"replace", "on_conflict", "replace", "replace rows that exist with different content"},
	{"merge", "on_conflict", "merge", "change only the fields that rows have, and store rows with a new id"},
	{"dry-run", "dry_run", "true", "store nothing, only report what would happen"},
}

func newImport(s *settings) *cobra.Command {
	var format string
	var ignored []string
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Send the rows in a file or in standard input to a running service",
		Long: "Send the rows in a file or in standard input to a running service. It stores all of them,\n" +
			"or none if it rejects a row. --resource names what they are. CSV has a header row with the\n" +
			"names of fields; NDJSON has one object per line.\n\n" +
			"A row whose id exists with different content is rejected, unless --replace or --merge is set.\n" +
			"A row with an etag, as in an export with --etag, is rejected if the row has changed since. Lines\n" +
			"that the follow command prints store and delete rows. The summary is printed on standard output,\n" +
			"and each rejected row, with its line and the reason, on standard error. It is safe to run an\n" +
			"import again: stored rows count as unchanged.\n\n" +
			exitStatuses + "\n  3  rows were rejected",
		Example: "  plantstore import configs/sample-plants.csv\n" +
			"  plantstore import --replace plants.csv\n" +
			"  plantstore import --merge tags.csv\n" +
			"  zcat plants.ndjson.gz | plantstore import - --format ndjson --partial",
		Args: takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			mediaType, err := mediaTypeOf(format, path)
			if err != nil {
				return err
			}
			query := make(url.Values)
			for _, f := range importFlags {
				if on, _ := cmd.Flags().GetBool(f.name); on && query.Has(f.parameter) {
					return withHelp(cmd, errors.New("--replace and --merge exclude each other"))
				} else if on {
					query.Set(f.parameter, f.value)
				}
			}
			if ignored != nil {
				query.Set("ignore_columns", strings.Join(ignored, ","))
			}
			c, err := s.client()
			if err != nil {
				return err
			}
			report, err := c.importFile(cmd.Context(), path, mediaType, query)
			if err != nil {
				return err
			}
			return printReport(report, path, query.Has("dry_run"))
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "csv or ndjson (default: by the extension of FILE: .csv, .ndjson or .jsonl)")
	for _, f := range importFlags {
		cmd.Flags().Bool(f.name, false, f.usage)
	}
	cmd.Flags().StringSliceVar(&ignored, "ignore-columns", nil, "columns of CSV that are not read, separated by commas")
	return s.addTo(cmd, clientFlags)
}

// importFile sends the rows in the file path, or in standard input if path is -.
func (c *client) importFile(ctx context.Context, path, mediaType string, query url.Values) (*controllers.ImportReport, error) {
	rows, size := io.Reader(os.Stdin), int64(-1) // unknown
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		rows = file
		switch {
		case info.IsDir():
			return nil, fmt.Errorf("%s is a folder", path)
		case info.Mode().IsRegular(): // a pipe has no size
			size = info.Size()
			rows = io.LimitReader(file, size) // it may grow meanwhile
		}
	}
	request := c.request(ctx, http.MethodPost, "import", query, controllers.TypeJSON, rows)
	request.ContentLength = size
	request.Header.Set("Content-Type", mediaType)
	request.Header.Set("Expect", "100-continue") // a rejection then comes before the rows

	response, err := c.send(request)
	if failed, ok := errors.AsType[*responseError](err); ok {
		if failed.report != nil {
			return failed.report, nil
		}
		if failed.status < 500 {
			return nil, failed
		}
	}
	var report controllers.ImportReport
	if err == nil {
		defer response.Body.Close()
		err = json.NewDecoder(response.Body).Decode(&report)
	}
	if err != nil { // the rows may be stored
		return nil, fmt.Errorf("%w; it is safe to run the import again: stored rows count as unchanged", err)
	}
	return &report, nil
}

// printReport prints the summary, and the rejected rows in the form of compiler errors. It fails if rows were rejected.
func printReport(report *controllers.ImportReport, path string, dryRun bool) error {
	if path == "-" {
		path = "stdin"
	}
	for _, row := range report.Errors {
		fmt.Fprintf(os.Stderr, "%s:%d: %d %s\n", path, row.Line, row.Code, oneLine(row.Message))
	}
	if more := report.Rejected - len(report.Errors); more > 0 {
		fmt.Fprintf(os.Stderr, "%s: and %d more, which the service does not list\n", path, more)
	}
	for _, row := range report.Warnings {
		fmt.Fprintf(os.Stderr, "%s:%d: warning: %s\n", path, row.Line, oneLine(row.Message))
	}
	outcome := "stored"
	switch {
	case dryRun:
		outcome = "dry run, nothing stored"
	case !report.Stored:
		outcome = "nothing stored"
	}
	edited := ""
	if report.Merged+report.Deleted > 0 {
		edited = fmt.Sprintf("%d merged, %d deleted, ", report.Merged, report.Deleted)
	}
	fmt.Printf("%d rows: %d created, %d replaced, %s%d unchanged, %d refused; %s\n",
		report.Rows, report.Created, report.Replaced, edited, report.Unchanged, report.Rejected, outcome)
	if report.Rejected > 0 {
		return &exitError{fmt.Errorf("%d of %d rows rejected", report.Rejected, report.Rows), exitRejected}
	}
	return nil
}
