package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"plantstore/config"
	"plantstore/controllers"
)

// errIncomplete is the error of a request that reached the service but got no complete
// response.
var errIncomplete = errors.New("no complete response")

// incomplete returns the error of a request that failed with err before the end of its
// response.
func incomplete(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return fmt.Errorf("%w: %w", errIncomplete, err)
}

// responseError is a response with a status other than 200.
type responseError struct {
	text   string
	status int
	report *controllers.ImportReport // of an import with rejected rows, otherwise nil
}

func (e *responseError) Error() string { return e.text }

// send sends r with the token and returns the response if it has status 200 and the media type
// that r accepts. Otherwise the error is a *responseError, wraps errIncomplete, or says
// why the client could not connect.
func (c *client) send(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	r.Header.Set("Authorization", "Bearer "+c.token)
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := c.http.Do(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the method and the URL
		}
		if ctx.Err() == nil && !connected.Load() {
			return nil, fmt.Errorf("cannot connect to %s: %w: is the service running there? Set its URL with --url or %s",
				c.base, err, config.SettingOf("client.url"))
		}
		return nil, incomplete(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, c.readError(response)
	}
	if got, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); got != r.Header.Get("Accept") {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s responded with media type %q instead of %s: is it a Plant Store?", c.base, got, r.Header.Get("Accept"))
	}
	return response, nil
}

func (c *client) readError(response *http.Response) error {
	var body controllers.ImportError
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		body = controllers.ImportError{}
	}
	status := response.StatusCode
	text := fmt.Sprintf("%d %s", body.Code, body.Message)
	if body.Code == 0 {
		text = fmt.Sprintf("the service responded %d %s", status, http.StatusText(status))
	}
	switch {
	case status == http.StatusUnauthorized:
		text += ": the token is from " + c.tokenSource
	case status < 400:
		text += fmt.Sprintf(" to %s, which is not followed: set the URL of the service itself with --url or %s",
			response.Header.Get("Location"), config.SettingOf("client.url"))
	case body.Code == 0, status == http.StatusNotFound:
		text += fmt.Sprintf(": is %s a Plant Store?", c.base)
	}
	return &responseError{text, status, body.Report}
}
