//go:build browser

package clients

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/getkin/kin-openapi/openapi3"

	"plantstore/tests/service"
)

// open opens Swagger UI from its short address.
func (b *browser) open(query string) {
	b.t.Helper()
	target := b.base + "/swagger"
	if query != "" {
		target += "/index.html?" + query
	}
	b.do("open the page", chromedp.Navigate(target), chromedp.WaitVisible(block("createPlant")))
	if address, _, _ := strings.Cut(read(b, chromedp.Location()), "?"); address != b.base+"/swagger/index.html" {
		b.t.Errorf("got %s from %s, want Swagger UI", address, target)
	}
}

// size makes the window as large as that of a device.
func (b *browser) size(d device) {
	b.t.Helper()
	var options []chromedp.EmulateViewportOption
	if d.mobile {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2))
	}
	b.do("set the size", chromedp.EmulateViewport(d.width, d.height, options...))
}

// device has a name and a size in CSS pixels.
type device struct {
	name          string
	width, height int64
	mobile        bool
}

var (
	desktop  = device{"desktop", 1280, 800, false}
	notebook = device{"notebook", 1280, 900, false}
	phone    = device{"phone", 375, 812, true}
)

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

// block is the selector of the block of an operation.
func block(operation string) string { return `.opblock[id$="-` + operation + `"]` }

// tryOut opens the operation with its example body.
func (b *browser) tryOut(operation string) {
	b.t.Helper()
	b.click("open "+operation, block(operation)+` .opblock-summary-control`)
	b.click("try out "+operation, block(operation)+` .try-out__btn`)
}

// click clicks an element once it is visible, wherever the page moves it meanwhile: a click at its place could miss it.
func (b *browser) click(what, selector string) {
	b.t.Helper()
	b.do(what, chromedp.WaitVisible(selector), chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).click()`, selector)))
}

// close closes the operation: the page draws all open ones again after each click.
func (b *browser) close(operation string) {
	b.t.Helper()
	b.click("close "+operation, block(operation)+` .opblock-summary-control`)
	b.do("close "+operation, chromedp.WaitNotPresent(block(operation)+` .opblock-body`))
}

// unfold opens what shows only when opened, which must also follow the policy, and fit.
func (b *browser) unfold(selectors ...string) {
	b.t.Helper()
	b.do("unfold", chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelectorAll(%q).forEach(element => element.click())`, strings.Join(selectors, ", "))))
}

// execute sends the request and waits until the page shows a response with status and
// text: the response before may have had the same status.
func (b *browser) execute(operation, status, text string) {
	b.t.Helper()
	b.do("execute "+operation, chromedp.Click(block(operation)+` button.execute`, chromedp.NodeVisible))
	table := block(operation) + ` .live-responses-table`
	_, err := chromedp.Run(b.ctx, chromedp.PollFunction[bool](`(table, status, text) => {
		const row = document.querySelector(table + " .response")
		return row?.querySelector(".response-col_status").innerText.trim() === status && row.innerText.includes(text)
	}`, chromedp.WithPollingArgs(table, status, text), chromedp.WithPollingTimeout(service.Patience/2)))
	if err != nil {
		b.t.Fatalf("%s: got no response %s with %q (%v), but\n%s", operation, status, text, err, read(b, chromedp.Text(table, chromedp.AtLeast(0))))
	}
}

// enter sets the value of a field, as a user does.
func (b *browser) enter(field, value string) {
	b.t.Helper()
	b.do("enter "+value, chromedp.WaitVisible(field))
	read(b, chromedp.Evaluate[bool](fmt.Sprintf(`(() => {
		const field = document.querySelector(%q)
		field.focus() // some fields report their value when they lose the focus
		Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set.call(field, %q)
		field.dispatchEvent(new Event("input", {bubbles: true}))
		return field.tagName !== "SELECT" || field.dispatchEvent(new Event("change", {bubbles: true}))
	})()`, field, value)))
}

