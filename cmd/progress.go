package cmd

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows on a terminal how far an import or an export has come. A nil
// one shows nothing.
type progress struct {
	w   io.Writer
	mu  sync.Mutex
	bar *progressbar.ProgressBar // nil when it has stopped
}

// newProgress returns a progress on w that does what, or nil where w is not a
// terminal.
func newProgress(w io.Writer, what string) *progress {
	if !isTerminal(w) {
		return nil
	}
	p := &progress{w: w}
	p.show(what, -1)
	return p
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// show begins a bar of total rows, or a spinner where total is -1.
func (p *progress) show(what string, total int64, options ...progressbar.Option) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish()
	}
	p.bar = progressbar.NewOptions64(total, append(options,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetItsString("rows"),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		// Drawn before its first row, the spinner's goroutine reads a start that is set.
		progressbar.OptionSetRenderBlankState(true),
	)...)
}

// rows begins to count rows, of total or, where that is not positive, of as many
// as come.
func (p *progress) rows(what string, total int64) {
	if total <= 0 {
		total = -1
	}
	p.show(what, total, progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionShowTotalBytes(total > 0))
}

func (p *progress) add(rows int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Add(rows)
	}
}

// stop leaves an empty line to write on. What is added later is not shown: a
// request's body may be read after its answer has come.
func (p *progress) stop() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
	}
}

// rowReader counts the rows that it reads: lines, of which the first header are
// none.
type rowReader struct {
	io.Reader
	header   int
	rows     int64
	progress *progress
	end      func() // called at the end, if not nil
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
