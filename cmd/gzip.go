package cmd

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"

	"plantstore/controllers"
)

// gzipFrom is the size from which an import compresses a file, in bytes.
const gzipFrom = 1 << 20

// cutGz returns path without the extension .gz, and whether it had that.
func cutGz(path string) (plain string, gzipped bool) {
	if extension := filepath.Ext(path); strings.EqualFold(extension, ".gz") {
		return strings.TrimSuffix(path, extension), true
	}
	return path, false
}

// errGzipped means that rows are compressed, but not in a file whose name says so.
var errGzipped = errors.New("the rows are compressed: name their file with .gz at the end, or decompress them with zcat")

// plainReader is a reader that fails with errGzipped if what it reads begins like a gzip file.
type plainReader struct {
	io.Reader
	begun bool
}

func (r *plainReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.begun && bytes.HasPrefix(p[:n], []byte(controllers.GzipMagic)) {
		return 0, errGzipped
	}
	r.begun = r.begun || n > 0
	return n, err
}

// compressed returns in, compressed while it is read.
func compressed(in io.Reader) io.ReadCloser {
	out, pipe := io.Pipe()
	go func() { _ = pipe.CloseWithError(copyGzipped(pipe, in)) }()
	return out
}

// copyGzipped writes in to out, compressed.
func copyGzipped(out io.Writer, in io.Reader) error {
	w := gzip.NewWriter(out)
	if _, err := io.Copy(w, in); err != nil {
		return err // without the end, out is not complete
	}
	return w.Close()
}
