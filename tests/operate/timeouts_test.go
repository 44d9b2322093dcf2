package operate

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestClientsThatDoNotRead requests more than the buffers of the kernel can keep, and
// reads nothing. Over HTTP/1.1, write_timeout is the limit of each response, and over
// HTTP/2, where responses share a connection, of each write.
func TestClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	settings := withoutTimeouts("PLANTSTORE_SERVER_WRITE_TIMEOUT=500ms")
	enough := func(t *testing.T, r service.Response) int { return socketBuffers(t)/len(r.Body) + 2 }
	t.Run("HTTP/1.1", func(t *testing.T) {
		t.Parallel()
		s := service.Start(t, settings...)
		requests := enough(t, s.Get(t, "/openapi.json"))
		conn := s.Dial(t)
		_, err := io.WriteString(conn, strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", requests))
		service.Must(t, err)
		service.AwaitReset(t, conn, func() []byte { return []byte("x") })
		s.Get(t, "/healthz").CheckStatus(t, 200)
	})
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		own, folder := service.NewPair(t), t.TempDir()
		own.In(t, folder)
		s := service.StartTLS(t, folder, settings...)
		requests := enough(t, s.On(t, own.Over(t, true), "GET", "/openapi.json", "", nil))
		conn := dialHTTP2(t, s, own)
		stream := uint32(1)
		// A slow service ends a response before the buffers are full: then more requests fill them.
		service.AwaitReset(t, conn, func() []byte {
			frames := new(bytes.Buffer)
			for range requests {
				// In HPACK: GET, https, :path and :authority as they are.
				head := "\x82\x87\x04\x0d/openapi.json\x01\x09localhost"
				service.Must(t, writeFrame(frames, 1, 0x5, stream, []byte(head))) // HEADERS that end the request
				stream += 2
			}
			return frames.Bytes()
		})
		s.On(t, own.Over(t, true), "GET", "/healthz", "", nil).CheckStatus(t, 200)
	})
}

// writeFrame writes a frame of HTTP/2 (RFC 9113, section 4.1).
func writeFrame(w io.Writer, kind, flags byte, stream uint32, payload []byte) error {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	frame = binary.BigEndian.AppendUint32(append(frame, flags), stream)
	_, err := w.Write(append(frame, payload...))
	return err
}

// dialHTTP2 opens a connection of HTTP/2 that accepts as much as the protocol allows.
func dialHTTP2(t *testing.T, s *service.Service, own service.Pair) net.Conn {
	t.Helper()
	config := own.Trust()
	config.NextProtos, config.ServerName = []string{"h2"}, "127.0.0.1"
	conn := tls.Client(dialFrom(t, s, "127.0.0.1"), config)
	service.Must(t, conn.Handshake())
	_, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	service.Must(t, err)
	most := []byte{0x7f, 0xff, 0xff, 0xff}
	service.Must(t, writeFrame(conn, 4, 0, 0, append([]byte{0, 4}, most...)))                      // SETTINGS_INITIAL_WINDOW_SIZE
	service.Must(t, writeFrame(conn, 8, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<31-1-65_535))) // WINDOW_UPDATE
	return conn
}

// TestStreamsOfAConnection reads from the first frame of HTTP/2, SETTINGS, how many
// requests a client may send at once.
func TestStreamsOfAConnection(t *testing.T) {
	t.Parallel()
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	conn := dialHTTP2(t, service.StartTLS(t, folder), own)
	head := make([]byte, 9)
	_, err := io.ReadFull(conn, head)
	service.Must(t, err)
	payload := make([]byte, binary.BigEndian.Uint32(head)>>8)
	_, err = io.ReadFull(conn, payload)
	service.Must(t, err)
	for ; len(payload) > 0; payload = payload[6:] {
		if binary.BigEndian.Uint16(payload) == 3 { // SETTINGS_MAX_CONCURRENT_STREAMS
			if got := binary.BigEndian.Uint32(payload[2:]); got != 250 {
				t.Errorf("got %d streams, want 250", got)
			}
			return
		}
	}
	t.Error("got no limit of streams")
}

// TestRequestsOfAnAddress sends more requests at once, over one connection of HTTP/2, than its
// address may have connections.
func TestRequestsOfAnAddress(t *testing.T) {
	t.Parallel()
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	s := service.StartTLS(t, folder, "PLANTSTORE_SERVER_MAX_CONNECTIONS_PER_ADDRESS=2")
	transport := own.Over(t, true)
	s.On(t, transport, "GET", "/healthz", "", nil).CheckStatus(t, 200) // opens the connection
	ended := make(chan service.Response, 2)
	for range cap(ended) {
		go func() {
			for t.Context().Err() == nil { // another request may be first
				if r, err := s.TryOn(transport, "GET", "/plants/changes?wait=60s", nil, service.As(service.Token)...); err == nil {
					ended <- r
					return
				}
			}
		}()
	}
	service.Eventually(t, "an aborted request", func() bool {
		_, err := s.TryOn(transport, "GET", "/healthz", nil)
		return err != nil
	})
	// HTTP/1.1 has no limit of requests. A change ends a wait that has begun.
	other := own.Over(t, false)
	service.Eventually(t, "the end of both waits", func() bool {
		s.On(t, other, "POST", "/plants", "application/json", strings.NewReader(service.BodyOf(service.IDs.Add(1)))).RequireOK(t)
		return len(ended) == cap(ended)
	})
	for range cap(ended) {
		service.Receive(t, ended).CheckStatus(t, 200)
	}
	s.On(t, transport, "GET", "/healthz", "", nil).CheckStatus(t, 200)
	s.AwaitLog(t, "aborting requests of HTTP/2")
}

