package cmd

import (
	"context"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/controllers"
)

func TestErrorLog(t *testing.T) {
	for _, test := range []struct {
		name    string
		lines   []string
		message string
		level   zapcore.Level
	}{
		{
			"a fault is a warning",
			slices.Repeat([]string{"http: Accept error: accept tcp [::]:8080: accept4: too many open files; retrying in 1s"}, 2),
			"http: Accept error: accept tcp [::]:8080: accept4: too many open files; retrying in 1s", zap.WarnLevel,
		},
		{
			"a strange client is none",
			[]string{"http: TLS handshake error from 192.0.2.1:1: EOF"},
			"http: TLS handshake error from 192.0.2.1:1: EOF", zap.DebugLevel,
		},
		{
			"what a client sent is left out",
			[]string{`http: invalid request "GET /secret"`},
			`http: invalid request "…"`, zap.WarnLevel,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			core, logged := observer.New(zap.DebugLevel)
			log := stdlog.New(httpErrors{sample(zap.New(core)).Named("http")}, "", 0)
			for _, line := range test.lines {
				log.Print(line)
			}
			lines := logged.All()
			if len(lines) != 1 || lines[0].Message != test.message || lines[0].Level != test.level || lines[0].LoggerName != "http" {
				t.Errorf("got %v, want one line with the level %s", lines, test.level)
			}
		})
	}
}

// TestShutDownEndsRequests: a request that outlasts the timeout ends with its connection, before
// the database is closed.
func TestShutDownEndsRequests(t *testing.T) {
	l := listenLimited(t, 1, 1)
	begun, ended := make(chan struct{}), make(chan struct{})
	server := &http.Server{ConnState: l.observe, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := shutDown(server, l, controllers.NewHealth(nil, nil), 0, time.Millisecond, zap.NewNop()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the request goes on")
	}
}
