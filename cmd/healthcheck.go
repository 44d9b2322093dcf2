package cmd

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func newHealthcheck(s *settings) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check whether the service on this machine is alive",
		Long: "Check whether the service on this machine is alive, or ready with --ready, and exit with 0\n" +
			"if it is. The command finds the service by the configuration of the service: at\n" +
			"server.admin_address if that is set, otherwise, or with --port, at its port. plantstore\n" +
			"follow --post is alive, and ready if its last attempt has succeeded, at such an address, too.",
		Example: "  plantstore healthcheck --ready",
		Args:    takes(0),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := s.load(callsService)
			if err != nil {
				return err
			}
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			probe := http.Client{
				Timeout: 3 * time.Second, // shorter than the timeouts of container engines
				Transport: &http.Transport{ // without a proxy
					// The certificate does not name this machine, and its end is no reason to restart
					// the service. The request contains no secret.
					TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
				},
			}
			base := localURL(cfg.TLS(), addressOf(cfg), loopback)
			if cfg.Server.AdminAddress != "" && !s.flags["server.port"].Changed {
				base = localURL(false, cfg.Server.AdminAddress, loopback)
			}
			response, err := probe.Get(base + path)
			if err != nil {
				return fmt.Errorf("no response from the service: %w", err)
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %w", path, newResponseError(response))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "check whether the service is ready, including its database")
	return s.addTo(cmd, localFlags+" admin-address")
}
