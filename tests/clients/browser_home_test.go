//go:build browser

package clients

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"plantstore/tests/service"
)

var (
	schemes = []string{"light", "dark"}
	screens = []device{desktop, {"phone", 375, 812, true}, {"wide", 1920, 1080, false}}
)

// scheme makes the system light or dark.
func (b *browser) scheme(scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	service.Must(b.t, err)
}

// await waits until the JavaScript expression is true, and otherwise prints what the first page shows.
func (b *browser) await(expression string) {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(service.Patience/2))); err != nil {
		b.t.Fatalf("%s: %v in\n%s", expression, err, read(b, chromedp.Text("main")))
	}
}

// awaitRows waits until the table of the first page has rows, each with its cells separated by a tab, without times.
func (b *browser) awaitRows(rows ...string) {
	b.t.Helper()
	want, err := json.Marshal(append([]string{}, rows...))
	service.Must(b.t, err)
	b.await(fmt.Sprintf(`JSON.stringify([...document.querySelectorAll("tbody tr")].map(
		tr => [...tr.cells].slice(0, 3).map(td => td.textContent).join("\t"))) === JSON.stringify(%s)`, want))
}

func TestBrowserFirstPage(t *testing.T) {
	t.Parallel()
	path := chromium(t)
	t.Run("without JavaScript", func(t *testing.T) {
		t.Parallel()
		b := openBrowser(t, path, service.Start(t).URL)
		_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		service.Must(t, err)
		b.do("open", chromedp.Navigate(b.base+"/"))
		text := read(b, chromedp.Text("body"))
		for _, want := range []string{"stores plants", "curl -i http://localhost:8080/plants", "Swagger UI", "OpenAPI document", "needs JavaScript"} {
			if !strings.Contains(text, want) {
				t.Errorf("got %q, want %q in it", text, want)
			}
		}
		if strings.Contains(text, "Show plants") {
			t.Error("got a form, which needs JavaScript")
		}
		b.assertNoFaults()
	})
	t.Run("plants", func(t *testing.T) {
		t.Parallel()
		s := service.Start(t, "PLANTSTORE_SERVER_BASE_PATH=/our/store")
		b := openBrowser(t, path, s.Behind(t, "/our/store", nil))
		const large = 9223372036854775807 // beyond 2^53
		s.Post(t, fmt.Sprintf(`{"id":%d,"name":"Aloe vera","tag":"succulent"}`, large)).RequireOK(t)
		var rows strings.Builder
		for id := range 60 {
			fmt.Fprintf(&rows, "{\"id\":%d,\"name\":\"Fern %d\"}\n", id, id)
		}
		s.ImportRows(t, "", "application/x-ndjson", rows.String()).RequireOK(t)

		b.do("open", chromedp.Navigate(b.base)) // without a / at the end
		b.await(`document.getElementById("curl").textContent.startsWith("curl -i ` + b.base + `/plants ")`)
		b.signIn("wrong")
		b.await(`document.getElementById("status").textContent.includes("40102")`)
		b.signIn(service.Token)
		b.await(`document.getElementById("count").textContent === "Page 1; plants in all: 61"`)
		b.await(`document.getElementById("status").textContent.startsWith("Live")`)
		b.do("next page", chromedp.Click("#next"))
		b.await(`document.querySelector("tbody").textContent.startsWith("25Fern 25")`)
		b.do("next page", chromedp.Click("#next"))
		b.await(`document.getElementById("count").textContent === "Page 3; plants in all: 61" && document.getElementById("next").disabled`)
		b.do("previous page", chromedp.Click("#previous"))
		b.await(`document.querySelector("tbody").textContent.startsWith("25Fern 25")`)
		b.enter("[name=tag]", "succulent")
		aloe := fmt.Sprintf("%d\tAloe vera\tsucculent", large)
		b.awaitRows(aloe)
		b.do("reload", chromedp.Reload()) // the tab keeps the token
		b.enter("[name=q]", "fern 5")
		b.enter("[name=sort]", "-id")
		b.await(`document.querySelector("tbody").textContent.startsWith("59Fern 59")`)

		// What others write shows by itself.
		b.enter("[name=q]", "fern 58")
		b.awaitRows("58\tFern 58\t")
		s.Call(t, "PUT", "/plants/58", `{"name":"Fern 58","tag":"<b>fern</b>"}`).RequireOK(t)
		b.awaitRows("58\tFern 58\t<b>fern</b>")
		b.await(`document.querySelector("tr.new") !== null`)
		s.Post(t, `{"id":1000,"name":"Fern 580"}`).RequireOK(t)
		b.awaitRows("1000\tFern 580\t", "58\tFern 58\t<b>fern</b>")
		s.Call(t, "DELETE", "/plants/58", "").CheckStatus(t, 204)
		b.awaitRows("1000\tFern 580\t")
		b.enter("[name=q]", strings.Repeat("x", 256))
		b.await(`document.getElementById("status").textContent.includes("40007")`)
		b.enter("[name=q]", "nothing")
		b.awaitRows()
		b.await(`document.getElementById("status").textContent.startsWith("Live")`)

		stored := `JSON.stringify([Object.keys(localStorage).length, Object.keys(sessionStorage).length, document.cookie, location.href.includes("token")])`
		if got := read(b, chromedp.Evaluate[string](stored)); got != `[0,1,"",false]` {
			t.Errorf("got %s stored, want the token only in sessionStorage", got)
		}
		b.do("forget", chromedp.Click("#forget"))
		b.await(`sessionStorage.length === 0 && document.getElementById("plants").hidden`)
		b.assertNoFaults()
	})
	t.Run("a service that restarts", func(t *testing.T) {
		t.Parallel()
		s := service.Start(t)
		b := openBrowser(t, path, s.URL)
		b.do("open", chromedp.Navigate(b.base+"/"))
		b.signIn(service.Token)
		b.await(`document.getElementById("status").textContent.startsWith("Live")`)
		s.Stop(t)
		b.await(`document.getElementById("status").textContent.startsWith("Not live, trying again: ")`)
	})
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := service.Start(t)
			b := openBrowser(t, path, s.URL)
			b.scheme(scheme)
			s.ImportRows(t, "", "application/x-ndjson", `{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`+"\n"+`{"id":2,"name":"`+strings.Repeat("x", 255)+`"}`+"\n").RequireOK(t)
			for _, d := range screens {
				b.size(d)
				b.do("open", chromedp.Navigate(b.base+"/"))
				b.checkWidth(d)
				if read(b, chromedp.Evaluate[bool](`sessionStorage.length === 0`)) {
					b.signIn(service.Token)
				}
				b.await(`document.querySelectorAll("tbody tr").length > 0`)
				s.Call(t, "PATCH", "/plants/1", fmt.Sprintf(`{"tag":%q}`, d.name)).RequireOK(t)
				b.await(`document.querySelector("tr.new") !== null`)
				b.checkWidth(d)
				b.screenshot("first-page-"+d.name+"-"+scheme+".png", "main")
			}
			b.assertNoFaults()
		})
	}
}

// signIn gives token to the first page.
func (b *browser) signIn(token string) {
	b.t.Helper()
	b.do("sign in", chromedp.SendKeys("#token", token, chromedp.NodeVisible), chromedp.Click("#enter button"))
}
