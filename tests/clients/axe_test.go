//go:build browser && axe

package clients

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"

	"plantstore/tests/service"
)

// TestBrowserAccessibility checks the first page and Swagger UI with axe-core, the file in AXE.
func TestBrowserAccessibility(t *testing.T) {
	axe, err := os.ReadFile(os.Getenv("AXE"))
	service.Must(t, err)
	path := chromium(t)
	s := service.Start(t)
	s.Post(t, `{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`).RequireOK(t)
	b := openBrowser(t, path, s.URL)
	for _, scheme := range schemes {
		for _, d := range screens {
			t.Run("first page, "+scheme+", "+d.name, func(t *testing.T) {
				b.t = t
				b.scheme(scheme)
				b.size(d)
				b.do("open", chromedp.Navigate(b.base+"/"))
				b.checkAccessibility(string(axe), `true`)
				b.do("show plants", chromedp.Evaluate[chromedp.Void](`sessionStorage.setItem("token", "`+service.Token+`")`), chromedp.Reload())
				b.await(`document.querySelectorAll("tbody tr").length > 0`)
				s.Call(t, "PATCH", "/plants/1", `{"tag":"`+d.name+`"}`).RequireOK(t)
				b.await(`document.querySelector("tr.new") !== null`)
				b.checkAccessibility(string(axe), `true`)
				b.do("forget", chromedp.Evaluate[chromedp.Void](`sessionStorage.clear()`))
			})
		}
	}
	for _, d := range []device{desktop, phone} {
		t.Run(d.name, func(t *testing.T) {
			b.t = t
			b.size(d)
			b.open("")
			b.tryOut("putPlant")
			b.execute("putPlant", "401", "40101")
			b.checkAccessibility(string(axe), `v.impact === "critical"`)
		})
	}
}

// checkAccessibility reports the violations v on the page for which counts is true.
func (b *browser) checkAccessibility(axe, counts string) {
	b.t.Helper()
	b.do("load axe-core", chromedp.Evaluate[chromedp.Void](axe))
	findings := read(b, chromedp.Evaluate[[]string](`axe.run().then(result =>
		result.violations.filter(v => `+counts+`).flatMap(v => v.nodes.map(n => v.id + ": " + v.help + "\n\t" + n.html)))`,
		chromedp.EvalAwaitPromise))
	for _, finding := range findings {
		b.t.Error(finding)
	}
}