// checkWidth reports what makes the page wider than the window.
func (b *browser) checkWidth(d device) {
	b.t.Helper()
	wide := read(b, chromedp.Evaluate[[]string](fmt.Sprintf(`(() => {
		if (document.documentElement.scrollWidth <= %[1]d) return []
		const scrolls = e => e !== document.body && (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement))
		const wide = [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > %[1]d && !scrolls(e.parentElement))
		return wide.map(e => e.tagName + "." + e.className + " to " + e.getBoundingClientRect().right)
	})()`, d.width)))
	if len(wide) > 0 {
		b.t.Errorf("the page is wider than %d pixels:\n%s", d.width, strings.Join(wide, "\n"))
	}
}

// checkWidths is checkWidth on a desktop and on a phone, which remains the size.
func (b *browser) checkWidths() {
	b.t.Helper()
	for _, d := range []device{desktop, phone} {
		b.size(d)
		b.checkWidth(d)
	}
}

// screenshot writes a picture of the page, from its top to the end of the element last, to
// the folder SCREENSHOTS, if it is set.
func (b *browser) screenshot(name, last string) {
	b.t.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	// Wait for the end of animations.
	clip := read(b, chromedp.Poll[page.Viewport](fmt.Sprintf(`(() => {
		if (document.getAnimations().length > 0) return
		const bottom = document.querySelector(%q).getBoundingClientRect().bottom + scrollY
		return {x: 0, y: 0, width: document.documentElement.clientWidth, height: bottom + 6, scale: 1}
	})()`, last)))
	beyond := true // than the window
	picture, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Clip: &clip, CaptureBeyondViewport: &beyond})
	service.Must(b.t, err)
	service.Must(b.t, os.WriteFile(filepath.Join(folder, name), picture.Data, 0o644))
}

func TestBrowserSwaggerUI(t *testing.T) {
	t.Parallel()
	path := chromium(t)
	t.Run("create", func(t *testing.T) {
		t.Parallel()
		b := openBrowser(t, path, service.Start(t).URL)
		b.open("")
		b.authorize(service.Token)
		b.do("reload", chromedp.Reload()) // the page keeps the token
		b.tryOut("createPlant")
		b.execute("createPlant", "200", "Monstera deliciosa")
		curl := read(b, chromedp.Text(block("createPlant")+` .curl-command`))
		if strings.Count(curl, "Bearer") != 1 || !strings.Contains(curl, "'Authorization: Bearer "+service.Token+"'") {
			t.Errorf("got the command %q, want one token", curl)
		}
		b.screenshot("swagger-ui.png", block("createPlant")+" .live-responses-table")
		b.execute("createPlant", "409", "40902")

		const id = "9223372036854775807" // beyond 2^53
		b.enter(block("createPlant")+" textarea", `{"id": `+id+`, "name": "Aloe vera"}`)
		b.execute("createPlant", "200", "Aloe vera")
		b.tryOut("getPlant")
		b.enter(block("getPlant")+` [data-param-name="id"] input`, id)
		b.execute("getPlant", "200", `"id": `+id)
		b.tryOut("listPlants")
		b.execute("listPlants", "200", `"id": `+id)
		b.assertNoFaults()
	})
	t.Run("wrong token", func(t *testing.T) {
		t.Parallel()
		b := openBrowser(t, path, service.Start(t).URL)
		b.open("")
		b.tryOut("createPlant")
		b.execute("createPlant", "401", "40101")
		b.authorize("wrong")
		b.execute("createPlant", "401", "40102")
		b.assertNoFaults()
	})
}

