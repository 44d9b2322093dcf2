//go:build deploy

package operate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"plantstore/tests/service"
)

// TestDeploy checks the files in deploy/, and that the check finds mistakes in them.
// KUBERNETES_VALIDATE is the program kubernetes-validate.
func TestDeploy(t *testing.T) {
	for _, test := range []struct{ name, file, text, replacement, want string }{
		{name: "as they are", file: "compose.yaml"},
		{"misspelled field", "kubernetes/deployment.yaml", "readinessProbe:", "readynessProbe:", "readynessProbe"},
		{"wrong type", "kubernetes/scaling.yaml", "minReplicas: 3", "minReplicas: three", "minReplicas"},
		{"no such kind", "kubernetes/networkpolicy.yaml", "kind: NetworkPolicy", "kind: NetworkPolice", "kind NetworkPolice"},
		{"missing file", "kubernetes/kustomization.yaml", "migrate.yaml", "migration.yaml", "migration.yaml"},
		{"no such setting in the Deployment", "kubernetes/deployment.yaml", "PLANTSTORE_DATABASE_MIGRATE", "PLANTSTORE_DATABASE_MIGRATION", "unknown environment variable PLANTSTORE_DATABASE_MIGRATION"},
		{"no such setting in the Job", "kubernetes/migrate.yaml", "DATABASE_URL_FILE", "DATABASE_URI_FILE", "database.url (DATABASE_URL) is required"},
		{"invalid value in the Deployment", "kubernetes/deployment.yaml", `":9090"`, `"9090"`, "server.admin_address"},
		{"unknown key of a service", "compose.yaml", "stop_grace_period:", "stop_grace:", "stop_grace"},
		{"no such setting in Compose", "compose.yaml", "PLANTSTORE_SERVER_TRUSTED_PROXIES", "PLANTSTORE_TRUSTED_PROXIES", "unknown environment variable PLANTSTORE_TRUSTED_PROXIES"},
		{"invalid value in Compose", "compose.yaml", "TRUSTED_PROXIES: 172.30.99.0/24", "TRUSTED_PROXIES: front", "server.trusted_proxies"},
		{"no such setting of follow", "kubernetes/follow.yaml", "PLANTSTORE_CLIENT_TOKEN_FILE", "PLANTSTORE_TOKEN_FILE", "unknown environment variable PLANTSTORE_TOKEN_FILE"},
		{"no such flag of follow", "kubernetes/follow.yaml", "--secret-file", "--secret", "unknown flag: --secret"},
		{"misspelled field of the CronJob", "kubernetes/backup.yaml", "concurrencyPolicy", "concurencyPolicy", "concurencyPolicy"},
		{"misspelled field of the Ingress", "kubernetes/ingress.yaml", "pathType", "pathTyp", "pathTyp"},
		{"no such port in the PodMonitor", "kubernetes/monitoring.yaml", "port: admin", "port: metrics", "no container has the port metrics"},
		{"no such label in the PodMonitor", "kubernetes/monitoring.yaml", "values: [plantstore,", "values: [plant-store,", "no pod has the label plant-store"},
		{"invalid alert in the PrometheusRule", "kubernetes/monitoring.yaml", "== 0", "= 0", "parse error"},
		{"no such flag of follow in Compose", "compose.yaml", "--cursor-file", "--cursor", "unknown flag: --cursor"},
		{"misspelled option of a unit", "systemd/plantstore-server.service", "LimitNOFILE", "LimitNOFILES", "LimitNOFILES"},
		{"misspelled option of the timer", "systemd/plantstore-backup.timer", "Persistent", "Persists", "Persists"},
		{"no such flag in a unit", "systemd/plantstore-follow.service", "--cursor-file", "--cursor", "unknown flag: --cursor"},
		{"less hardening", "systemd/plantstore-.service.d/hardening.conf", "Protect", "X-Protect", "exposure"},
		{"misspelled option of HAProxy", "haproxy.cfg", "option redispatch", "option redispatched", "redispatched"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			service.Must(t, os.CopyFS(folder, os.DirFS("../../deploy")))
			path := filepath.Join(folder, test.file)
			text, err := os.ReadFile(path)
			service.Must(t, err)
			if !bytes.Contains(text, []byte(test.text)) {
				t.Fatalf("%s has no %q to falsify", test.file, test.text)
			}
			service.Must(t, os.WriteFile(path, bytes.ReplaceAll(text, []byte(test.text), []byte(test.replacement)), 0o600))
			err = checkDeploy(t, folder)
			if test.want == "" {
				service.Must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

// checkDeploy checks the files in folder against the schemas of Kubernetes and Compose, the settings and the
// flags in them against the program, the units of systemd, and the configuration of HAProxy.
func checkDeploy(t *testing.T, folder string) error {
	t.Helper()
	// With what an operator may add.
	kustomization := filepath.Join(folder, "kubernetes", "kustomization.yaml")
	text, err := os.ReadFile(kustomization)
	service.Must(t, err)
	text = bytes.ReplaceAll(text, []byte("  # - "), []byte("  - "))
	text = bytes.ReplaceAll(text, []byte("  - monitoring.yaml\n"), nil) // Kubernetes does not know its kinds
	service.Must(t, os.WriteFile(kustomization, text, 0o600))
	manifests, err := output("go", "tool", "-modfile=.ci/deploy.mod", "kustomize", "build", filepath.Join(folder, "kubernetes"))
	if err != nil {
		return err
	}
	if err := checkMonitoring(t, filepath.Join(folder, "kubernetes", "monitoring.yaml"), manifests); err != nil {
		return err
	}
	if err := checkUnits(t, filepath.Join(folder, "systemd")); err != nil {
		return err
	}
	project, err := output("go", "tool", "-modfile=.ci/deploy.mod", "cmd", "--format=json", filepath.Join(folder, "compose.yaml"))
	if err != nil {
		return err
	}
	if _, err := output("haproxy", "-c", "-f", filepath.Join(folder, "haproxy.cfg")); err != nil {
		return err
	}
	all, err := kubernetesContainers(manifests)
	if err != nil {
		return err
	}
	composed, err := composeContainers(project)
	if err != nil {
		return err
	}
	maps.Copy(all, composed)
	for name, container := range all {
		if err := errors.Join(checkEnvironment(t, container), checkFlags(t, container.args)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	// The slowest check is the last. It only warns of what it does not know.
	report, err := output(os.Getenv("KUBERNETES_VALIDATE"), "--strict", service.Write(t, "manifests.yaml", string(manifests)))
	if err == nil && bytes.Contains(report, []byte("WARN")) {
		err = errors.New(string(report))
	}
	return err
}

// output runs a program in the root of the repository and returns its standard output.
func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "COMPOSE_PROFILES=*")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", name, err, stdout, &stderr)
	}
	return stdout, nil
}

// container is a container of the service.
type container struct {
	args      []string
	variables map[string]string
	ports     []string          // their names
	labels    map[string]string // of the pod
}

// kubernetesContainers returns the containers with the image of the service, by name.
func kubernetesContainers(manifests []byte) (map[string]container, error) {
	found := make(map[string]container)
	for decoder := yaml.NewDecoder(bytes.NewReader(manifests)); ; {
		var manifest struct {
			Kind string
			Spec struct {
				Template struct {
					Metadata struct{ Labels map[string]string }
					Spec     struct {
						Containers []struct {
							Name, Image string
							Args        []string
							Env         []struct{ Name, Value string }
							Ports       []struct{ Name string }
						}
					}
				}
			}
		}
		if err := decoder.Decode(&manifest); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		for _, c := range manifest.Spec.Template.Spec.Containers {
			made := container{c.Args, map[string]string{}, nil, manifest.Spec.Template.Metadata.Labels}
			for _, variable := range c.Env {
				made.variables[variable.Name] = variable.Value
			}
			for _, port := range c.Ports {
				made.ports = append(made.ports, port.Name)
			}
			found[manifest.Kind+" "+c.Name] = made
		}
	}
}

func composeContainers(project []byte) (map[string]container, error) {
	var composed struct {
		Services map[string]struct {
			Image       string
			Command     []string
			Environment map[string]string
		}
	}
	err := json.Unmarshal(project, &composed)
	found := make(map[string]container)
	for name, service := range composed.Services {
		if service.Image == "plantstore" {
			found["service "+name] = container{args: service.Command, variables: service.Environment}
		}
	}
	return found, err
}

// checkFlags checks that the program has the command and the flags in args.
func checkFlags(t *testing.T, args []string) error {
	t.Helper()
	if _, stderr, status := service.RunToEnd(t, nil, append(slices.Clone(args), "--help")...); status != 0 {
		return errors.New(stderr)
	}
	return nil
}

// checkMonitoring checks the PodMonitor against the pods in manifests, and the alerts.
func checkMonitoring(t *testing.T, path string, manifests []byte) error {
	t.Helper()
	file, err := os.Open(path)
	service.Must(t, err)
	defer file.Close()
	containers, err := kubernetesContainers(manifests)
	if err != nil {
		return err
	}
	for decoder := yaml.NewDecoder(file); ; {
		var manifest struct {
			Kind string
			Spec struct {
				Selector struct {
					MatchExpressions []struct {
						Key    string
						Values []string
					} `yaml:"matchExpressions"`
				}
				PodMetricsEndpoints []struct{ Port string } `yaml:"podMetricsEndpoints"`
				Groups              []any
			}
		}
		if err := decoder.Decode(&manifest); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		has := func(match func(container) bool) bool {
			return slices.ContainsFunc(slices.Collect(maps.Values(containers)), match)
		}
		for _, endpoint := range manifest.Spec.PodMetricsEndpoints {
			if !has(func(c container) bool { return slices.Contains(c.ports, endpoint.Port) }) {
				return fmt.Errorf("no container has the port %s", endpoint.Port)
			}
		}
		for _, expression := range manifest.Spec.Selector.MatchExpressions {
			for _, value := range expression.Values {
				if !has(func(c container) bool { return c.labels[expression.Key] == value }) {
					return fmt.Errorf("no pod has the label %s", value)
				}
			}
		}
		if manifest.Kind == "PrometheusRule" {
			rules, err := yaml.Marshal(map[string]any{"groups": manifest.Spec.Groups})
			service.Must(t, err)
			if _, err := output("promtool", "check", "rules", service.Write(t, "rules.yaml", string(rules))); err != nil {
				return err
			}
		}
	}
}

// checkUnits checks the units of systemd in folder, and how much they let the program do.
func checkUnits(t *testing.T, folder string) error {
	t.Helper()
	path := "SYSTEMD_UNIT_PATH=" + folder + ":"
	units, err := filepath.Glob(filepath.Join(folder, "*.*"))
	service.Must(t, err)
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			continue // a folder
		}
		for _, line := range regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/plantstore (.*)$`).FindAllSubmatch(text, -1) {
			if err := checkFlags(t, strings.Fields(string(line[1]))); err != nil {
				return fmt.Errorf("%s: %w", unit, err)
			}
		}
		// The program must exist.
		service.Must(t, os.WriteFile(unit, bytes.ReplaceAll(text, []byte("/usr/local/bin/plantstore"), []byte(service.Program)), 0o600))
	}
	for _, unit := range units {
		name := filepath.Base(unit)
		if strings.HasSuffix(name, ".d") {
			continue
		}
		// It only warns of options that it does not know.
		if report, err := exec.Command("env", path, "systemd-analyze", "verify", "--man=no", name).CombinedOutput(); err != nil || len(report) > 0 {
			return fmt.Errorf("%s: %w: %s", name, err, report)
		}
		if strings.HasSuffix(name, ".service") {
			if _, err := output("env", path, "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", name); err != nil {
				return fmt.Errorf("its exposure is above 2: %w", err)
			}
		}
	}
	return nil
}

// checkEnvironment lets the program check the settings of a container.
func checkEnvironment(t *testing.T, c container) error {
	t.Helper()
	settings := []string{"PLANTSTORE_ENV=production"} // as in the image
	if slices.Contains(c.args, "follow") {            // which needs no database
		settings = append(settings, "DATABASE_URL=sqlite:x.db")
	}
	for name, value := range c.variables {
		if strings.HasSuffix(name, "_FILE") { // a secret, which the operator adds
			text := "postgres://plantstore@localhost/plantstore"
			if strings.HasSuffix(name, "_TOKEN_FILE") {
				text = "pst_abcdefgh"
			}
			value = service.Write(t, "secret", text)
		}
		settings = append(settings, name+"="+value)
	}
	if _, stderr, status := service.RunToEnd(t, settings, "config"); status != 0 {
		return errors.New(stderr)
	}
	return nil
}
