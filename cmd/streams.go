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
	inProgress := limit.NewShares(int64(l.limit), int64(l.perAddress))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			next.ServeHTTP(w, r)
			return
		}
		sender := r.RemoteAddr
		if address := netip.MustParseAddrPort(sender).Addr(); !l.isProxy(address) {
			sender = middleware.NetworkOf(address).String()
		}
		if err := inProgress.Take(sender, 1); err != nil {
			l.log.Warn("aborting requests of HTTP/2", zap.String("address", sender), zap.Error(err))
			panic(http.ErrAbortHandler)
		}
		defer inProgress.Give(sender, 1)
		next.ServeHTTP(w, r)
	})
}
