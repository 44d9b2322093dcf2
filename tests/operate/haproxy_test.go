//go:build haproxy

package operate

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"plantstore/tests/service"
)

// TestHAProxyLimitsNetworks opens connections from networks of IPv6, with lower limits than in deploy/. HAProxy
// gets their addresses by its PROXY protocol.
func TestHAProxyLimitsNetworks(t *testing.T) {
	t.Parallel()
	port := service.FreePorts(t, 1)[0]
	service.StartHAProxy(t, []string{service.Start(t).Port()},
		"    bind :8080\n", "    bind :8080\n    bind 127.0.0.1:"+port+" accept-proxy\n",
		"tcp-request connection", "tcp-request session", // after the header of the protocol
		"gt 2500", "gt 20", "gt 250 ", "gt 2 ", "gt 1000", "gt 8", "gt 4000", "gt 32")
	for _, test := range []struct {
		name, format string
		want         int // connections of 50 that are served
	}{
		{"the addresses of a /64", "2001:db8:1::%x", 2},
		{"the /64 networks of a /56", "2001:db8:2:%02x::1", 8},
		{"the /64 networks of a /48", "2001:db8:3:%02x00::1", 32},
		{"networks of /48", "2001:db8:1%02x::1", 50},
		{"an address of IPv4", "192.0.2.1", 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			served := 0
			for n := range 50 {
				conn, err := net.Dial("tcp", "127.0.0.1:"+port)
				service.Must(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				service.Must(t, conn.SetDeadline(time.Now().Add(service.Patience)))
				source, family, own := test.format, "TCP6", "::1"
				if source == "192.0.2.1" {
					family, own = "TCP4", "127.0.0.1"
				} else {
					source = fmt.Sprintf(source, n)
				}
				_, err = fmt.Fprintf(conn, "PROXY %s %s %s 1 80\r\n%s", family, source, own, healthRequest)
				service.Must(t, err)
				first := make([]byte, len("HTTP/1.1 200"))
				if _, err := io.ReadFull(conn, first); err == nil && string(first) == "HTTP/1.1 200" {
					served++
				}
			}
			if served != test.want {
				t.Errorf("got %d of 50 connections served, want %d", served, test.want)
			}
		})
	}
}
