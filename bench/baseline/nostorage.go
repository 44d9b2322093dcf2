package main

import (
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/auth"
	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/models"
)

// noStorage is the service without a database: its middleware, in the order of
// routes.New, its JSON decoder and its rules. It bounds the rate of any storage.
func noStorage(_, token string) (http.Handler, error) {
	debug.SetGCPercent(200) // as the service does
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(encoding), zapcore.Lock(os.Stderr), zap.InfoLevel))
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.ForwardedByClientIP = false
	e.Use(
		middleware.RequestID(),
		middleware.AccessLog(log),
		middleware.Headers(false),
		middleware.CORS(nil),
		controllers.Errors(log),
		middleware.Recovery(log),
		middleware.DiscardBody(),
	)
	var chain gin.HandlersChain
	for _, h := range []middleware.Handler{
		middleware.Bearer(auth.AnyOf(auth.StaticTokens([]string{token})), 600),
		middleware.RequireScope(models.ScopePlantsWrite),
		middleware.BodyLimit(64 << 10),
		dropPlant,
	} {
		chain = append(chain, middleware.Handle(h))
	}
	e.POST("/plants", chain...)
	return e, nil
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
	for name, rule := range p.Rules() {
		if text := map[string]*string{"name": in.Name, "tag": in.Tag}[name]; text != nil {
			if err := rule.Check(name, *text); err != nil {
				return err
			}
		}
	}
	c.Header("Location", "/plants/"+strconv.FormatInt(p.ID, 10))
	c.Header("ETag", `"`+strconv.FormatInt(p.UpdatedAt.UnixMicro(), 36)+`"`)
	out, err := json.Marshal(controllers.Plant{PlantContent: in.PlantContent})
	if err != nil {
		return err
	}
	c.Data(http.StatusOK, "application/json", out)
	return nil
}
