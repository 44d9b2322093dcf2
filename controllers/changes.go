package controllers

import (
	"bytes"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"plantstore/database"
	"plantstore/middleware"
	"plantstore/models"
)

// TypeEvents is the media type of server-sent events.
const TypeEvents = "text/event-stream"

// changes is a part of the feed of changes.
type changes[C any] struct {
	Changes []change[C] `json:"changes"`
	Cursor  string      `json:"cursor"`
}

// change is a row that was written, as it is now.
type change[C any] struct {
	ID  int64                           `json:"id"`
	Row map[string]*storedRow[int64, C] `json:",embed"` // by the noun; nil if it was deleted
}

// follower handles the requests that follow the feed of changes to the rows of a resource.
type follower[T models.Model, C any] struct {
	*Resource[T, int64, C]
	feed   *models.Feed[T]
	health *Health // ends the requests when it drains
}

// Changes returns the handler that responds with changes, or nil if T has no feed. Its requests end when health
// drains.
func (r *Resource[T, K, C]) Changes(health *Health) middleware.Handler {
	followed, ok := any(r).(*Resource[T, int64, C])
	if r.table.Feed == "" || !ok {
		return nil
	}
	h := &follower[T, C]{Resource: followed, health: health}
	if r.store != nil {
		h.feed = models.NewFeed(followed.store)
	}
	return h.get
}

// eventInterval is how long a stream may be silent.
const eventInterval = 15 * time.Second

// WaitPattern matches the parameter wait: up to a minute, as proxies may give up later.
var WaitPattern = regexp.MustCompile(`^([0-9]|[1-5][0-9]|60)s$`)

func (h *follower[T, C]) get(c *gin.Context) error {
	q, err := parseLimit(c)
	if err != nil {
		return err
	}
	from, wait := database.Now(), time.Duration(0)
	if q.Has("after") {
		if from, err = parseCursor("after", q.Get("after")); err != nil {
			return err
		}
	}
	header := strings.Join(c.Request.Header["Last-Event-Id"], ", ") // as net/http spells it
	for _, last := range []string{q.Get("lastEventId"), header} {   // empty before the first event
		if last == "" {
			continue
		}
		if from, err = parseCursor("Last-Event-ID", last); err != nil {
			return err
		}
	}
	if q.Has("wait") {
		if !WaitPattern.MatchString(q.Get("wait")) {
			return problemf(codeParameter, "wait must be a time such as 30s, from 0s to 60s")
		}
		wait, _ = time.ParseDuration(q.Get("wait")) // the pattern is stricter
	}
	mediaType := preferred(c, TypeJSON, TypeEvents, TypeCSV)
	streams := mediaType == TypeEvents
	if streams {
		c.Header("Content-Type", TypeEvents)
		c.Header("X-Accel-Buffering", "no") // nginx would keep events back
	}
	if mediaType != TypeJSON && !q.Has("limit") {
		q.limit = database.MaxChanges // which all streams share
	}
	ctx := middleware.ContextOf(c)
	if c.Request.Method == http.MethodHead || !streams && wait == 0 {
		if err := q.take(c); err != nil {
			return err
		}
		changes, err := h.feed.Read(ctx, from, q.limit)
		if err != nil {
			return err
		}
		return h.respond(c, q, mediaType, &changes)
	}
	return h.feed.Follow(ctx, func(next models.NextChanges[T]) error {
		if streams {
			return h.stream(c, next, from, q.limit)
		}
		until, cancel := h.health.untilDrain(ctx, wait)
		defer cancel()
		changes, err := next(until, from, q.limit)
		if err != nil {
			return err
		}
		return h.respond(c, q, mediaType, &changes)
	})
}

func parseCursor(name, text string) (database.Cursor, error) {
	cursor, ok := database.ParseCursor(text)
	if !ok {
		return cursor, problemf(codeParameter, "%s must be the cursor of an earlier response, a time such as 2026-11-25T00:00:00Z, or 0 for the beginning", name)
	}
	return cursor, nil
}

