package cmd

import (
	"cmp"
	"container/list"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"plantstore/database/limit"
	"plantstore/middleware"
)

// connections is a listener that limits how many connections are open: in total, and from each
// address. A new connection beyond a limit replaces the connection that has been idle longest. If
// all are in use, the new connection is closed at the limit of its address, and waits at the limit
// of the total. A connection is idle while the server waits for a request, including its headers,
// so a client cannot keep a connection by sending slowly.
type connections struct {
	net.Listener
	perAddress int
	proxies    middleware.Proxies // their addresses have no limit of their own
	log        *zap.Logger

	mu     sync.Mutex
	room   sync.Cond // a connection was closed or turned idle, or the listener was closed
	closed bool
	all    group
	peers  map[netip.Prefix]*group // the networks with open connections
}

// group is open connections that share a limit: all connections, or those from a network.
type group struct {
	network     netip.Prefix // or its zero value
	limit, open int
	idle        list.List // of *connection, longest idle first
}

// connection is an open connection. The mutex of its listener guards its fields.
type connection struct {
	*net.TCPConn // its CloseWrite lets net/http end a response before it has read the whole request
	listener     *connections
	groups       []*group        // all connections, and the networks of its address
	waiting      []*list.Element // its places in their idle connections; empty while it is active
	closed       bool
}

// limitConnections returns listener with a limit of open connections in total, and with perAddress
// from each address except trusted proxies. If perAddress is 0, it is half of limit.
func limitConnections(listener net.Listener, limit, perAddress int, proxies []string, log *zap.Logger) *connections {
	l := &connections{
		Listener: listener, all: group{limit: limit}, perAddress: cmp.Or(perAddress, (limit+1)/2),
		proxies: middleware.ParseProxies(proxies), log: log, peers: make(map[netip.Prefix]*group),
	}
	l.room.L = &l.mu
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
		if c := l.admit(conn.(*net.TCPConn), conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()); c != nil {
			return c, nil
		}
		_ = conn.Close()
	}
}

// Close closes the listener, if it is open, and a connection that waits for room.
func (l *connections) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
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

func (l *connections) inUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.open
}

// admit counts conn as open from address, or returns nil if there is no room for it.
func (l *connections) admit(conn *net.TCPConn, address netip.Addr) *connection {
	admitted := &connection{TCPConn: conn, listener: l, groups: []*group{&l.all}}
	l.mu.Lock()
	defer l.mu.Unlock()
	isProxy := l.proxies.Contain(address)
	for network, factor := range middleware.NetworksOf(address) {
		if isProxy {
			break
		}
		g := l.peers[network]
		if g == nil {
			g = &group{network: network, limit: factor * l.perAddress}
		}
		if g.open >= g.limit && !l.dropIdle(g) { // the dropped connection was also in the larger networks
			l.log.Warn("closing new connections of an address: all its connections are in use",
				zap.Stringer("address", network), zap.Int("limit", g.limit))
			return nil
		}
		admitted.groups = append(admitted.groups, g)
	}
	for l.all.open >= l.all.limit && !l.dropIdle(&l.all) {
		l.log.Warn("new connections wait: all are in use", zap.Int("limit", l.all.limit))
		if l.room.Wait(); l.closed {
			return nil
		}
	}
	for _, g := range admitted.groups {
		if g.open++; g != &l.all {
			l.peers[g.network] = g
		}
	}
	l.setIdle(admitted)
	return admitted
}

// dropIdle closes the connection of g that has been idle longest, and no longer counts it. It reports whether a
// connection was idle.
func (l *connections) dropIdle(g *group) bool {
	first := g.idle.Front()
	if first == nil {
		return false
	}
	c := first.Value.(*connection)
	l.drop(c)
	go func() { _ = c.TCPConn.Close() }() // which waits for the end of a read
	return true
}

// drop no longer counts c as open.
func (l *connections) drop(c *connection) {
	if c.closed {
		return
	}
	c.closed = true
	l.setActive(c)
	for _, g := range c.groups {
		if g.open--; g.open == 0 {
			delete(l.peers, g.network)
		}
	}
	l.room.Signal()
}

func (l *connections) setIdle(c *connection) {
	if len(c.waiting) == 0 {
		for _, g := range c.groups {
			c.waiting = append(c.waiting, g.idle.PushBack(c))
		}
	}
	l.room.Signal()
}

func (l *connections) setActive(c *connection) {
	for i, place := range c.waiting {
		c.groups[i].idle.Remove(place)
	}
	c.waiting = c.waiting[:0]
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

// limitStreams returns next with the limits of l for in-flight requests of HTTP/2, since a
// connection may have many requests: in total and from each address, or from each connection of a
// trusted proxy. It aborts further requests without a response, as their clients need not read a
// response.
func (l *connections) limitStreams(next http.Handler) http.Handler {
	inProgress := make(map[int]*limit.Shares) // by the factor of the limit of a network
	for _, factor := range middleware.NetworksOf(netip.IPv6Unspecified()) {
		inProgress[factor] = limit.NewShares(int64(l.all.limit), int64(factor*l.perAddress))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			next.ServeHTTP(w, r)
			return
		}
		address := netip.MustParseAddrPort(r.RemoteAddr).Addr()
		isProxy := l.proxies.Contain(address)
		for network, factor := range middleware.NetworksOf(address) {
			sender := network.String()
			if isProxy {
				sender, factor = r.RemoteAddr, 1
			}
			if err := inProgress[factor].Take(sender, 1); err != nil {
				l.log.Warn("aborting requests of HTTP/2", zap.String("address", sender), zap.Error(err))
				panic(http.ErrAbortHandler)
			}
			defer inProgress[factor].Give(sender, 1) // when the request ends
			if isProxy {
				break
			}
		}
		next.ServeHTTP(w, r)
	})
}
