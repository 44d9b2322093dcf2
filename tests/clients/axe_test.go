//go:build browser && axe

package clients

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"

	"plantstore/tests/service"
)

// TestBrowserAccessibility checks Swagger UI with axe-core, the file in AXE.
func TestBrowserAccessibility(t *testing.T) {
	axe, err := os.ReadFile(os.Getenv("AXE"))
	service.Must(t, err)
	path := chromium(t)
	b := openBrowser(t, path, service.Start(t).URL)
	for _, d := range []device{desktop, phone} {
		t.Run(d.name, func(t *testing.T) {
			b.t = t
			b.size(d)
			b.open("")
			b.tryOut("putPlant")
			b.execute("putPlant", "401", "40101")
			b.do("load axe-core", chromedp.Evaluate[chromedp.Void](string(axe)))
			findings := read(b, chromedp.Evaluate[[]string](`axe.run().then(result =>
				result.violations.filter(v => v.impact === "critical").flatMap(v => v.nodes.map(n => v.id + ": " + v.help + "\n\t" + n.html)))`,
				chromedp.EvalAwaitPromise))
			for _, finding := range findings {
				t.Error(finding)
			}
		})
	}
}
