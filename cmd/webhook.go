package cmd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"plantstore/config"
	"plantstore/controllers"
	"plantstore/database/background"
)

// A webhook is told of changes according to Standard Webhooks 1.0
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
type webhook struct {
	event  string // the type of its messages, for example plants.changed
	url    string
	key    []byte
	http   http.Client
	pauses backoff
	*progress
}

const (
	webhookTimeout      = 20 * time.Second // the specification advises 15 to 30 s
	webhookFirstPause   = 5 * time.Second  // after the first failure
	webhookLongestPause = 5 * time.Minute  // after many, or with Retry-After
)

// WebhookMessage is the body of a request to a webhook.
type WebhookMessage struct {
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"` // of the first attempt to deliver it
	Data      json.RawMessage `json:"data"`      // feedChanges
}

// errWebhookGone means that the receiver wants no more changes.
var errWebhookGone = &exitError{errors.New("the webhook responded 410 Gone: it wants no more changes"), exitFinal}

// newWebhook returns the webhook at target for the changes of resource, with the secret in the file secretFile.
func newWebhook(resource, target, secretFile string) (*webhook, error) {
	target = strings.TrimSpace(target) // a Secret of Kubernetes keeps the newline of its file
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("--post must be an http or https URL")
	}
	secret, err := config.ReadFile(secretFile)
	if err != nil {
		return nil, fmt.Errorf("--secret-file: %w", err)
	}
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("--secret-file: the file must have whsec_ and 24 to 64 bytes in base64, such as from `(umask 077; echo whsec_$(openssl rand -base64 32) > secret)`")
	}
	return &webhook{
		event: resource + ".changed", url: target, key: key, progress: new(progress),
		pauses: backoff{webhookFirstPause, webhookLongestPause * 5 / 6}, // which become up to a fifth longer
		http: http.Client{
			Timeout:       webhookTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// deliver sends changes until the receiver has accepted them. It fails with errWebhookGone, or
// when ctx ends.
func (w *webhook) deliver(ctx context.Context, changes feedChanges) error {
	data, _ := json.Marshal(changes) // which were read from JSON
	body, _ := json.Marshal(WebhookMessage{w.event, time.Now().UTC().Truncate(time.Millisecond), data})
	hash := sha256.Sum256(data) // the same changes at the same place are the same message, also after a restart
	id := "msg_" + hex.EncodeToString(hash[:16])
	pauses := w.pauses
	for attempt := 1; ; attempt++ {
		after, err := w.send(ctx, id, body)
		if err == nil && attempt > 1 {
			fmt.Fprintf(os.Stderr, "plantstore: the webhook has accepted %s at attempt %d\n", id, attempt)
		}
		if err == nil || errors.Is(err, errWebhookGone) {
			return err
		}
		pause := cmp.Or(after, pauses.next())
		if ctx.Err() == nil {
			w.note(true, err)
			fmt.Fprintf(os.Stderr, "plantstore: the webhook has not accepted %s: %s; trying again in %s\n", id, oneLine(err.Error()), pause.Round(time.Second))
		}
		if !background.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// send sends a message once. If the receiver does not accept it, it may ask for a pause.
func (w *webhook) send(ctx context.Context, id string, body []byte) (after time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	request.Header = http.Header{
		"Content-Type": {controllers.TypeJSON}, "webhook-id": {id}, "webhook-timestamp": {now}, "webhook-signature": {w.sign(id, now, body)},
	}
	response, err := w.http.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the URL, which may have a secret
		}
		return 0, err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection can be used again
	switch {
	case response.StatusCode == http.StatusGone:
		return 0, errWebhookGone
	case response.StatusCode/100 != 2:
		return retryAfter(response.Header.Get("Retry-After")), fmt.Errorf("it responded %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return 0, nil
}

func (w *webhook) sign(id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, w.key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// retryAfter parses Retry-After (RFC 9110, section 10.2.3). It returns at most webhookLongestPause, and
// 0 if text is neither a time nor a number.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if at, notDate := http.ParseTime(text); notDate == nil {
		seconds, err = int64(time.Until(at).Seconds()), nil
	}
	if err != nil {
		return 0
	}
	return time.Duration(min(max(seconds, 0), int64(webhookLongestPause.Seconds()))) * time.Second
}
