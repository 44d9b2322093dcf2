package models

import (
	"strings"
	"testing"

	"plantstore/database"
	"plantstore/database/background"
)

// TestReaderAheadOfAPage: it does not go back to changes that it did not ask for.
func TestReaderAheadOfAPage(t *testing.T) {
	from, _ := database.ParseCursor("e.9")
	before, _ := database.ParseCursor("e.5.3")
	if got := (Changes[Plant]{Rows: make([]Change[Plant], 2), Next: before}).after(from, 1); len(got.Rows) > 0 || got.Next != from {
		t.Errorf("got %d changes and the cursor %s, want none and %s", len(got.Rows), got.Next, from)
	}
}

// TestFeedPanics: the goroutine of the feed gives a panic to its readers.
func TestFeedPanics(t *testing.T) {
	feed := &Feed[Plant]{} // without a database
	if _, err := feed.read(t.Context(), database.Now(), 1); err == nil || !strings.Contains(err.Error(), "panic in the feed") {
		t.Errorf("got %v, want the panic", err)
	}
}

// TestEncodingPanics: other readers do not take it for an empty page.
func TestEncodingPanics(t *testing.T) {
	changes := Changes[Plant]{shared: newPage[Plant](database.Now())}
	encode := func(encode func(*Changes[Plant]) ([]byte, error)) (err error) {
		defer background.Recover("the test", &err)
		_, err = changes.Encode(encode)
		return err
	}
	if err := encode(func(*Changes[Plant]) ([]byte, error) { panic("a fault") }); err == nil {
		t.Fatal("got nil, want the panic")
	}
	if err := encode(func(*Changes[Plant]) ([]byte, error) { return []byte("data"), nil }); err == nil {
		t.Error("got no error for the next reader")
	}
}

// TestReaderBetweenPages: a reader that has all of a page waits for the next one, although the
// feed has been read further meanwhile, without a change.
func TestReaderBetweenPages(t *testing.T) {
	cursor := func(text string) database.Cursor {
		c, ok := database.ParseCursor(text)
		if !ok {
			t.Fatalf("%s is no cursor", text)
		}
		return c
	}
	last, end, later := cursor("e.5.3"), cursor("e.6"), cursor("e.7")
	first := newPage[Plant](cursor("e.5"))
	feed := &Feed[Plant]{pages: []*page[Plant]{first}}
	feed.followers.Add(1)
	next := feed.publish(first, Changes[Plant]{Rows: make([]Change[Plant], 1), Next: last}, nil)
	if got := feed.publish(next, Changes[Plant]{Next: end}, nil); got != next {
		t.Fatal("got another page, want the one that is not read yet")
	}
	for name, test := range map[string]struct {
		from database.Cursor
		sure bool
	}{"the end of the page before": {last, true}, "the end of the feed": {end, true}, "beyond it": {later, false}} {
		t.Run(name, func(t *testing.T) {
			if got, sure := feed.pageAt(test.from); got != next || sure != test.sure {
				t.Errorf("got the page from %s, sure: %t, want the one from %s, sure: %t", got.from, sure, next.from, test.sure)
			}
		})
	}
}

// TestPagesAreForgotten: what readers share of a page is kept for as long as the feed has that page.
func TestPagesAreForgotten(t *testing.T) {
	from, _ := database.ParseCursor("e.5")
	next := newPage[Plant](from)
	feed := &Feed[Plant]{pages: []*page[Plant]{next}}
	feed.followers.Add(1)
	var pages []*page[Plant]
	check := func(kept int) {
		t.Helper()
		for i, p := range pages {
			if got, want := p.changes.Kept.Err() == nil, i >= len(pages)-kept; got != want {
				t.Fatalf("page %d of %d: kept: %t, want %t", i+1, len(pages), got, want)
			}
		}
	}
	for range 2 * sharedPages {
		pages = append(pages, next)
		next = feed.publish(next, Changes[Plant]{Rows: make([]Change[Plant], 1), Next: from}, nil)
		check(sharedPages - 1) // and the one that is not read yet
	}
	feed.followers.Add(-1)
	if feed.publish(next, Changes[Plant]{}, nil) != nil {
		t.Error("the feed is read for nobody")
	}
	check(0)
}