// TestBrowserFirstScreen checks what a user sees before scrolling.
func TestBrowserFirstScreen(t *testing.T) {
	t.Parallel()
	path := chromium(t)
	b := openBrowser(t, path, service.Start(t).URL)
	for _, d := range []device{desktop, phone} {
		b.run(d.name, func(t *testing.T) {
			b.size(d)
			b.open("")
			visible := read(b, chromedp.Poll[string](`(() => {
				if (document.getAnimations().length > 0) return
				const shown = [...document.querySelectorAll(".auth-wrapper .authorize, .opblock-summary-method, .opblock-summary-path")]
				return shown.filter(e => e.getBoundingClientRect().bottom <= innerHeight).map(e => e.innerText.replaceAll("\u200b", "").trim()).join(" ")
			})()`))
			want := "Authorize POST /plants POST /plants/import GET /plants GET /plants/tags GET /plants/{id} GET /plants/export GET /plants/changes"
			if d.name == "desktop" { // the others do not fit on a phone
				want += " PUT /plants/{id} PATCH /plants"
			}
			if !strings.HasPrefix(visible, want) {
				t.Errorf("got %q on the first screen, want %q", visible, want)
			}
			if tokens := read(b, chromedp.Text(`#operations-tag-tokens + *`)); !inOrder(tokens, "POST", "GET", "DELETE") {
				t.Errorf("got %q, want the operations on tokens by method", tokens)
			}
			b.checkWidth(d)
			b.screenshot("swagger-ui-"+d.name+".png", block("deletePlant"))
		})
	}
	if title := read(b, chromedp.Title()); title != "Plant Store" {
		t.Errorf("got title %q", title)
	}
	icon := read(b, chromedp.Evaluate[string](`fetch(document.querySelector("link[rel=icon]").href).then(r => r.status + " " + r.headers.get("Content-Type"))`,
		chromedp.EvalAwaitPromise))
	if icon != "200 image/png" {
		t.Errorf("got the icon %s", icon)
	}
	if bars := read(b, chromedp.Evaluate[int](`document.querySelectorAll(".topbar, .download-url-wrapper").length`)); bars != 0 {
		t.Error("got an Explore bar, want none: the document is fixed")
	}
	b.assertNoFaults()
}

func inOrder(text string, words ...string) bool {
	for _, word := range words {
		_, after, found := strings.Cut(text, word)
		if !found {
			return false
		}
		text = after
	}
	return true
}

