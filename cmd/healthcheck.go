package cmd

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"plantstore/config"
)

// healthcheckTimeout is shorter than the time that container engines give.
const healthcheckTimeout = 3 * time.Second

func newHealthcheck(s *settings) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the service on this machine whether it is alive",
		Long: "Ask the service on this machine whether it is alive, or ready with --ready, and exit with 0\n" +
			"where it is. It is found by the same configuration as the service's.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := s.load()
			if err != nil {
				return err
			}
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			return checkHealth(localURL(cfg), path)
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready, its database included")
	return cmd
}

// localURL returns where the service that cfg configures is reached from its own
// machine.
func localURL(cfg *config.Config) string {
	host := cfg.Server.Host
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // an image from scratch may not know localhost
	}
	return urlOf(cfg, host, cfg.Server.Port)
}

// urlOf returns the URL of the service that cfg configures at an address.
func urlOf(cfg *config.Config, host string, port int) string {
	scheme := "http://"
	if cfg.Server.TLS() {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(port))
}

func checkHealth(base, path string) error {
	client := http.Client{Timeout: healthcheckTimeout, Transport: &http.Transport{ // never by a proxy
		// The certificate names what clients call the service, not this machine, and
		// one that has expired is no reason for a restart. Nothing secret is sent.
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
	}}
	response, err := client.Get(base + path)
	if err != nil {
		return fmt.Errorf("the service does not answer: %w", err)
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, response.Status)
	}
	return nil
}
