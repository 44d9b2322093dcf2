//go:build clients

package feed

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestWebhookLibrary lets the reference library of Standard Webhooks verify what a webhook
// gets: a delivery, and the same one with another body.
func TestWebhookLibrary(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	install := exec.Command("sh", "-c", "python3 -m venv venv && venv/bin/pip install --quiet --disable-pip-version-check standardwebhooks==1.1.0")
	install.Dir = folder
	if output, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	s := service.Start(t)
	r := startHook(t, func(int, http.ResponseWriter) int { return 200 })
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	startFollow(t, s.URL, "--after", "0", "--post", r.URL, "--secret-file", secretFile(t))
	service.Eventually(t, "a delivery", func() bool { return len(r.all()) > 0 })
	d := r.all()[0]
	headers := make(map[string]string)
	for name := range d.header {
		headers[strings.ToLower(name)] = d.header.Get(name)
	}
	for name, test := range map[string]struct{ body, want string }{
		"as it was sent": {d.body, "valid"},
		"changed":        {strings.Replace(d.body, "plant 1", "plant 2", 1), "WebhookVerificationError"},
	} {
		t.Run(name, func(t *testing.T) {
			input, err := json.Marshal(map[string]any{"secret": webhookSecret, "headers": headers, "body": test.body})
			service.Must(t, err)
			verify := exec.Command(filepath.Join(folder, "venv/bin/python"), "-c", `
import json, sys
from standardwebhooks.webhooks import Webhook
message = json.load(sys.stdin)
try:
    Webhook(message["secret"]).verify(message["body"], message["headers"])
    print("valid")
except Exception as error:
    print(type(error).__name__)
`)
			verify.Stdin = strings.NewReader(string(input))
			output, err := verify.CombinedOutput()
			service.Must(t, err)
			if got := strings.TrimSpace(string(output)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	service.Record(t, "## Webhooks\n\n`TestWebhookLibrary`: standardwebhooks 1.1.0, the reference library in Python, accepts the signature of a delivery, and\nrejects another body.")
}
