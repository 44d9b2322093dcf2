package cmd

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestGiveUpAfter: a connection ends when its client, whose kernel drops what it receives, has
// acknowledged nothing for the limit.
func TestGiveUpAfter(t *testing.T) {
	listener, err := listen("server.port", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := giveUpAfter(listener, 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := client.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { // no segment on the loopback interface has gone through so few routers
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MINTTL, 255)
	})
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("got %v, want %v", err, unix.ETIMEDOUT)
	}
}
