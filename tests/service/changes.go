package service

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Changes is the body of a response of /plants/changes.
type Changes struct {
	Changes []struct {
		ID    int64
		Plant *struct{ Name string }
	}
	Cursor string
}

// String returns the changes as text, such as "1 2 -1" for two plants and a deletion.
func (c Changes) String() string {
	var texts []string
	for _, change := range c.Changes {
		text := strconv.FormatInt(change.ID, 10)
		if change.Plant == nil {
			text = "-" + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// Stream is an open response of server-sent events.
type Stream struct {
	t        *testing.T
	Header   http.Header
	events   chan Changes // closed when the response ends
	Comments chan struct{}
	Err      error // set before events is closed
	ids      []string
	Retry    string
	Close    func()
}

// Stream follows the changes of a service, with a query, as server-sent events.
func (s *Service) Stream(t *testing.T, query string, headers ...string) *Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/plants/changes?"+query, nil)
	Must(t, err)
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Authorization", "Bearer "+Token)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{}
	response, err := transport.RoundTrip(request) //nolint:bodyclose // below
	Must(t, err)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("got %v", response)
	}
	if !slices.Contains(response.Header.Values("Vary"), "Accept") || response.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("got %v, want headers that keep caches and nginx from holding events back", response.Header)
	}
	events := &Stream{t: t, Header: response.Header, events: make(chan Changes, 1000), Comments: make(chan struct{}, 1000), Close: cancel}
	t.Cleanup(cancel)
	go func() {
		defer transport.CloseIdleConnections()
		defer close(events.events)
		defer response.Body.Close()
		scanner := bufio.NewScanner(response.Body)
		scanner.Buffer(nil, 1<<22)
		for scanner.Scan() {
			if strings.HasPrefix(scanner.Text(), ":") {
				events.Comments <- struct{}{}
			}
			if id, ok := strings.CutPrefix(scanner.Text(), "id: "); ok {
				events.ids = append(events.ids, id)
			}
			if retry, ok := strings.CutPrefix(scanner.Text(), "retry: "); ok {
				events.Retry = retry
			}
			if data, ok := strings.CutPrefix(scanner.Text(), "data: "); ok {
				var c Changes
				if events.Err = json.Unmarshal([]byte(data), &c); events.Err != nil {
					return
				}
				if id := events.ids[len(events.ids)-1]; id != c.Cursor {
					events.Err = fmt.Errorf("the id is %s, and the cursor %s", id, c.Cursor)
				}
				events.events <- c
			}
		}
		if events.Err == nil {
			events.Err = scanner.Err()
		}
	}()
	return events
}

// Next waits for the next event.
func (s *Stream) Next() (c Changes, ok bool) {
	s.t.Helper()
	select {
	case c, ok := <-s.events:
		return c, ok
	case <-time.After(Patience):
		s.t.Fatal("no event")
		return c, false
	}
}

// Await reads events until they have the given changes.
func (s *Stream) Await(want string) Changes {
	s.t.Helper()
	var all []string
	for {
		c, ok := s.Next()
		if !ok {
			s.t.Fatalf("the stream has ended after %v: %v", all, s.Err)
		}
		if text := c.String(); text != "" {
			all = append(all, text)
		}
		if strings.Join(all, " ") == want {
			return c
		}
	}
}
