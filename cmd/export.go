package cmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newExport(s *settings) *cobra.Command {
	var name, path string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write every plant of a running service to a file, or to standard output",
		Long: "Write every plant of a running service, by ascending id, to a file, or to standard output.\n" +
			"An import takes it back.\n\n" +
			"A file appears whole or not at all. What went to standard output is whole where the exit\n" +
			"status is 0.\n\n" +
			exitStatuses,
		Example: "  plantstore export -o plants.csv\n" +
			"  plantstore export | gzip > plants.ndjson.gz",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := formatOf(name, path, "ndjson")
			if err != nil {
				return err
			}
			c, err := s.client()
			if err != nil {
				return err
			}
			return exportPlants(cmd.Context(), c, f, path, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&name, "format", "", "csv or ndjson (default by the extension of FILE, or else ndjson)")
	cmd.Flags().StringVarP(&path, "output", "o", "-", "`FILE` to write; - is standard output")
	cmd.Flags().AddFlagSet(s.clientFlags)
	return cmd
}

func exportPlants(ctx context.Context, c *client, f format, path string, stdout, stderr io.Writer) error {
	header := http.Header{"Accept": {f.mediaType}}
	response, err := c.send(ctx, http.MethodGet, "plants/export", nil, header, nil, 0, f.mediaType)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	rows := &rowReader{Reader: response.Body, header: f.header}
	if path != "-" || !isTerminal(stdout) { // rows and a bar on one terminal are neither
		rows.progress = newProgress(stderr, "exporting")
		defer rows.progress.stop()
		rows.progress.rows("exporting", -1)
	}
	// Only the end of the answer tells that it is whole.
	save := func(w io.Writer) error {
		_, err := io.Copy(w, rows)
		if _, ours := errors.AsType[*fs.PathError](err); err != nil && !ours {
			err = fmt.Errorf("%w; run the export again", broken(ctx, err))
		}
		return err
	}
	if path == "-" {
		return save(stdout)
	}
	if err := writeFile(path, save); err != nil {
		return err
	}
	rows.progress.stop()
	_, _ = fmt.Fprintf(stdout, "%d plants written to %s\n", rows.rows, path)
	return nil
}

// writeFile has write fill the file path, which appears whole, and on disk, or
// stays what it was.
func writeFile(path string, write func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link is kept
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		device, err := os.OpenFile(path, os.O_WRONLY, 0) // or a pipe: to be written to, and not replaced
		if err != nil {
			return err
		}
		return errors.Join(write(device), device.Close())
	}
	file, err := os.OpenFile(path+"."+rand.Text()[:8]+".part", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
