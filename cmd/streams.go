package cmd

import (
	"net/http"
	"net/netip"

	"go.uber.org/zap"

	"plantstore/database/limit"
	"plantstore/middleware"
)

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
