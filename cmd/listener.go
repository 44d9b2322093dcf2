package cmd

import (
	"cmp"
	"container/list"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"plantstore/middleware"
)

// connections is a listener that limits how many connections are open: in total, and from each
// address. A new connection beyond a limit replaces the connection that has been idle longest. If
// all are in use, the new connection is closed at the limit of its address, and waits at the limit
// of the total. A connection is idle while the server waits for a request, including its headers,
// so a client cannot keep a connection by sending slowly.
type connections struct {
	net.Listener
	limit, perAddress int
	proxies           []netip.Prefix // trusted: their addresses have no limit of their own
	log               *zap.Logger

	mu     sync.Mutex
	room   sync.Cond // a connection was closed or turned idle, or the listener was closed
	closed bool
	open   int
	idle   list.List // of *connection, longest idle first
	peers  map[netip.Prefix]*peer
}

// peer is an address with open connections.
type peer struct {
	network netip.Prefix
	open    int
	idle    list.List // as in connections
}

// connection is an open connection. The mutex of its listener guards its fields.
type connection struct {
	*net.TCPConn // its CloseWrite lets net/http end a response before it has read the whole request
	listener     *connections
	peer         *peer
	// idle are its elements in the lists of its listener and its peer, or nil.
	idle, idleOfPeer *list.Element
	closed           bool
}

// limitConnections returns listener with a limit of open connections in total, and with perAddress
// from each address except trusted proxies. If perAddress is 0, it is half of limit.
func limitConnections(listener net.Listener, limit, perAddress int, proxies []string, log *zap.Logger) *connections {
	l := &connections{
		Listener: listener, limit: limit, perAddress: cmp.Or(perAddress, (limit+1)/2),
		log: log, peers: make(map[netip.Prefix]*peer),
	}
	l.room.L = &l.mu
	for _, text := range proxies {
		network, err := netip.ParsePrefix(text)
		if err != nil { // config has checked that it is an address
			address, _ := netip.ParseAddr(text)
			network = netip.PrefixFrom(address, address.BitLen())
		}
		l.proxies = append(l.proxies, network)
	}
	return l
}

// Accept returns the next connection, once there is room for it. It may close an idle connection
// to make room.
func (l *connections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, replaced := l.admit(conn.(*net.TCPConn))
		if replaced != nil {
			_ = replaced.TCPConn.Close()
		}
		if admitted != nil {
			return admitted, nil
		}
		_ = conn.Close()
	}
}

// Close closes the listener, if it is open, and a connection that waits for room.
func (l *connections) Close() error {
	l.mu.Lock()
	wasClosed := l.closed
	l.closed = true
	l.mu.Unlock()
	if wasClosed {
		return nil
	}
	l.room.Broadcast()
	return l.Listener.Close()
}

// drain accepts the connections that the kernel has opened already, but no more, closes the
// listener, and waits until all connections are closed, for at most limit.
func (l *connections) drain(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	err := refuse(l.Listener)
	time.Sleep(limit / 5) // for connections that are being opened
	err = errors.Join(err, l.Close())
	for time.Now().Before(deadline) && l.inUse() > 0 {
		time.Sleep(limit / 100)
	}
	return err
}

// inUse returns the number of open connections.
func (l *connections) inUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// isProxy reports whether address is that of a trusted proxy.
func (l *connections) isProxy(address netip.Addr) bool {
	return slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// admit counts conn as open, or returns nil if there is no room for it. It returns the
// connection that it replaces, if any, for the caller to close.
func (l *connections) admit(conn *net.TCPConn) (admitted, replaced *connection) {
	address := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	network, limited := middleware.NetworkOf(address), !l.isProxy(address)
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.peers[network]; limited && p != nil && p.open >= l.perAddress {
		if replaced = l.dropIdle(&p.idle); replaced == nil {
			l.log.Warn("closing new connections of an address: all its connections are in use",
				zap.Stringer("address", network), zap.Int("limit", l.perAddress))
			return nil, nil
		}
	}
	for replaced == nil && l.open >= l.limit {
		if replaced = l.dropIdle(&l.idle); replaced == nil {
			l.log.Warn("new connections wait: all are in use", zap.Int("limit", l.limit))
			l.room.Wait()
		}
		if l.closed {
			return nil, replaced
		}
	}
	p := l.peers[network]
	if p == nil {
		p = &peer{network: network}
		l.peers[network] = p
	}
	l.open++
	p.open++
	admitted = &connection{TCPConn: conn, listener: l, peer: p}
	l.setIdle(admitted)
	return admitted, replaced
}

// dropIdle no longer counts the first connection of idle, and returns it, or nil if idle is empty.
func (l *connections) dropIdle(idle *list.List) *connection {
	first := idle.Front()
	if first == nil {
		return nil
	}
	c := first.Value.(*connection)
	l.drop(c)
	return c
}

// drop no longer counts c as open.
func (l *connections) drop(c *connection) {
	if c.closed {
		return
	}
	c.closed = true
	l.setActive(c)
	l.open--
	if c.peer.open--; c.peer.open == 0 {
		delete(l.peers, c.peer.network)
	}
	l.room.Signal()
}

func (l *connections) setIdle(c *connection) {
	if c.idle == nil {
		c.idle, c.idleOfPeer = l.idle.PushBack(c), c.peer.idle.PushBack(c)
		l.room.Signal()
	}
}

func (l *connections) setActive(c *connection) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.peer.idle.Remove(c.idleOfPeer)
		c.idle, c.idleOfPeer = nil, nil
	}
}

// observe is the ConnState of the server. It aborts a request on a connection that was
// closed as idle in the same moment: the client gets no response, so nothing may be done.
func (l *connections) observe(conn net.Conn, state http.ConnState) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	c := conn.(*connection)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case state == http.StateActive && c.closed:
		panic(http.ErrAbortHandler)
	case state == http.StateActive:
		l.setActive(c)
	case state == http.StateIdle && !c.closed:
		l.setIdle(c)
	}
}

// Close closes c, which may have been dropped already.
func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}
