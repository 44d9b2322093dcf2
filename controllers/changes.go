package controllers

import (
	"bytes"
	"net/http"
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

// PlantChange is a plant that was written, as it is now.
type PlantChange struct {
	// The id of the plant, to be read like that of a StoredPlant.
	ID int64 `json:"id" binding:"required" format:"int64" example:"1"`
	// The plant, or null if it was deleted.
	Plant *storedRow[PlantContent] `json:"plant" binding:"required" swaggertype:"object" extensions:"x-ref=StoredPlant"`
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
	plants *Plants
	health *Health // ends the requests when it drains
}

// NewChanges returns the handlers for the changes of plants.
func NewChanges(plants *Plants, health *Health) *Changes {
	return &Changes{models.NewPlantFeed(plants.store), plants, health}
}

// eventInterval is how long a stream may be silent.
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
	ctx := contextOf(c)
	if c.Request.Method == http.MethodHead || !streams && wait == 0 {
		changes, err := h.feed.Read(ctx, from, q.limit)
		if err != nil {
			return err
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

// eventHead is what precedes the data of an event.
func eventHead(changes *models.PlantChanges) string {
	return "retry: 1000\nid: " + changes.Next.String() + "\ndata: "
}

const eventEnd = "\n\n"

// encodeEvent returns changes as an event, which many clients may get.
func (h *Changes) encodeEvent(changes *models.PlantChanges) ([]byte, error) {
	event := bytes.NewBufferString(eventHead(changes))
	err := json.MarshalWrite(event, PlantChanges{
		Changes: mapAll(changes.Rows, func(r *models.PlantChange) PlantChange {
			change := PlantChange{ID: r.ID}
			if r.Row != nil {
				change.Plant = new(storedRow[PlantContent])
				h.plants.setStored(change.Plant, r.Row)
			}
			return change
		}),
		Cursor: changes.Next.String(),
	})
	event.WriteString(eventEnd)
	return event.Bytes(), err
}

func (h *Changes) respond(c *gin.Context, changes *models.PlantChanges) error {
	setPosition(c, changes.Position)
	event, err := changes.Encode(h.encodeEvent)
	if err != nil {
		return err
	}
	body := event[len(eventHead(changes)) : len(event)-len(eventEnd)]
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
			c.Header("Content-Type", TypeEvents)
			c.Header("X-Accel-Buffering", "no") // nginx would keep events back
		} else { // not the first, which may fail: then the client gets an Error
			middleware.Share(changes.Kept(), c)
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
