package controllers

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
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

// PlantChange is a plant that was written, as it is now.
type PlantChange struct {
	// The id of the plant, to be read like that of a StoredPlant.
	ID int64 `json:"id" binding:"required" format:"int64" example:"1"`
	// The plant, or null if it was deleted.
	Plant *StoredPlant `json:"plant" binding:"required" extensions:"x-nullable"`
} // @name PlantChange

// PlantChanges is a part of the feed of changes.
type PlantChanges struct {
	// The plants that were written, in the order of the feed. A plant that is written again later occurs again, in its later state.
	Changes []PlantChange `json:"changes" binding:"required"`
	// The position in the feed after these changes, for the parameter after. Its form may change.
	Cursor string `json:"cursor" binding:"required" example:"k4n2vqrw7c.1042"`
} // @name PlantChanges

// Changes handles the requests that follow the feed of changes.
type Changes struct {
	feed   *models.PlantFeed
	health *Health // ends the requests when it drains
}

// NewChanges returns the handlers for feed.
func NewChanges(feed *models.PlantFeed, health *Health) *Changes { return &Changes{feed, health} }

// eventInterval is how long a stream may be silent, for proxies that close silent connections.
const eventInterval = 15 * time.Second

// WaitPattern matches the parameter wait: up to a minute, as proxies may give up later.
var WaitPattern = regexp.MustCompile(`^([0-9]|[1-5][0-9]|60)s$`)

// Get responds with changes of plants.
//
//	@ID				listChanges
//	@Summary		Follow the changes of plants
//	@Description	Returns the plants that were written after a cursor, deleted ones included, and the cursor after them. A reader that passes each cursor on misses nothing, however long it was away, up to the time for which deletions are kept: then it gets error 41001. It may get a change twice. With Accept: text/event-stream, the changes come as server-sent events until the client or the service closes the connection. The data of an event is such a result, and its id is the cursor, which Last-Event-ID sends back to resume.
//	@Produce		json,text/event-stream
//	@Param			after			query		string			false	"The cursor of the last response, or 0 for the beginning, which has all plants; if it is absent, only later changes"
//	@Param			limit			query		int				false	"The maximum number of changes in a response; an event has up to the maximum by default"
//	@Param			wait			query		string			false	"How long to wait for a change, up to 60s"
//	@Param			Last-Event-ID	header		string			false	"The cursor of the last event, instead of after"
//	@Success		200				{object}	PlantChanges	"The changes"
//	@Router			/plants/changes [get]
func (h *Changes) Get(c *gin.Context) error {
	q, err := parsePage(c)
	if err != nil {
		return err
	}
	from, wait := database.Now(), time.Duration(0)
	if q.Has("after") {
		if from, err = parseCursor("after", q.Get("after")); err != nil {
			return err
		}
	}
	if lines := c.Request.Header["Last-Event-Id"]; lines != nil { // as net/http spells it
		if from, err = parseCursor("Last-Event-ID", strings.Join(lines, ", ")); err != nil {
			return err
		}
	}
	if q.Has("wait") {
		if !WaitPattern.MatchString(q.Get("wait")) {
			return problemf(codeParameter, "wait must be a time such as 30s, from 0s to 60s")
		}
		wait, _ = time.ParseDuration(q.Get("wait")) // the pattern is stricter
	}
	c.Writer.Header().Add("Vary", "Accept") // CORS adds Origin
	streams := preferred(c.Request.Header["Accept"], TypeJSON, TypeEvents) == TypeEvents
	if streams && !q.Has("limit") {
		q.limit = database.MaxChanges // which all streams share
	}
	ctx, head := contextOf(c), c.Request.Method == http.MethodHead
	if head || !streams && wait == 0 {
		changes, err := h.feed.Read(ctx, from, q.limit)
		if err != nil {
			return err
		}
		if head && streams {
			setPosition(c, changes.Position)
			c.Header("Content-Type", TypeEvents)
			return nil
		}
		return h.respond(c, &changes)
	}
	return h.feed.Follow(ctx, func(next models.NextChanges) error {
		if streams {
			return h.stream(c, next, from, q.limit)
		}
		until, cancel := h.health.untilDrain(ctx, wait)
		defer cancel()
		changes, err := next(until, from, q.limit)
		if err != nil {
			return err
		}
		return h.respond(c, &changes)
	})
}

func parseCursor(name, text string) (database.Cursor, error) {
	cursor, ok := database.ParseCursor(text)
	if !ok {
		return cursor, problemf(codeParameter, "%s must be the cursor of an earlier response, or 0 for the beginning", name)
	}
	return cursor, nil
}

func encodeChanges(changes *models.PlantChanges) ([]byte, error) {
	return json.Marshal(PlantChanges{
		Changes: mapAll(changes.Rows, func(r *models.PlantChange) PlantChange {
			change := PlantChange{ID: r.ID}
			if r.Row != nil {
				change.Plant = new(toStoredPlant(r.Row))
			}
			return change
		}),
		Cursor: changes.Next.String(),
	})
}

func (h *Changes) respond(c *gin.Context, changes *models.PlantChanges) error {
	setPosition(c, changes.Position)
	body, err := changes.Encode(encodeChanges)
	if err != nil {
		return err
	}
	if kept := changes.Kept(); kept != nil { // many clients may get this body, and each would compress it
		middleware.Share(kept, c)
		return send(c, http.StatusOK, TypeJSON, body)
	}
	return sendGzipped(c, body)
}

// stream sends changes as server-sent events. The first event comes at once, even without changes,
// and has the cursor at which the stream begins. The stream ends when the service drains, so that
// the client connects to another replica.
func (h *Changes) stream(c *gin.Context, next models.NextChanges, from database.Cursor, limit int) error {
	ctx := c.Request.Context()
	for first := true; ; first = false {
		wait := eventInterval
		if first {
			wait = 0
		}
		until, cancel := h.health.untilDrain(ctx, wait)
		changes, err := next(until, from, limit)
		cancel()
		if err != nil {
			if first {
				return err
			}
			return endOfStream(ctx, err)
		}
		event := [][]byte{[]byte(":\n\n")} // a comment
		if first || len(changes.Rows) > 0 {
			body, err := changes.Encode(encodeChanges)
			if err != nil {
				return err
			}
			event = [][]byte{[]byte("id: " + changes.Next.String() + "\ndata: "), body, []byte("\n\n")}
		}
		if first {
			setPosition(c, changes.Position)
			c.Header("Content-Type", TypeEvents)
			c.Header("X-Accel-Buffering", "no") // nginx would keep events back
			// In one write, which may fail: then the client gets an Error instead.
			event = [][]byte{bytes.Join(slices.Insert(event, 0, []byte("retry: 1000\n")), nil)}
		}
		from = changes.Next
		if !first {
			middleware.Share(changes.Kept(), c)
		}
		for _, part := range event {
			if _, err := c.Writer.Write(part); err != nil {
				return endOfStream(ctx, err)
			}
		}
		if err := middleware.Flush(c); err != nil {
			return endOfStream(ctx, err)
		}
		if h.health.serving.Err() != nil {
			return nil
		}
	}
}

// endOfStream returns the error of a stream that ended with err, unless the client has left. A
// write that missed its deadline is reported, even though net/http has canceled ctx for it.
func endOfStream(ctx context.Context, err error) error {
	if ctx.Err() != nil && context.Cause(ctx) == context.Canceled && !errors.Is(err, os.ErrDeadlineExceeded) { //nolint:errorlint // exactly: the end of a token has another cause
		return nil
	}
	return err
}