// TestBrowserExecutesEveryOperation sends each request as the page has filled it in, on a phone.
// What it shows fits on a desktop's screen, too.
func TestBrowserExecutesEveryOperation(t *testing.T) {
	t.Parallel()
	path, folder := chromium(t), t.TempDir()
	csv, ndjson := filepath.Join(folder, "plants.csv"), filepath.Join(folder, "plants.ndjson")
	service.Must(t, os.WriteFile(csv, []byte("id,name,tag\n2001,Ficus lyrata,houseplant\n"), 0o600))
	service.Must(t, os.WriteFile(ndjson, []byte(`{"id":2001,"name":"Ficus lyrata","tag":"houseplant"}`+"\n"), 0o600))
	b := openBrowser(t, path, service.Start(t).URL)
	b.size(phone)
	b.open("")
	b.authorize(service.Token)
	executed := make(map[string]bool)
	tests := []struct{ operation, media, file, status, text string }{
		{"createPlant", "", "", "200", "Monstera deliciosa"},
		{"importPlants", "", csv, "200", `"created": 1`},
		{"importPlants", "application/x-ndjson", ndjson, "200", `"unchanged": 1`},
		{"listPlants", "", "", "200", "Ficus lyrata"},
		{"listTags", "", "", "200", `"houseplant"`},
		{"getPlant", "", "", "200", "Monstera deliciosa"},
		{"exportPlants", "", "", "200", "plants.csv"},
		{"exportPlants", "application/x-ndjson", "", "200", "plants.ndjson"},
		{"listChanges", "", "", "200", `"cursor"`},
		{"putPlant", "", "", "200", "Monstera deliciosa"},
		{"patchPlant", "", "", "200", "Monstera deliciosa"},
		{"patchPlants", "", "", "400", "40007"}, // a filter must be chosen
		{"deletePlant", "", "", "204", "x-request-id"},
		{"deletePlants", "", "", "400", "40007"},
		{"createToken", "", "", "200", "pst_"},
		{"listTokens", "", "", "200", "greenhouse importer"},
		{"revokeToken", "", "", "404", "40401"}, // the id of no token
	}
	for i, test := range tests {
		if !executed[test.operation] {
			b.tryOut(test.operation)
		}
		executed[test.operation] = true
		if test.media != "" {
			b.enter(block(test.operation)+" .content-type", test.media)
		}
		if test.file != "" {
			b.do("choose the file", chromedp.SetUploadFiles(block(test.operation)+" input[type=file]", []string{test.file}))
		}
		b.execute(test.operation, test.status, test.text)
		response := block(test.operation) + " .live-responses-table"
		if strings.HasPrefix(test.text, "plants.") {
			if name := read(b, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.download ?? ""`, response+" a[download]"))); name != test.text {
				t.Errorf("got the download %q, want %q", name, test.text)
			}
		}
		if n := read(b, chromedp.Evaluate[int](`document.querySelectorAll("option[value='text/event-stream']").length`)); n != 0 {
			t.Errorf("%s: got a choice of a stream, of which the page would show nothing", test.operation)
		}
		if text := read(b, chromedp.Text(response)); strings.Contains(text, "Undocumented") {
			t.Errorf("%s: got %s, want a documented response", test.operation, text)
		}
		b.size(notebook)
		if height := read(b, chromedp.Evaluate[float64](fmt.Sprintf(`document.querySelector(%q).getBoundingClientRect().height`, block(test.operation)))); height > 2500 {
			t.Errorf("%s is %.0f pixels tall after a request, want at most 2,500", test.operation, height)
		} else {
			t.Logf("%s: %.0f pixels", test.operation, height)
		}
		b.size(phone)
		if i+1 == len(tests) || tests[i+1].operation != test.operation {
			b.unfold(block(test.operation)+" summary", `[id$="-getPlant"] .tabitem:not(.active) button`)
			b.checkWidths()
			b.close(test.operation)
		}
	}
	b.unfold(".models .json-schema-2020-12-expand-deep-button", "summary")
	kinds, done := kindsOfOperations(t), make(map[string]bool)
	for operation := range executed {
		done[kinds[operation]] = true
	}
	for _, id := range read(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll(".opblock")].map(e => e.id)`)) {
		if operation := id[strings.LastIndex(id, "-")+1:]; kinds[operation] != "" && !done[kinds[operation]] && !strings.Contains(kinds[operation], "}/") { // which only one resource has
			t.Errorf("neither %s nor that operation of another resource has a row in the table of this test", operation)
		}
	}
	b.do("wait for the schemas", chromedp.WaitVisible(`.models .json-schema-2020-12-body:not(.json-schema-2020-12-body--collapsed)`))
	b.checkWidths()
	b.do("open the dialog", chromedp.Click(`.auth-wrapper .authorize`, chromedp.NodeVisible), chromedp.WaitVisible(`.modal-ux`))
	b.checkWidths()
	b.assertNoFaults()
}

// kindsOfOperations returns the method and path of each operation in the OpenAPI document, by its id,
// without the name of the resource: the operations of all resources are alike.
func kindsOfOperations(t *testing.T) map[string]string {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromFile("../../docs/openapi.json")
	service.Must(t, err)
	kinds := make(map[string]string)
	for path, item := range document.Paths.Map() {
		_, rest, _ := strings.Cut(path[1:], "/")
		for method, operation := range item.Operations() {
			kinds[operation.OperationID] = method + " " + rest
		}
	}
	return kinds
}

func TestBrowserBehindAPathPrefix(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_SERVER_BASE_PATH=/our/store")
	base := s.Behind(t, "/our/store", nil)
	b := openBrowser(t, chromium(t), base)
	for _, entry := range []string{"/swagger", "/swagger/"} {
		b.run(entry, func(*testing.T) {
			b.do("open", chromedp.Navigate(base+entry), chromedp.WaitVisible(block("createPlant")))
			b.tryOut("listPlants")
			b.execute("listPlants", "401", "40101")
		})
	}
	b.authorize(service.Token)
	b.execute("listPlants", "200", "[]")
	b.assertNoFaults()
}

// TestBrowserFixedDocument checks the reasons for which vulnerabilities of Swagger UI and
// DOMPurify are out of reach: the page shows only our document, and runs only our scripts.
func TestBrowserFixedDocument(t *testing.T) {
	t.Parallel()
	path := chromium(t)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		_, _ = io.WriteString(w, `{"openapi":"3.1.0","info":{"title":"Evil","version":"1"},"paths":{},"url":"openapi.json"}`)
	}))
	t.Cleanup(evil.Close)
	s := service.Start(t)
	b := openBrowser(t, path, s.URL)
	for _, query := range []string{"url=", "configUrl=", "config=", "urls.primaryName=x&url="} {
		b.run("?"+query, func(t *testing.T) {
			b.open(query + url.QueryEscape(evil.URL))
			if title := read(b, chromedp.Text(".info .title")); !strings.Contains(title, "Plant Store") {
				t.Errorf("got the document %q, want ours", title)
			}
			b.assertNoFaults() // such as a request to evil
		})
	}

	const script = `document.documentElement.dataset.ran = "yes"`
	ran := chromedp.Evaluate[string](`document.documentElement.dataset.ran ?? ""`)
	t.Run("markup in a description", func(t *testing.T) {
		markup := `<img src=x onerror='` + script + `'><svg onload='` + script + `'></svg><script>` + script + `</script>` +
			`<math><mtext><table><mglyph><style><img src=x onerror='` + script + `'></style></mglyph></table></mtext></math>` +
			`<a id='link' href='javascript:` + strings.ReplaceAll(script, `"`, "`") + `'>link</a>`
		quoted := strconv.Quote(markup)
		base := s.Behind(t, "", func(r *http.Response) error {
			if r.Request.URL.Path == "/openapi.json" {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return err
				}
				text := strings.ReplaceAll(string(body), `"description": "`, `"description": "`+quoted[1:len(quoted)-1]+`\n\n`)
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
				r.Header.Set("Content-Length", strconv.Itoa(len(text)))
			}
			return nil
		})
		b := openBrowser(t, path, base)
		b.open("")
		b.tryOut("createPlant")
		b.do("click", chromedp.Evaluate[chromedp.Void](`document.querySelectorAll(".info .description a").forEach(a => a.click())`))
		if found := read(b, chromedp.Evaluate[int](`document.querySelectorAll(".description img").length`)); found == 0 {
			t.Error("got no picture, want the descriptions to be rendered as markup")
		}
		// The policy would block these, too.
		if found := read(b, chromedp.Evaluate[int](`document.querySelectorAll("[onerror], [onload], .description script, a[href^='javascript:']").length`)); found > 0 {
			t.Errorf("got %d elements with scripts, want DOMPurify to remove them", found)
		}
		if read(b, ran) != "" {
			t.Error("a script in a description ran")
		}
	})
	b.run("a request to another origin", func(t *testing.T) {
		b.open("")
		got := read(b, chromedp.Evaluate[string](fmt.Sprintf(`fetch(%q).then(() => "sent", () => "blocked")`, evil.URL), chromedp.EvalAwaitPromise))
		if got != "blocked" {
			t.Errorf("it was %s, want the policy to block it", got)
		}
	})
	// Even if the sanitizer let it through.
	b.run("markup in the page", func(t *testing.T) {
		b.open("")
		read(b, chromedp.Evaluate[bool](fmt.Sprintf(`new Promise(resolve => {
			document.body.insertAdjacentHTML("beforeend", %q)
			document.body.lastElementChild.addEventListener("error", () => resolve(true))
		})`, `<img src="data:," onerror='`+script+`'>`), chromedp.EvalAwaitPromise))
		if read(b, ran) != "" {
			t.Error("the script ran, want the policy to block it")
		}
	})
}

