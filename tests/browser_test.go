//go:build browser

package tests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Selectors of Swagger UI.
const (
	operationBlock = `#operations-plants-createPlant`
	liveTable      = operationBlock + ` .live-responses-table`
	liveStatus     = liveTable + ` .response .response-col_status`
	liveBody       = liveTable + ` .response .response-col_description`
	curlCommand    = operationBlock + ` .curl-command`
)

// browser is a Chromium with one page, and the faults of that page.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu     sync.Mutex
	faults []string
}

// openBrowser starts the Chromium at path. Its page may only send requests to base.
func openBrowser(t *testing.T, path, base string) *browser {
	t.Helper()
	// t.Context() would end before the cleanups and kill Chromium, leaving its files.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // the sandbox does not run as root, as in a container
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WindowSize(1280, 1600),
	)...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("close Chromium: %v", err)
		}
	})

	b := &browser{t: t, ctx: ctx, base: base}
	must(t, chromedp.Listen(ctx, b.watch))
	return b
}

// watch records events that are faults of the page.
func (b *browser) watch(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.fault("exception: %s", e.ExceptionDetails.Text)
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			b.fault("thrown: %s", thrown.Description)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			for _, arg := range e.Args {
				b.fault("console error: %s%s", arg.Value, arg.Description)
			}
		}
	case *log.EventEntryAdded:
		// Chromium logs responses with an error status; the tests provoke those of POST
		// /plants.
		wanted := e.Entry.Source == log.EntrySourceNetwork && e.Entry.URL == b.base+"/plants"
		if e.Entry.Level == log.EntryLevelError && !wanted {
			b.fault("logged: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Scheme != "data" && u.Scheme != "chrome" && u.Scheme+"://"+u.Host != b.base {
			b.fault("request to %s", e.Request.URL)
		}
	}
}

func (b *browser) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// assertNoFaults reports the faults of the page so far.
func (b *browser) assertNoFaults() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.t.Errorf("got a fault of the page: %s", fault)
	}
}

func (b *browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// read returns the result of action on the page.
func read[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	found, err := chromedp.Run(b.ctx, action)
	must(b.t, err)
	return found
}

// open opens Swagger UI from the address of the service.
func (b *browser) open() {
	b.t.Helper()
	b.do("open the page", chromedp.Navigate(b.base+"/"), chromedp.WaitVisible(operationBlock))
	if address := read(b, chromedp.Location()); address != b.base+"/swagger/index.html" {
		b.t.Errorf("got %s from /, want Swagger UI", address)
	}
}

// authorize gives token to Swagger UI's Authorize dialog.
func (b *browser) authorize(token string) {
	b.t.Helper()
	b.do("authorize",
		chromedp.Click(`.auth-wrapper .authorize`, chromedp.NodeVisible),
		chromedp.SendKeys(`.modal-ux input`, token, chromedp.NodeVisible),
		chromedp.Click(`.modal-ux button.authorize`, chromedp.NodeVisible),
		chromedp.Click(`.modal-ux button.btn-done`, chromedp.NodeVisible),
		chromedp.WaitNotPresent(`.modal-ux`),
	)
}

// tryOut opens the operation with its example body.
func (b *browser) tryOut() {
	b.t.Helper()
	b.do("open the operation",
		chromedp.Click(operationBlock+` .opblock-summary-control`, chromedp.NodeVisible),
		chromedp.Click(operationBlock+` .try-out__btn`, chromedp.NodeVisible))
}

// execute sends the request and waits until the page shows a response with status and
// text: the response before may have had the same status.
func (b *browser) execute(status, text string) {
	b.t.Helper()
	b.do("execute", chromedp.Click(operationBlock+` button.execute`, chromedp.NodeVisible))
	_, err := chromedp.Run(b.ctx, chromedp.PollFunction[bool](`(status, body, wanted, text) =>
		document.querySelector(status)?.innerText.trim() === wanted && document.querySelector(body).innerText.includes(text)`,
		chromedp.WithPollingArgs(liveStatus, liveBody, status, text), chromedp.WithPollingTimeout(patience/2)))
	if err != nil {
		b.t.Fatalf("got no response %s with %q (%v), but\n%s", status, text, err, read(b, chromedp.Text(liveTable, chromedp.AtLeast(0))))
	}
}

// screenshot writes a picture of the page to path, from the Authorize button to the end of
// the response.
func (b *browser) screenshot(path string) {
	b.t.Helper()
	// Wait for the end of animations.
	clip := read(b, chromedp.Poll[page.Viewport](`(() => {
		if (document.getAnimations().length > 0) return
		const top = document.querySelector(".scheme-container").getBoundingClientRect().top + scrollY
		const bottom = document.querySelector("`+liveTable+`").getBoundingClientRect().bottom + scrollY
		return {x: 0, y: top, width: document.documentElement.clientWidth, height: bottom - top + 6, scale: 1}
	})()`))
	beyond := true // than the window
	picture, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Clip: &clip, CaptureBeyondViewport: &beyond})
	must(b.t, err)
	must(b.t, os.WriteFile(path, picture.Data, 0o644))
}

