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

// checkDeploy checks the files in folder against the schemas of Kubernetes and Compose, the
// settings in them against the program, and the configuration of HAProxy.
func checkDeploy(t *testing.T, folder string) error {
	t.Helper()
	manifests, err := output("go", "tool", "-modfile=.ci/deploy.mod", "kustomize", "build", filepath.Join(folder, "kubernetes"))
	if err != nil {
		return err
	}
	project, err := output("go", "tool", "-modfile=.ci/deploy.mod", "cmd", "--format=json", filepath.Join(folder, "compose.yaml"))
	if err != nil {
		return err
	}
	if _, err := output("haproxy", "-c", "-f", filepath.Join(folder, "haproxy.cfg")); err != nil {
		return err
	}
	all, err := kubernetesEnvironments(manifests)
	if err != nil {
		return err
	}
	composed, err := composeEnvironments(project)
	if err != nil {
		return err
	}
	maps.Copy(all, composed)
	for container, environment := range all {
		if err := checkEnvironment(t, environment); err != nil {
			return fmt.Errorf("%s: %w", container, err)
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
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", name, err, stdout, &stderr)
	}
	return stdout, nil
}

// environments are the variables of containers, by the container's name.
type environments map[string]map[string]string

func kubernetesEnvironments(manifests []byte) (environments, error) {
	found := environments{}
	for decoder := yaml.NewDecoder(bytes.NewReader(manifests)); ; {
		var manifest struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Name string
							Env  []struct{ Name, Value string }
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
		for _, container := range manifest.Spec.Template.Spec.Containers {
			variables := map[string]string{}
			for _, variable := range container.Env {
				variables[variable.Name] = variable.Value
			}
			found[manifest.Kind+" "+container.Name] = variables
		}
	}
}

func composeEnvironments(project []byte) (environments, error) {
	var composed struct {
		Services map[string]struct {
			Image       string
			Environment map[string]string
		}
	}
	err := json.Unmarshal(project, &composed)
	found := environments{}
	for name, service := range composed.Services {
		if service.Image == "plantstore" {
			found["service "+name] = service.Environment
		}
	}
	return found, err
}

// checkEnvironment lets the program check the settings of a container.
func checkEnvironment(t *testing.T, variables map[string]string) error {
	t.Helper()
	settings := []string{"PLANTSTORE_ENV=production"} // as in the image
	for name, value := range variables {
		if strings.HasSuffix(name, "_FILE") { // a secret, which the operator adds
			value = service.Write(t, "secret", "postgres://plantstore@localhost/plantstore")
		}
		settings = append(settings, name+"="+value)
	}
	if _, stderr, status := service.RunToEnd(t, settings, "config"); status != 0 {
		return errors.New(stderr)
	}
	return nil
}
