package dbtest

import (
	"net"
	"sync"
	"testing"
)

// Link is the network between a service and a database, which can be cut without closing a
// connection.
type Link struct {
	Address string       // leads to the database
	mu      sync.RWMutex // held while nothing may pass
}

// NewLink returns a link to the database at the address target.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	l := &Link{Address: listener.Addr().String()}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			go l.pass(near, far)
			go l.pass(far, near)
		}
	}()
	return l
}

// Cut lets nothing pass until Mend. Connections stay open.
func (l *Link) Cut() { l.mu.Lock() }

// Mend lets pass what Cut has held up.
func (l *Link) Mend() { l.mu.Unlock() }

func (l *Link) pass(from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.RLock()
		if n > 0 {
			_, _ = to.Write(buffer[:n])
		}
		if err != nil {
			_ = to.Close()
			l.mu.RUnlock()
			return
		}
		l.mu.RUnlock()
	}
}
