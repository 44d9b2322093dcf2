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

// zipFrom is the size from which an import compresses a file, in bytes.
const zipFrom = 1 << 20

// cutZip returns path without the extension .gz, and whether it had that.
func cutZip(path string) (plain string, zipped bool) {
	if extension := filepath.Ext(path); strings.EqualFold(extension, ".gz") {
		return strings.TrimSuffix(path, extension), true
	}
	return path, false
}

// errZipped means that rows are compressed, but not in a file whose name says so.
var errZipped = errors.New("the rows are compressed: name their file with .gz at the end, or decompress them with zcat")

// unzipped is a reader that fails with errZipped if what it reads begins like a gzip file.
type unzipped struct {
	io.Reader
	begun bool
}

func (u *unzipped) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if !u.begun && bytes.HasPrefix(p[:n], []byte(controllers.GzipMagic)) {
		return 0, errZipped
	}
	u.begun = u.begun || n > 0
	return n, err
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
