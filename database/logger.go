package database

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"gorm.io/gorm/logger"
)

// queryLogger passes GORM's log to zap. It names slow queries. Failed ones are
// logged by whoever handles the error and knows the request.
type queryLogger struct {
	log  *zap.Logger
	slow time.Duration
}

// LogMode leaves the level to zap.
func (l queryLogger) LogMode(logger.LogLevel) logger.Interface { return l }

func (l queryLogger) Info(_ context.Context, format string, args ...any) {
	l.log.Info(fmt.Sprintf(format, args...))
}

func (l queryLogger) Warn(_ context.Context, format string, args ...any) {
	l.log.Warn(fmt.Sprintf(format, args...))
}

func (l queryLogger) Error(_ context.Context, format string, args ...any) {
	l.log.Error(fmt.Sprintf(format, args...))
}

// Trace is called after every statement.
func (l queryLogger) Trace(_ context.Context, begin time.Time, statement func() (string, int64), err error) {
	duration := time.Since(begin)
	if l.slow <= 0 || duration < l.slow {
		return
	}
	text, rows := statement()
	l.log.Warn("slow query",
		zap.String("sql", text),
		zap.Int64("rows", rows),
		zap.Duration("duration", duration),
		zap.Error(err))
}
