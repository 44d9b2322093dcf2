package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plantstore/controllers"
)

func newExport(s *settings) *cobra.Command {
	var format, path string
	var quiet bool
	filter := pflag.NewFlagSet("filter", pflag.ContinueOnError)
	filter.String("tag", "", "only plants with exactly this tag")
	filter.String("q", "", "only plants with this text in their name, ignoring case")
	filter.String("after", "", "only plants with a greater id")
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the plants of a running service to a file or to standard output",
		Long: "Write all plants of a running service, or those that the flags select, ordered by id, to a\n" +
			"file or to standard output. The import command reads them back. A file whose name ends in .gz\n" +
			"is compressed. Without --url, the service is the one on this machine, at the address and port\n" +
			"of its configuration.\n\n" +
			"A file is complete or not written at all. Standard output is complete if the exit status\n" +
			"is 0.\n\n" +
			exitStatuses,
		Example: "  plantstore export -o plants.csv\n" +
			"  plantstore export -o plants.ndjson.gz",
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usageError(errors.New("--output must be a path, or - for standard output"))
			}
			plain, _ := cutGz(path)
			mediaType, err := mediaTypeOf(format, plain, controllers.TypeNDJSON)
			if err != nil {
				return err
			}
			c, err := s.client()
			if err != nil {
				return err
			}
			c.quiet = quiet
			query := make(url.Values)
			filter.VisitAll(func(f *pflag.Flag) {
				if f.Changed { // also an empty tag
					query.Set(f.Name, f.Value.String())
				}
			})
			return c.export(cmd.Context(), query, mediaType, path)
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "csv or ndjson (default: by the extension of FILE, or ndjson if it has none)")
	cmd.Flags().StringVarP(&path, "output", "o", "-", "`FILE` to write, or - for standard output")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only errors: no progress and no summary")
	cmd.Flags().AddFlagSet(filter)
	complete(cmd, "format", cobra.ShellCompDirectiveNoFileComp, "csv", "ndjson")
	complete(cmd, "output", cobra.ShellCompDirectiveFilterFileExt, extensions()...)
	return s.addTo(cmd, clientFlags)
}

// export writes the plants that query selects to the file path, or to standard output if
// path is -.
func (c *client) export(ctx context.Context, query url.Values, mediaType, path string) error {
	response, err := c.get(ctx, "plants/export", query, mediaType)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	rows := newRowReader(response.Body, mediaType)
	rows.quiet = c.quiet
	if path != "-" || !isTerminal(os.Stdout) { // a terminal shows either rows or a bar
		rows.showCount("exporting")
		defer rows.stop()
	}
	_, gzipped := cutGz(path)
	save := func(w io.Writer) (err error) {
		if gzipped {
			err = copyGzipped(w, rows)
		} else {
			_, err = io.Copy(w, rows)
		}
		if _, local := errors.AsType[*fs.PathError](err); err != nil && !local {
			err = fmt.Errorf("%w; run the export again", incomplete(ctx, err))
		}
		return err
	}
	if path == "-" {
		return save(os.Stdout)
	}
	if err := writeFile(path, save); err != nil {
		return err
	}
	rows.stop()
	if !c.quiet {
		fmt.Printf("%d plants written to %s\n", rows.rows, path)
	}
	return nil
}
