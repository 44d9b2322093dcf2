package cmd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"plantstore/controllers"
)

// mediaTypeOf returns the media type of format. If format is empty, the extension of path
// determines the media type. Without an extension, it is defaultType, if that is not empty.
func mediaTypeOf(format, path, defaultType string) (string, error) {
	const hint = "add --format csv or --format ndjson"
	extension := strings.ToLower(filepath.Ext(path))
	mediaType := mediaTypes()[cmp.Or(format, strings.TrimPrefix(extension, "."))]
	switch {
	case mediaType != "":
		return mediaType, nil
	case format != "":
		return "", usageError(errors.New("--format must be csv or ndjson"))
	case extension == "" && defaultType != "":
		return defaultType, nil
	case path == "-":
		return "", usageError(errors.New("standard input has no extension: " + hint))
	case extension == "":
		return "", usageError(fmt.Errorf("%s has no extension: %s", path, hint))
	}
	return "", usageError(fmt.Errorf("%s has the unknown extension %s: use .%s, or %s", path, extension, strings.Join(extensions(), ", ."), hint))
}

// mediaTypes returns the media types of extensions.
func mediaTypes() map[string]string {
	return map[string]string{"csv": controllers.TypeCSV, "ndjson": controllers.TypeNDJSON, "jsonl": controllers.TypeNDJSON}
}

func extensions() []string { return slices.Sorted(maps.Keys(mediaTypes())) }

// rowReader counts the rows that it reads: lines, except the header. It can show its
// progress on standard error, if that is a terminal.
type rowReader struct {
	io.Reader
	rows   int64
	header int    // lines before the first row
	open   bool   // the last line that was read has not ended
	quiet  bool   // show no progress
	end    func() // called at the end of input, if not nil
	bar    atomic.Pointer[progressbar.ProgressBar]
}

func newRowReader(r io.Reader, mediaType string) *rowReader {
	rows := &rowReader{Reader: r}
	if mediaType == controllers.TypeCSV {
		rows.header = 1
	}
	return rows
}

func (r *rowReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	rows := bytes.Count(p[:n], []byte{'\n'})
	if n > 0 {
		r.open = p[n-1] != '\n'
	}
	if errors.Is(err, io.EOF) && r.open {
		r.open = false
		rows++
	}
	skipped := min(rows, r.header)
	r.header -= skipped
	rows -= skipped
	r.rows += int64(rows)
	// After stop, there is no bar: the body of a request may be read after its response
	// has arrived.
	if bar := r.bar.Load(); bar != nil {
		_ = bar.Add(rows)
	}
	if errors.Is(err, io.EOF) && r.end != nil {
		r.end()
	}
	return n, err
}

func isTerminal(file *os.File) bool { return term.IsTerminal(int(file.Fd())) }

// showCount shows the number of rows.
func (r *rowReader) showCount(label string) {
	r.show(label, progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionShowTotalBytes(false))
}

// show replaces what is shown by a spinner.
func (r *rowReader) show(label string, options ...progressbar.Option) {
	r.stop()
	r.bar.Store(progressbar.NewOptions64(-1, append(options,
		progressbar.OptionSetVisibility(isTerminal(os.Stderr) && !r.quiet),
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetDescription(label),
		progressbar.OptionSetItsString("rows"),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		// This sets the start time before the goroutine of the spinner reads it.
		progressbar.OptionSetRenderBlankState(true),
	)...))
}

// stop clears the line.
func (r *rowReader) stop() {
	if bar := r.bar.Swap(nil); bar != nil {
		_ = bar.Finish()
	}
}
