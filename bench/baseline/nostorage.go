package main

import (
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"

	"plantstore/auth"
	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/models"
	"plantstore/routes"
)

// noStorage is the service without a database: its routes, its JSON decoder and its rules. It bounds
// the rate of any storage. It lacks the count of connections, which cmd does not export.
func noStorage(_, token string) (http.Handler, error) {
	debug.SetGCPercent(130) // as the service does
	log := newLog()
	limits := []middleware.Handler{middleware.BodyLimit(64 << 10), middleware.ReceiveLimit(routes.ReceiveLimit)}
	return routes.NewWith(routes.Options{
		Log:          log,
		Health:       controllers.NewHealth(nil),        // never asked
		Failures:     controllers.NewFailures(nil, log), // nothing can fail
		Verify:       auth.AnyOf(auth.StaticTokens([]string{token})),
		StaticTokens: []string{token},
		Limits:       routes.Limits{FailuresPerMinute: 600},
		Metrics:      prometheus.NewRegistry(),
	}, []routes.Route{
		{Method: "POST", Path: "/plants", Scope: models.ScopePlantsWrite, Limits: limits, Handler: dropPlant},
		{Method: "GET", Path: "/plants/:id", Scope: models.ScopePlantsRead, Limits: limits, Handler: inventPlant},
	}), nil
}

// dropPlant is controllers.Plants.Create without the store.
func dropPlant(c *gin.Context) error {
	body := make([]byte, max(0, c.Request.ContentLength))
	if _, err := io.ReadFull(c.Request.Body, body); err != nil {
		return err
	}
	var in controllers.NewPlant
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	if in.ID == nil || in.Name == nil {
		return &models.InvalidError{Field: "id and name", Reason: "are required"}
	}
	now := time.Now()
	p := models.Plant{ID: *in.ID, Name: *in.Name, Tag: in.Tag, CreatedAt: now, UpdatedAt: now}
	for name, text := range map[string]*string{"name": in.Name, "tag": in.Tag} {
		if text != nil {
			if err := p.Rules().Text(name).Check(name, *text); err != nil {
				return err
			}
		}
	}
	c.Header("Location", "/plants/"+strconv.FormatInt(p.ID, 10))
	return respondVersion(c, p.UpdatedAt, controllers.Plant{PlantContent: in.PlantContent})
}

// inventPlant is controllers.Plants.Get without the store.
func inventPlant(c *gin.Context) error {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	return respondVersion(c, now, controllers.StoredPlant{
		ID: id, PlantContent: controllers.PlantContent{Name: new("Monstera deliciosa"), Tag: new("houseplant")},
		Timestamps: controllers.Timestamps{CreatedAt: controllers.Timestamp(now), UpdatedAt: controllers.Timestamp(now)},
	})
}

func respondVersion(c *gin.Context, updatedAt time.Time, v any) error {
	c.Header("ETag", etag(updatedAt))
	out, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.Data(http.StatusOK, "application/json", out)
	return nil
}
