package cmd

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// zipFrom is the size from which an import compresses a file, in bytes.
const zipFrom = 1 << 20

// cutZip returns path without the extension .gz, and whether it had that.
func cutZip(path string) (plain string, zipped bool) {
	if extension := filepath.Ext(path); strings.EqualFold(extension, ".gz") {
		return strings.TrimSuffix(path, extension), true
	}
	return path, false
}

// zip returns in, compressed while it is read.
func zip(in io.Reader) io.ReadCloser {
	out, pipe := io.Pipe()
	go func() { _ = pipe.CloseWithError(copyZipped(pipe, in)) }()
	return out
}

// copyZipped writes in to out, compressed.
func copyZipped(out io.Writer, in io.Reader) error {
	w := gzip.NewWriter(out)
	if _, err := io.Copy(w, in); err != nil {
		return err // without the end, out is not complete
	}
	return w.Close()
}
