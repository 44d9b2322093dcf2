package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plantstore/controllers"
	"plantstore/models"
	"plantstore/routes"
)

func newExport(s *settings) *cobra.Command {
	var format, path string
	var excel, etag bool
	filter := pflag.NewFlagSet("filter", pflag.ContinueOnError)
	filter.StringArray("after", nil, "only rows with a greater `id`")
	usages := map[string]string{
		"=": "exactly this `%s`; repeat the flag for rows with any of several", models.Contains: "this `text` in their %s, ignoring case", ">": "a %s after this `value`", "<": "a %s before this `value`",
	}
	for _, r := range routes.Resources(routes.Options{}) {
		for _, f := range r.Filters() {
			if name := strings.ReplaceAll(f.Name, "_", "-"); filter.Lookup(name) == nil {
				filter.StringArray(name, nil, "only rows with "+fmt.Sprintf(usages[f.Operator], f.Column.DBName))
			}
		}
	}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the rows of a running service to a file or to standard output",
		Long: "Write all rows that --resource names, or those that the flags select, ordered by id, to a file\n" +
			"or to standard output. The import command reads them back.\n\n" +
			"A file is complete or not written at all. Standard output is complete if the exit status\n" +
			"is 0.\n\n" +
			exitStatuses,
		Example: "  plantstore export -o plants.csv\n" +
			"  plantstore export --format csv | gzip > plants.csv.gz",
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return withHelp(cmd, errors.New("--output must be a path, or -"))
			}
			if excel {
				format = "csv"
			}
			if filepath.Ext(path) == "" {
				format = cmp.Or(format, "ndjson")
			}
			mediaType, err := mediaTypeOf(format, path)
			if err != nil {
				return err
			}
			c, err := s.client()
			if err != nil {
				return err
			}
			query := make(url.Values)
			if excel {
				query.Set("bom", "true")
			}
			if etag {
				query.Set("etag", "true")
			}
			filter.VisitAll(func(f *pflag.Flag) {
				if f.Changed { // also an empty tag
					query[strings.ReplaceAll(f.Name, "-", "_")] = f.Value.(pflag.SliceValue).GetSlice()
				}
			})
			return c.export(cmd.Context(), query, mediaType, path)
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "csv or ndjson (default: by the extension of FILE, or ndjson if it has none)")
	cmd.Flags().StringVarP(&path, "output", "o", "-", "`FILE` to write, or - for standard output")
	cmd.Flags().BoolVar(&excel, "excel", false, "write CSV with a byte order mark, without which Excel garbles letters outside of ASCII")
	cmd.Flags().BoolVar(&etag, "etag", false, "add the etag of each row: the import command then changes only rows that still have it")
	s.addTo(cmd, clientFlags)
	cmd.Flags().AddFlagSet(filter) // except flags whose names are taken
	return cmd
}

// export writes the rows that query selects to the file path, or to standard output if path is -.
func (c *client) export(ctx context.Context, query url.Values, mediaType, path string) error {
	response, err := c.send(c.request(ctx, http.MethodGet, "export", query, mediaType, nil))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := lineCounter{csv: mediaType == controllers.TypeCSV}
	save := func(w io.Writer) error {
		if _, err := io.Copy(io.MultiWriter(w, &lines), response.Body); err != nil {
			return fmt.Errorf("the export is not complete: %w; run the export again", err)
		}
		return nil
	}
	if path == "-" {
		return save(os.Stdout)
	}
	if err := writeFile(path, save); err != nil {
		return err
	}
	if lines.csv {
		lines.n-- // the header
	}
	fmt.Printf("%d %s written to %s\n", lines.n, c.resource, path)
	return nil
}

// lineCounter counts the lines that are written to it, but not those within a cell of CSV.
type lineCounter struct {
	csv, quoted bool
	n           int
}

func (l *lineCounter) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b == '"' && l.csv: // two stand for one in a cell
			l.quoted = !l.quoted
		case b == '\n' && !l.quoted:
			l.n++
		}
	}
	return len(p), nil
}
