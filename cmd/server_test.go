package cmd

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestErrorLog(t *testing.T) {
	for _, test := range []struct {
		name, line string
		level      zapcore.Level
	}{
		{"a fault is a warning", "http: Accept error: accept tcp [::]:8080: accept4: too many open files; retrying in 1s", zap.WarnLevel},
		{"a strange client is none", "http: TLS handshake error from 192.0.2.1:1: EOF", zap.InfoLevel},
	} {
		t.Run(test.name, func(t *testing.T) {
			core, logged := observer.New(zap.DebugLevel)
			log := errorLog(seldom(zap.New(core)))
			for range 3 {
				log.Print(test.line)
			}
			lines := logged.All()
			if len(lines) != 1 || lines[0].Message != test.line || lines[0].Level != test.level || lines[0].LoggerName != "http" {
				t.Errorf("got %v, want one line with the level %s", lines, test.level)
			}
		})
	}
}
