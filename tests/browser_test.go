//go:build browser

package tests

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// The parts of Swagger UI that a person clicks and reads.
const (
	operationBlock  = `#operations-plants-createPlant`
	authorizeButton = `.auth-wrapper .authorize`
	tokenInput      = `.modal-ux input`
	liveStatus      = operationBlock + ` .live-responses-table .response .response-col_status`
	liveBody        = operationBlock + ` .live-responses-table .response .response-col_description`
)

// browser is a Chromium with one page, which remembers what went wrong on it.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// openBrowser starts Chromium. Its page may talk to the service at base alone.
func openBrowser(t *testing.T, base string) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("this test needs Chromium: make test installs it, or apt-get install chromium")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // Chromium's sandbox refuses root, who runs the tests in a container
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WindowSize(1280, 1700),
	)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)

	b := &browser{t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.fault("exception: " + e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError {
				b.fault("console error")
			}
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(e.Request.URL); err != nil || strings.HasPrefix(u.Scheme, "http") && "http://"+u.Host != base {
				b.fault("request to " + e.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *browser) fault(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, what)
}

func (b *browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// read returns what action finds on the page.
func read[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	found, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// authorize gives token to Swagger UI's Authorize dialog.
func (b *browser) authorize(token string) {
	b.t.Helper()
	b.do("authorize",
		chromedp.Click(authorizeButton, chromedp.NodeVisible),
		chromedp.SendKeys(tokenInput, token, chromedp.NodeVisible),
		chromedp.Click(`.modal-ux button.authorize`, chromedp.NodeVisible),
		chromedp.Click(`.modal-ux button.btn-done`, chromedp.NodeVisible),
		chromedp.WaitNotPresent(`.modal-ux`),
	)
}

// execute sends the request and waits for an answer with status.
func (b *browser) execute(status string) (shown, curl string) {
	b.t.Helper()
	b.do("execute", chromedp.Click(operationBlock+` button.execute`, chromedp.NodeVisible))
	read(b, chromedp.Poll[bool](`document.querySelector("`+liveStatus+`")?.innerText.trim() === "`+status+`"`,
		chromedp.WithPollingTimeout(patience)))
	return read(b, chromedp.Text(liveBody)), read(b, chromedp.Text(operationBlock+` .curl-command`))
}

func TestBrowserSwaggerUI(t *testing.T) {
	s := start(t)
	b := openBrowser(t, s.url)
	b.do("open the page", chromedp.Navigate(s.url+"/"), chromedp.WaitVisible(operationBlock))
	if address := read(b, chromedp.Location()); address != s.url+"/swagger/index.html" {
		t.Errorf("/ leads to %s", address)
	}
	b.do("open the operation",
		chromedp.Click(operationBlock+` .opblock-summary-control`, chromedp.NodeVisible),
		chromedp.Click(operationBlock+` .try-out__btn`, chromedp.NodeVisible),
	)

	if shown, _ := b.execute("401"); !strings.Contains(shown, "40101") {
		t.Errorf("without a token: %q", shown)
	}
	b.authorize(token)
	shown, curl := b.execute("200")
	if !strings.Contains(shown, "Monstera deliciosa") || !strings.Contains(shown, "/plants/1") {
		t.Errorf("the answer is shown as %q", shown)
	}
	if strings.Count(curl, "Bearer") != 1 || !strings.Contains(curl, "'Authorization: Bearer "+token+"'") {
		t.Errorf("sent as %q", curl)
	}
	if path := os.Getenv("SCREENSHOT"); path != "" {
		b.do("scroll", chromedp.Evaluate[chromedp.Void](`document.querySelector(".scheme-container").scrollIntoView()`))
		if err := os.WriteFile(path, read(b, chromedp.CaptureScreenshot()), 0o644); err != nil {
			t.Error(err)
		}
	}
	if shown, _ := b.execute("409"); !strings.Contains(shown, "40902") {
		t.Errorf("sent again: %q", shown)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		t.Errorf("on the page: %s", strings.Join(b.faults, "; "))
	}
}
