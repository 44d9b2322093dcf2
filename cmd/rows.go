package cmd

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"plantstore/controllers"
)

// mediaTypeOf returns the media type of the given format. If that is empty, the extension
// of path determines the media type; otherwise it is defaultType, if that is not empty.
func mediaTypeOf(format, path, defaultType string) (string, error) {
	types := map[string]string{"csv": controllers.TypeCSV, "ndjson": controllers.TypeNDJSON, "jsonl": controllers.TypeNDJSON}
	extension := strings.ToLower(strings.TrimPrefix(filepath.Ext(path), "."))
	mediaType := types[cmp.Or(format, extension)]
	if format == "" {
		mediaType = cmp.Or(mediaType, defaultType)
	}
	if mediaType == "" {
		return "", usageError(errors.New("--format must be csv or ndjson"))
	}
	return mediaType, nil
}

// rowReader counts the rows that it reads: lines, except the header. It can show its
// progress on standard error, if that is a terminal.
type rowReader struct {
	io.Reader
	rows   int64
	header int    // lines before the first row
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

// showCount shows the number of rows, out of total if that is positive.
func (r *rowReader) showCount(label string, total int64) {
	total = cmp.Or(total, -1)
	r.show(label, total, progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionShowTotalBytes(total > 0))
}

// show replaces the bar by one of total rows, or by a spinner if total is -1.
func (r *rowReader) show(label string, total int64, options ...progressbar.Option) {
	r.stop()
	r.bar.Store(progressbar.NewOptions64(total, append(options,
		progressbar.OptionSetVisibility(isTerminal(os.Stderr)),
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
