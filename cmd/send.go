package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"plantstore/config"
	"plantstore/controllers"
)

// request is a request to a service.
type request struct {
	method, path string
	query        url.Values
	body         io.Reader
	bodySize     int64  // -1 sends the body in chunks
	bodyType     string // media type
	accept       string // media type that the response must have
}

// errIncomplete is the error of a request that reached the service but got no complete
// response.
var errIncomplete = errors.New("no complete response")

// responseError is a response with a status other than 200.
type responseError struct {
	controllers.ImportError // zero if the body is no Error

	status int
	advice string
}

func (e *responseError) Error() string {
	if e.Code == 0 {
		return fmt.Sprintf("the service responded %d %s%s", e.status, http.StatusText(e.status), e.advice)
	}
	return fmt.Sprintf("%d %s%s", e.Code, e.Message, e.advice)
}

// send sends r and returns the response if it has status 200. Otherwise the error is a
// *responseError, wraps errIncomplete, or says why the client could not connect.
func (c *client) send(ctx context.Context, r request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	target := c.base.JoinPath(r.path)
	target.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.method, target.String(), r.body)
	if err != nil {
		return nil, err
	}
	if r.body != nil {
		req.ContentLength = r.bodySize
		req.Header.Set("Content-Type", r.bodyType)
	}
	req.Header.Set("Accept", r.accept)
	req.Header.Set("Authorization", "Bearer "+c.token)

	response, err := c.http.Do(req)
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
	if got, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); got != r.accept {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s responded with media type %q instead of %s: is it a Plant Store?", c.base, got, r.accept)
	}
	return response, nil
}

// incomplete returns the error of a request that failed with err before the end of its
// response.
func incomplete(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return fmt.Errorf("%w: %w", errIncomplete, err)
}

func (c *client) readError(response *http.Response) error {
	failed := &responseError{status: response.StatusCode}
	if err := json.NewDecoder(response.Body).Decode(&failed.ImportError); err != nil {
		failed.ImportError = controllers.ImportError{}
	}
	switch status := response.StatusCode; {
	case status == http.StatusUnauthorized:
		failed.advice = ": the token is from " + c.tokenSource
	case status < 400:
		failed.advice = fmt.Sprintf(" to %s, which is not followed: set the URL of the service itself with --url or %s",
			response.Header.Get("Location"), config.SettingOf("client.url"))
	case failed.Code == 0, status == http.StatusNotFound:
		failed.advice = fmt.Sprintf(": is %s a Plant Store?", c.base)
	}
	return failed
}
