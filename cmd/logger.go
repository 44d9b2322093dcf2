package cmd

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/config"
)

// newLogger returns a logger that writes to w: JSON lines in production, and text in
// development. It does not sample: each request has a line.
func newLogger(cfg *config.Config, w io.Writer) *zap.Logger {
	level := zap.InfoLevel
	_ = level.Set(cfg.Log.Level) // config has validated it

	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder
	if cfg.Log.Format == "console" || cfg.Log.Format == "auto" && cfg.Env == config.Development {
		encoding.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder
	}
	return zap.New(zapcore.NewCore(encoder(encoding), zapcore.Lock(zapcore.AddSync(w)), level))
}