// eventHead is what precedes the data of an event that ends at a cursor.
func eventHead(next database.Cursor) string { return "retry: 1000\nid: " + next.String() + "\ndata: " }

const eventEnd = "\n\n"

// encodeEvent returns part as an event, which many clients may get.
func (h *follower[T, C]) encodeEvent(part *models.Changes[T]) ([]byte, error) {
	event, name := bytes.NewBufferString(eventHead(part.Next)), h.feedName()
	err := json.MarshalWrite(event, changes[C]{
		Changes: mapAll(part.Rows, func(r *models.Change[T]) change[C] {
			var row *storedRow[int64, C]
			if r.Row != nil {
				row = new(storedRow[int64, C])
				h.setStored(row, r.Row)
			}
			return change[C]{r.ID, map[string]*storedRow[int64, C]{name: row}}
		}),
		Cursor: part.Next.String(),
	}, asJSON...)
	event.WriteString(eventEnd)
	return event.Bytes(), err
}

func (h *follower[T, C]) respond(c *gin.Context, q pageQuery, mediaType string, part *models.Changes[T]) error {
	setPosition(c, part.Position)
	switch mediaType {
	case TypeCSV:
		return h.respondCSV(c, q, part)
	case TypeEvents: // to HEAD
		return nil
	}
	encode := func() ([]byte, error) {
		event, err := part.Encode(h.encodeEvent)
		if err != nil {
			return nil, err
		}
		return event[len(eventHead(part.Next)) : len(event)-len(eventEnd)], nil
	}
	if part.Kept != nil { // many clients may get this body, and each would compress it
		body, err := encode()
		if err != nil {
			return err
		}
		middleware.CountRows(c, len(part.Rows))
		middleware.RequestOf(c).Kept = part.Kept
		return send(c, http.StatusOK, TypeJSON, body)
	}
	return sendRows(c, len(part.Rows), encode)
}

// respondCSV responds with part as a table, where a deleted row has only an id. Link has its cursor.
func (h *follower[T, C]) respondCSV(c *gin.Context, q pageQuery, part *models.Changes[T]) error {
	q.Del("lastEventId")
	setNext(c, q, part.Next.String())
	middleware.CountRows(c, len(part.Rows))
	convert := func(r *models.Change[T]) importedRow[int64, C] {
		row := importedRow[int64, C]{ID: &r.ID}
		if r.Row != nil {
			copyFields(&row.Content, r.Row, h.fields)
			copyFields(&row.Content, r.Row, h.server)
			row.CreatedAt, row.UpdatedAt = fieldAt[Timestamp](r.Row, h.created), fieldAt[Timestamp](r.Row, h.updated)
			row.ETag = new(etag(time.Time(*row.UpdatedAt)))
		}
		return row
	}
	return respondRows(c, TypeCSV, h.Name(), jsonFields(reflect.TypeFor[importedRow[int64, C]]()), convert, func(yield func([]models.Change[T]) error) error {
		return yield(part.Rows)
	})
}

// stream sends changes as server-sent events. The first event comes at once, even without changes,
// and has the cursor at which the stream begins. The stream ends when the service drains, so that
// the client connects to another replica.
func (h *follower[T, C]) stream(c *gin.Context, next models.NextChanges[T], from database.Cursor, limit int) error {
	wait := time.Duration(0)
	for first := true; first || !h.health.Draining(); first = false {
		until, cancel := h.health.untilDrain(c.Request.Context(), wait)
		changes, err := next(until, from, limit)
		cancel()
		if err != nil {
			return err
		}
		event := []byte(":\n\n") // a comment, for proxies that close silent connections
		if first || len(changes.Rows) > 0 {
			if event, err = changes.Encode(h.encodeEvent); err != nil {
				return err
			}
		}
		if first {
			setPosition(c, changes.Position)
		} else { // not the first, which may fail: then the client gets an Error
			middleware.RequestOf(c).Kept = changes.Kept
		}
		if _, err := c.Writer.Write(event); err != nil {
			return err
		}
		if err := middleware.Flush(c); err != nil {
			return err
		}
		from, wait = changes.Next, eventInterval
	}
	return nil
}
