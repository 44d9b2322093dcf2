//go:build browser

package clients

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"plantstore/tests/service"
)

// browser is a Chromium with one page, and the faults of that page.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string
	also string // the start of further URLs to which the page may send requests; or empty

	mu     sync.Mutex
	faults []string
}

// openBrowser starts the Chromium at path. Its page may only send requests to base.
func openBrowser(t *testing.T, path, base string) *browser {
	t.Helper()
	// t.Context() would end before the cleanups and kill Chromium, leaving its files.
	ctx, cancel := context.WithTimeout(context.Background(), 20*service.Patience) // beside other tests
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // the sandbox does not run as root, as in a container
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WindowSize(1280, 1600),
		chromedp.WSURLReadTimeout(service.Patience), // for the start
	)...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("close Chromium: %v", err)
		}
	})

	b := &browser{t: t, ctx: ctx, base: base}
	service.Must(t, chromedp.Listen(ctx, b.watch))
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
		// Chromium logs responses with an error status; the tests provoke those of the API.
		wanted := e.Entry.Source == log.EntrySourceNetwork &&
			(strings.HasPrefix(e.Entry.URL, b.base+"/plants") || strings.HasPrefix(e.Entry.URL, b.base+"/tokens"))
		if e.Entry.Level == log.EntryLevelError && !wanted {
			b.fault("logged: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		scheme, _, _ := strings.Cut(e.Request.URL, ":")
		isWanted := strings.HasPrefix(e.Request.URL+"/", b.base+"/") || b.also != "" && strings.HasPrefix(e.Request.URL, b.also)
		if !slices.Contains([]string{"data", "blob", "chrome"}, scheme) && !isWanted {
			b.fault("request to %s", e.Request.URL)
		}
		if e.Request.Method == http.MethodOptions || e.Request.Headers["X-Requested-With"] != nil {
			b.fault("a request that is not simple: %s %v", e.Request.URL, e.Request.Headers)
		}
	}
}

func (b *browser) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// run runs a subtest, to which b reports meanwhile.
func (b *browser) run(name string, test func(t *testing.T)) {
	outer := b.t
	outer.Run(name, func(t *testing.T) {
		b.t = t
		defer func() { b.t = outer }()
		test(t)
	})
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
	service.Must(b.t, err)
	return found
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
	t.Parallel()
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
			t.Parallel()
			s := service.Start(t, "PLANTSTORE_SERVER_CORS_ORIGINS="+test.origins)
			b := openBrowser(t, path, pages.URL)
			b.do("open the page", chromedp.Navigate(pages.URL))
			got := read(b, chromedp.Evaluate[string](fmt.Sprintf(`fetch("%s/plants", {
				method: "POST",
				headers: {Authorization: "Bearer %s", "Content-Type": "application/json"},
				body: JSON.stringify({id: 1, name: "Monstera"}),
			}).then(
				async r => r.status + " " + (await r.json()).name + " " + (r.headers.get("ETag") !== null && r.headers.get("X-Request-ID") !== null),
				error => String(error))`, s.URL, service.Token), chromedp.EvalAwaitPromise))
			if got != test.want {
				t.Errorf("the page got %q, want %q", got, test.want)
			}
			s.Get(t, "/plants/1", service.As(service.Token)...).CheckStatus(t, test.stored)
		})
	}
}

// TestBrowserFollows opens the page in docs/clients.md at another origin. It follows the changes beyond a restart of the service.
func TestBrowserFollows(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/clients.md")
	service.Must(t, err)
	_, page, _ := strings.Cut(string(text), "```html\n")
	page, _, ok := strings.Cut(page, "```\n")
	if !ok {
		t.Fatal("docs/clients.md has no HTML")
	}
	port := service.FreePorts(t, 1)[0]
	page = strings.NewReplacer("http://localhost:8080", "http://127.0.0.1:"+port, "the token", service.Token).Replace(page)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, page)
	}))
	t.Cleanup(pages.Close)
	settings := []string{"PORT=" + port, "DATABASE_URL=sqlite:" + t.TempDir() + "/plants.db", "PLANTSTORE_SERVER_CORS_ORIGINS=" + pages.URL}
	s := service.Start(t, settings...)
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	b := openBrowser(t, chromium(t), pages.URL)
	b.do("open the page", chromedp.Navigate(pages.URL))
	await := func(want string) {
		t.Helper()
		service.Eventually(t, want, func() bool {
			return read(b, chromedp.Evaluate[string](`[...document.querySelectorAll("li")].map(li => li.textContent).join(", ")`)) == want
		})
	}
	await("1 plant 1")
	s.Post(t, service.BodyOf(2)).RequireOK(t)
	await("1 plant 1, 2 plant 2")
	s.Stop(t)
	s = service.Start(t, settings...)
	s.Send(t, "DELETE", "/plants/1", nil, service.As(service.Token)...).CheckStatus(t, 204)
	await("2 plant 2")
}
