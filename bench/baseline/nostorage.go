package main

import (
	"context"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/models"
	"plantstore/routes"
)

// nothing is a store that takes every plant and keeps none.
type nothing struct{ *models.PlantStore }

func (nothing) Create(_ context.Context, p *models.Plant) error {
	p.CreatedAt = time.Now()
	p.UpdatedAt = p.CreatedAt
	return p.Validate()
}

// noStorage is the service's own stack without a database behind it: the most
// that storing can reach.
func noStorage(_, token string) (http.Handler, error) {
	debug.SetGCPercent(200)
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	return routes.New(routes.Options{
		Log:          zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(encoding), zapcore.Lock(os.Stderr), zap.InfoLevel)),
		Plants:       controllers.NewPlants(nothing{}),
		Health:       controllers.NewHealth(func(context.Context) error { return nil }),
		Tokens:       controllers.NewTokens(nil),
		Verify:       middleware.AnyOf(middleware.StaticTokens([]string{token})),
		Limits:       routes.Limits{FailuresPerMinute: 600},
		MaxBodyBytes: 64 << 10,
	}), nil
}
