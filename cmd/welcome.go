package cmd

import (
	"fmt"
	"io"

	"plantstore/config"
)

// welcome prints the URL of a development service, its token and a request to try.
func welcome(w io.Writer, cfg *config.Config, port int, token string) {
	base, curl := serviceURL(cfg, "localhost", port), "curl -i"
	if cfg.Server.TLS() { // the certificate may be self-signed
		curl = fmt.Sprintf("curl -i --cacert '%s'", cfg.Server.TLSCertificate)
	}
	if cfg.Docs.Enabled {
		_, _ = fmt.Fprintf(w, "\n  Swagger UI  %s/swagger/index.html\n", base)
	} else {
		_, _ = fmt.Fprintf(w, "\n  Service     %s\n", base)
	}
	if token != "" {
		_, _ = fmt.Fprintf(w, "  Token       %s (stored in %s)\n", token, devTokenFile)
		_, _ = fmt.Fprintf(w, "  Try it      %s %s/plants -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d '%s'\n",
			curl, base, token, `{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`)
	}
	_, _ = fmt.Fprintln(w)
}
