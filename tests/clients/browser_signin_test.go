//go:build browser

package clients

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"plantstore/tests/service"
)

// startProvider builds and starts the OpenID provider in the folder provider, and returns its issuer.
func startProvider(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "provider")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-C", "provider", "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("build the provider: %v\n%s", err, output)
	}
	p := service.Launch(t, exec.CommandContext(t.Context(), program))
	var issuer string
	p.Stdout.Await(p.Ended, func(line string) bool {
		issuer = line
		return true
	})
	return issuer
}

// signInSettings are the settings of a service whose users sign in at issuer as client.
func signInSettings(issuer, client string, more ...string) []string {
	return append([]string{
		"PLANTSTORE_AUTH_JWT_ISSUER=" + issuer, "PLANTSTORE_AUTH_JWT_AUDIENCE=" + client, "PLANTSTORE_AUTH_JWT_JWKS_URL=" + issuer + "/keys",
		"PLANTSTORE_AUTH_JWT_LEEWAY=0s", "PLANTSTORE_DOCS_OAUTH2_CLIENT_ID=" + client,
	}, more...)
}

const signInButton = `.modal-ux .auth-container:has(#client_id_authorizationCode) button.authorize`

// clickSignIn opens the dialog and starts a sign-in.
func (b *browser) clickSignIn() {
	b.t.Helper()
	b.do("sign in", chromedp.Click(`.auth-wrapper .authorize`, chromedp.NodeVisible), chromedp.Click(signInButton, chromedp.NodeVisible))
}

// openSignIn is clickSignIn, and returns the tab in which the provider's page opens.
func (b *browser) openSignIn(issuer string) *target.Info {
	b.t.Helper()
	var tab *target.Info
	opened := chromedp.WaitNewTarget(b.ctx, func(info *target.Info) bool {
		tab = info
		return strings.HasPrefix(info.URL, issuer)
	})
	b.clickSignIn()
	select {
	case <-opened:
	case <-time.After(service.Patience):
		b.t.Fatal("the provider's page did not open")
	}
	return tab
}

// signInAt signs in at issuer as the provider's user, and waits until the dialog shows done.
func (b *browser) signInAt(issuer, done string) {
	b.t.Helper()
	tab, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(b.openSignIn(issuer).TargetID))
	defer cancel()
	service.Must(b.t, chromedp.Do(tab,
		chromedp.SendKeys(`[name=username]`, "test-user2", chromedp.NodeVisible),
		chromedp.SendKeys(`[name=password]`, "verysecure"),
		chromedp.Click(`[type=submit]`)))
	b.awaitText(`.modal-ux`, done)
}

func (b *browser) awaitText(selector, text string) {
	b.t.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.PollFunction[bool](`(selector, text) => document.querySelector(selector)?.innerText.includes(text)`,
		chromedp.WithPollingArgs(selector, text), chromedp.WithPollingTimeout(service.Patience/2)))
	if err != nil {
		b.t.Fatalf("got no %q in %s (%v), but\n%s", text, selector, err, read(b, chromedp.Text(selector, chromedp.AtLeast(0))))
	}
}

func (b *browser) closeDialog() {
	b.t.Helper()
	b.do("close the dialog", chromedp.Click(`.modal-ux .close-modal`, chromedp.NodeVisible), chromedp.WaitNotPresent(`.modal-ux`))
}

// TestBrowserSignIn signs in on Swagger UI at a real OpenID provider.
func TestBrowserSignIn(t *testing.T) {
	t.Parallel()
	path, issuer := chromium(t), startProvider(t)
	start := func(t *testing.T, client string, more ...string) *browser {
		t.Helper()
		b := openBrowser(t, path, service.Start(t, signInSettings(issuer, client, more...)...).URL)
		b.also = issuer + "/oauth/token"
		b.size(desktop)
		b.open("")
		return b
	}
	t.Run("with the scopes", func(t *testing.T) {
		t.Parallel()
		b := start(t, "page")
		b.signInAt(issuer, "Logout")
		b.screenshot("signed-in.png", ".modal-ux")
		b.closeDialog()
		b.do("reload", chromedp.Reload()) // the page keeps the session
		b.tryOut("createPlant")
		b.execute("createPlant", "200", "Monstera deliciosa")
		b.tryOut("listTokens") // needs admin, which the page does not ask for
		b.execute("listTokens", "403", "admin")
		b.awaitText(block("listTokens")+" .sign-in-hint", "Your session lacks a scope")
		b.assertNoFaults()
	})
	t.Run("a scope that the provider leaves out", func(t *testing.T) {
		t.Parallel()
		b := start(t, "reader")
		b.signInAt(issuer, "Logout")
		b.closeDialog()
		b.tryOut("createPlant")
		b.execute("createPlant", "403", "plants:write")
		b.awaitText(block("createPlant")+" .sign-in-hint", "the provider does not give you the scope")
		b.screenshot("sign-in-403.png", block("createPlant")+" .live-responses-table")
		b.tryOut("listPlants")
		b.execute("listPlants", "200", "[]")
		b.assertNoFaults()
	})
	t.Run("a scope that the provider rejects", func(t *testing.T) {
		t.Parallel()
		b := start(t, "page", "PLANTSTORE_DOCS_OAUTH2_SCOPES=plants:read,unknown")
		b.clickSignIn()
		b.awaitText(`.modal-ux .errors`, "invalid_scope")
		b.awaitText(`.modal-ux .errors`, "docs.oauth2.scopes")
		b.screenshot("sign-in-scope.png", ".modal-ux")
		b.assertNoFaults()
	})
	t.Run("a wrong redirect", func(t *testing.T) {
		t.Parallel()
		b := start(t, "elsewhere")
		tab := b.openSignIn(issuer)
		response, err := http.Get(tab.URL) // again: the browser shows no DOM of a plain text
		service.Must(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		service.Must(t, err)
		if !strings.Contains(string(text), "redirect_uri") {
			t.Errorf("the provider shows %q, want a complaint about the redirect", text)
		}
		_, err = chromedp.Call(b.ctx, page.BringToFront, cdp.Empty{}) // a page behind a tab is not drawn
		service.Must(t, err)
		b.awaitText(`.modal-ux`, fmt.Sprintf("add the redirect URL %s/swagger/oauth2-redirect.html to the client elsewhere", b.base))
		b.screenshot("sign-in-dialog.png", ".modal-ux")
		b.checkWidths()
		b.screenshot("sign-in-dialog-phone.png", ".modal-ux")
		b.assertNoFaults()
	})
	t.Run("an expired session", func(t *testing.T) {
		t.Parallel()
		b := start(t, "brief")
		b.signInAt(issuer, "Logout")
		b.closeDialog()
		b.tryOut("listPlants")
		b.execute("listPlants", "401", "40102")
		b.awaitText(block("listPlants")+" .sign-in-hint", "click Authorize, then Logout, and sign in again")
		b.screenshot("sign-in-401.png", block("listPlants")+" .live-responses-table")
		b.assertNoFaults()
	})
	t.Run("no other requests", func(t *testing.T) {
		t.Parallel()
		b := start(t, "page")
		for path, want := range map[string]string{"/oauth/token": "sent", "/userinfo": "blocked", "/": "blocked"} {
			got := read(b, chromedp.Evaluate[string](fmt.Sprintf(`fetch(%q, {mode: "no-cors"}).then(() => "sent", () => "blocked")`, issuer+path), chromedp.EvalAwaitPromise))
			if got != want {
				t.Errorf("a request to %s was %s, want it %s", path, got, want)
			}
		}
	})
}
