package cmd

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows the progress of an import or an export on w, if w is a terminal.
type progress struct {
	w   io.Writer
	bar atomic.Pointer[progressbar.ProgressBar]
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// show replaces the bar by one of total rows, or by a spinner if total is -1.
func (p *progress) show(label string, total int64, options ...progressbar.Option) {
	p.stop()
	p.bar.Store(progressbar.NewOptions64(total, append(options,
		progressbar.OptionSetVisibility(isTerminal(p.w)),
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(label),
		progressbar.OptionSetItsString("rows"),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		// This sets the start time before the goroutine of the spinner reads it.
		progressbar.OptionSetRenderBlankState(true),
	)...))
}

// rows starts a count of rows, out of total if that is positive.
func (p *progress) rows(label string, total int64) {
	if total <= 0 {
		total = -1
	}
	p.show(label, total, progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionShowTotalBytes(total > 0))
}

// add counts rows. It has no effect after stop: the body of a request may be read after
// its response has arrived.
func (p *progress) add(rows int) {
	if bar := p.bar.Load(); bar != nil {
		_ = bar.Add(rows)
	}
}

// stop clears the line.
func (p *progress) stop() {
	if bar := p.bar.Swap(nil); bar != nil {
		_ = bar.Finish()
	}
}

// rowReader counts the rows that it reads: lines, except the first header lines.
type rowReader struct {
	io.Reader
	header   int
	rows     int64
	progress progress
	end      func() // called at the end of input, if not nil
}

func (r *rowReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	rows := bytes.Count(p[:n], []byte{'\n'})
	skipped := min(rows, r.header)
	r.header -= skipped
	rows -= skipped
	r.rows += int64(rows)
	r.progress.add(rows)
	if errors.Is(err, io.EOF) && r.end != nil {
		r.end()
	}
	return n, err
}