// TestBodyOfARead: a body that nobody needs must arrive within the time limit, too, before an
// export or a stream lifts it.
func TestBodyOfARead(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_SERVER_READ_TIMEOUT=4s")
	for _, path := range []string{"/plants/export", "/plants/changes?wait=60s"} {
		t.Run(path, func(t *testing.T) {
			conn := s.Dial(t)
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 10\r\n\r\nx", path, service.Token)
			service.ReadConn(t, conn).CheckError(t, 40001)
		})
	}
}

// TestRequestsOfAProxy: a trusted proxy may send the requests of many clients over HTTP/2.
func TestRequestsOfAProxy(t *testing.T) {
	t.Parallel()
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	s := service.StartTLS(t, folder, "PLANTSTORE_SERVER_MAX_CONNECTIONS_PER_ADDRESS=2", "PLANTSTORE_SERVER_TRUSTED_PROXIES=127.0.0.1")
	ended := make(chan service.Response, 6)
	for range 3 { // connections
		transport := own.Over(t, true)
		for range 2 {
			go func() {
				r, _ := s.TryOn(transport, "GET", "/plants/changes?wait=2s", nil, service.As(service.Token)...)
				ended <- r
			}()
		}
	}
	for range cap(ended) {
		service.Receive(t, ended).CheckStatus(t, 200)
	}
}

// TestIdleConnectionsAreClosed sends a request and then nothing.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	s := service.Start(t, withoutTimeouts("PLANTSTORE_SERVER_IDLE_TIMEOUT=200ms")...)
	conn := s.Dial(t)
	askHealth(t, conn)
	readHealth(t, conn)
	checkClosed(t, conn)
}

// TestRejectedUploadsEnd announces a body, is rejected, and neither sends the rest nor
// closes the connection.
func TestRejectedUploadsEnd(t *testing.T) {
	t.Parallel()
	const (
		limit  = 15 * time.Second // discardTime is 1s
		asText = "Authorization: Bearer " + service.Token + "\r\nContent-Type: text/plain\r\n"
	)
	s := service.Start(t, withoutTimeouts()...)
	for _, test := range []struct {
		name, path, headers, begun string
		code                       int
	}{
		{"after its beginning", "/plants", "", "{", 40101},
		{"not waiting for 100 Continue any more", "/plants", "Expect: 100-continue\r\n", "", 40101},
		{"an import", "/plants/import", asText, "{", 41501},
		{"an import not waiting for 100 Continue any more", "/plants/import", asText + "Expect: 100-continue\r\n", "", 41501},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn := s.Dial(t)
			begin := time.Now()
			_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 100\r\n\r\n%s", test.path, test.headers, test.begun)
			service.Must(t, err)
			service.Must(t, conn.SetReadDeadline(begin.Add(limit)))
			service.ReadConn(t, conn).CheckError(t, test.code)
			if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %v, want a closed connection within %v", err, limit)
			}
		})
	}
}

// TestShutdownTimeout stops the service while a request is in flight that never ends.
func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
	const limit = 15 * time.Second
	s := service.Start(t, withoutTimeouts("PLANTSTORE_SERVER_SHUTDOWN_TIMEOUT=200ms")...)
	u := beginUpload(t, s, "127.0.0.1", 1)
	begin := time.Now()
	service.Must(t, s.Process.Signal(syscall.SIGTERM))
	err := s.Wait(t)
	if took := time.Since(begin); err == nil || err.Error() != "exit status 1" || took > limit {
		t.Errorf("got %v after %v, want exit status 1 within %v", err, took, limit)
	}
	if !strings.Contains(s.Stderr.String(), "server.shutdown_timeout") {
		t.Error("the log does not name the setting")
	}
	_ = u.Close()
}