// TestBrowserLargeIDsInJavaScript runs the code that the documents recommend.
func TestBrowserLargeIDsInJavaScript(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/clients.md")
	service.Must(t, err)
	_, code, _ := strings.Cut(string(text), "```js\n")
	code, _, found := strings.Cut(code, "```")
	if !found {
		t.Fatal("docs/clients.md has no JavaScript")
	}
	document, err := openapi3.NewLoader().LoadFromFile("../../docs/openapi.json")
	service.Must(t, err)
	_, expression, found := strings.Cut(document.Components.Schemas["StoredPlant"].Value.Properties["id"].Value.Description, "`")
	expression, _, _ = strings.Cut(expression, "`")
	if !found {
		t.Fatal("the description of id has no code")
	}
	b := openBrowser(t, chromium(t), "about:blank")
	for _, id := range []string{"1", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808"} {
		t.Run(id, func(t *testing.T) {
			read := `const text = '{"id":` + id + `,"name":"7"}';`
			for name, program := range map[string]string{
				"clients.md":   read + code + "; `${plant.id} ${plant.name} ${body}`",
				"openapi.json": read + "const plant = " + expression + "; `${plant.id} ${plant.name} ${text}`",
			} {
				got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("{"+program+"}"))
				service.Must(t, err)
				if want := id + ` 7 {"id":` + id + `,"name":"7"}`; got != want {
					t.Errorf("%s: got %s, want %s", name, got, want)
				}
			}
		})
	}
}