// chromium returns the path of Chromium.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("this test needs Chromium: make test installs it, or apt-get install chromium")
	return ""
}

// TestBrowserCORS calls the API from a page of another origin.
func TestBrowserCORS(t *testing.T) {
	path := chromium(t)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!DOCTYPE html><title>Another origin</title>")
	}))
	t.Cleanup(pages.Close)
	for name, test := range map[string]struct {
		origins, want string
		stored        int
	}{
		"an allowed origin":      {"https://plants.example.org," + pages.URL, "200 Monstera true", 200},
		"another origin allowed": {"https://plants.example.org", "TypeError: Failed to fetch", 404},
		"no origin allowed":      {"", "TypeError: Failed to fetch", 404},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, "PLANTSTORE_SERVER_CORS_ORIGINS="+test.origins)
			b := openBrowser(t, path, pages.URL)
			b.do("open the page", chromedp.Navigate(pages.URL))
			got := read(b, chromedp.Evaluate[string](fmt.Sprintf(`fetch("%s/plants", {
				method: "POST",
				headers: {Authorization: "Bearer %s", "Content-Type": "application/json"},
				body: JSON.stringify({id: 1, name: "Monstera"}),
			}).then(
				async r => r.status + " " + (await r.json()).name + " " + (r.headers.get("ETag") !== null && r.headers.get("X-Request-ID") !== null),
				error => String(error))`, s.url, token), chromedp.EvalAwaitPromise))
			if got != test.want {
				t.Errorf("the page got %q, want %q", got, test.want)
			}
			checkStatus(t, s.get(t, "/plants/1", as(token)...), test.stored)
		})
	}
}

func TestBrowserSwaggerUI(t *testing.T) {
	path := chromium(t)
	t.Run("create", func(t *testing.T) {
		b := openBrowser(t, path, start(t).url)
		b.open()
		b.authorize(token)
		b.tryOut()
		b.execute("200", "Monstera deliciosa")
		curl := read(b, chromedp.Text(curlCommand))
		if strings.Count(curl, "Bearer") != 1 || !strings.Contains(curl, "'Authorization: Bearer "+token+"'") {
			t.Errorf("got the command %q, want one token", curl)
		}
		if path := os.Getenv("SCREENSHOT"); path != "" {
			b.screenshot(path)
		}
		b.execute("409", "40902")
		b.assertNoFaults()
	})
	// Parts that show only when opened must also follow the policy of the page.
	t.Run("all operations and schemas", func(t *testing.T) {
		b := openBrowser(t, path, start(t).url)
		b.open()
		opened := read(b, chromedp.Evaluate[int](`(() => {
			const found = document.querySelectorAll(".opblock-summary-control, .models .json-schema-2020-12-expand-deep-button")
			found.forEach(element => element.click())
			return found.length
		})()`))
		if opened < 10 {
			t.Errorf("got %d operations and schemas, want at least 10", opened)
		}
		b.do("wait for all",
			chromedp.WaitVisible(`#operations-plants-exportPlants .opblock-body`),
			chromedp.WaitVisible(`.models .json-schema-2020-12-body:not(.json-schema-2020-12-body--collapsed)`))
		b.assertNoFaults()
	})
	t.Run("wrong token", func(t *testing.T) {
		b := openBrowser(t, path, start(t).url)
		b.open()
		b.tryOut()
		b.execute("401", "40101")
		b.authorize("wrong")
		b.execute("401", "40102")
		b.assertNoFaults()
	})
}