// TestRejectedUploadsGetTheirResponse sends a whole body, more than the buffers of the
// kernel usually hold, before it reads that the request is rejected.
func TestRejectedUploadsGetTheirResponse(t *testing.T) {
	t.Parallel()
	const size = 15 << 20 // discardLimit is 16 MiB
	s := service.Start(t)
	body := bytes.Repeat([]byte(" "), size)
	for try := 1; ; try++ { // discardTime is 1s, which may be too short on a busy machine
		conn := s.Dial(t)
		_, err := io.WriteString(conn, fmt.Sprintf("POST /plants HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size))
		service.Must(t, err)
		if _, err := conn.Write(body); err == nil {
			service.ReadConn(t, conn).CheckError(t, 40101)
			return
		} else if try == 5 {
			t.Fatalf("got %v, want to send the whole body", err)
		}
	}
}

// TestReadyzOfAStalledDatabase asks for readiness while the database does not respond.
func TestReadyzOfAStalledDatabase(t *testing.T) {
	t.Parallel()
	const limit = 15 * time.Second // readyTimeout is 1s
	server := dbtest.OwnServer(t)
	address, err := url.Parse(server.URL)
	service.Must(t, err)
	network := dbtest.NewLink(t, address.Host)
	address.Host = network.Address
	s := service.Start(t, "DATABASE_URL="+address.String(), "PLANTSTORE_DATABASE_TIMEOUT=1h", "PLANTSTORE_SERVER_SHUTDOWN_TIMEOUT=1s")
	s.Get(t, "/readyz").CheckStatus(t, 200)
	network.Cut()
	begin := time.Now()
	service.Eventually(t, "the service to notice", func() bool { return s.Get(t, "/readyz").Status == 503 })
	if took := time.Since(begin); took > limit {
		t.Errorf("it took %v, want at most %v", took, limit)
	}
	_ = s.Process.Kill() // its connections would hold up the shutdown
}

// TestReadyzOfALockedFile locks a SQLite database from another process.
func TestReadyzOfALockedFile(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_DATABASE_TIMEOUT=1s")
	unlock := service.LockTable(t, url)
	s.Get(t, "/readyz").CheckStatus(t, 200) // no write has met the lock
	s.Post(t, service.BodyOf(1)).CheckError(t, 50301)
	service.Eventually(t, "the service to notice", func() bool { return s.Get(t, "/readyz").Status == 503 })
	s.Get(t, "/readyz").CheckError(t, 50302, "another transaction or process has locked it")
	unlock()
	service.Eventually(t, "the service to be ready", func() bool { return s.Get(t, "/readyz").Status == 200 })
	s.Post(t, service.BodyOf(1)).RequireOK(t)
}

// TestReadyzOfALockedTable: while a lock of the table keeps out all writes, the service is not ready, and the log names
// who has the lock. A locked row is no reason, even if each write needs it.
func TestReadyzOfALockedTable(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"SHARE", "ACCESS EXCLUSIVE"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			url := dbtest.OwnServer(t).URL
			s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_DATABASE_TIMEOUT=1s")
			s.Post(t, service.BodyOf(1)).RequireOK(t)
			holder := service.OpenTable(t, url+"&application_name=nightly")
			tx, err := holder.Begin()
			service.Must(t, err)
			var pid int
			service.Must(t, tx.QueryRow("SELECT pg_backend_pid() FROM plants WHERE id = 1 FOR UPDATE").Scan(&pid))
			for begin := time.Now(); time.Since(begin) < 5*time.Second; {
				var group sync.WaitGroup
				for range 3 { // so that some wait for those that wait for the row, and PostgreSQL does not say where
					group.Go(func() { s.Call(t, "PUT", "/plants/1", `{"name":"x"}`).CheckStatus(t, 503) })
				}
				group.Wait()
				s.Get(t, "/readyz").CheckStatus(t, 200)
			}
			_, err = tx.Exec("LOCK TABLE plants IN " + mode + " MODE")
			service.Must(t, err)
			begin := time.Now()
			var ready service.Response
			service.Eventually(t, "the service to notice", func() bool {
				s.Post(t, service.BodyOf(2)).CheckStatus(t, 503)
				ready = s.Get(t, "/readyz")
				return strings.Contains(ready.Body, "locked")
			})
			if took := time.Since(begin); took < 2*time.Second {
				t.Errorf("it took %v, want seconds", took)
			}
			ready.CheckError(t, 50302, "the database is not writable: another transaction or process has locked it")
			want := fmt.Sprintf("pid %d, application nightly, role postgres, in a transaction for 00:00:", pid)
			service.Eventually(t, want+" in the log", func() bool { // has one line per second for a code, which may be that of a POST
				s.Get(t, "/readyz")
				return strings.Contains(s.Stderr.String(), want)
			})
			service.Must(t, tx.Rollback())
			service.Eventually(t, "the service to be ready", func() bool { return s.Get(t, "/readyz").Status == 200 })
			s.Post(t, service.BodyOf(2)).RequireOK(t)
		})
	}
}

// TestHealthcheckGivesUp checks the health of a service that does not respond.
func TestHealthcheckGivesUp(t *testing.T) {
	t.Parallel()
	const limit = 15 * time.Second // it gives up after 3s
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	service.Must(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	service.Must(t, err)
	begin := time.Now()
	service.CheckCLI(t, []string{"PORT=" + port}, []string{"healthcheck"}, 1, "", "no response from the service")
	if took := time.Since(begin); took > limit {
		t.Errorf("it took %v, want at most %v", took, limit)
	}
}
