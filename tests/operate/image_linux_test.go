package operate

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/tests/service"
)

// imageVariables returns the variables that the image sets, with folder in place of /data
// and a free port for the admin address.
func imageVariables(t *testing.T, folder string) []string {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	service.Must(t, err)
	line := regexp.MustCompile(`(?m)^ENV (.+)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("the Dockerfile has no ENV")
	}
	variables := strings.NewReplacer("127.0.0.1:9090", "127.0.0.1:"+service.FreePorts(t, 1)[0], "=/data", "="+folder).Replace(string(line[1]))
	return append(strings.Fields(variables), "DATABASE_URL=sqlite:"+folder+"/plantstore.db")
}

// TestHealthCheckOfImage runs the service with the image's variables and another port, and
// then the image's health check, which does not know that port.
func TestHealthCheckOfImage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Dockerfile")
	service.Must(t, err)
	if !regexp.MustCompile(`(?m)^HEALTHCHECK .* CMD \["/plantstore", "healthcheck"\]$`).Match(text) {
		t.Error("the Dockerfile has another health check")
	}
	// Another user than the image's, as OpenShift chooses it, is of group 0.
	for file, line := range map[string]string{"Dockerfile": "--chown=65532:0 /data /data", ".ci/release": `mkdir -m 0770 "$context/data"`} {
		text, err := os.ReadFile("../../" + file)
		service.Must(t, err)
		if !strings.Contains(string(text), line) {
			t.Errorf("%s has no %s, so group 0 cannot write to /data", file, line)
		}
	}
	variables := imageVariables(t, t.TempDir())
	s := service.Launch(t, service.Command(t, variables, "--port", "0"))
	s.AwaitLog(t, "serving")
	service.CheckCLI(t, variables, []string{"healthcheck"}, 0, "")
	s.Stop(t)
	service.CheckCLI(t, variables, []string{"healthcheck"}, 1, "", "no response from the service")
}

// awaitOK waits for the first 200 of the service at port.
func awaitOK(t *testing.T, port string) {
	t.Helper()
	service.Eventually(t, "the service to respond with 200", func() bool {
		response, err := http.Get("http://127.0.0.1:" + port + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(time.Millisecond)
}

// measured is how the service starts and stops, with an empty SQLite file.
type measured struct {
	size        int64
	start, stop []time.Duration
	memory      int // when idle
}

func (m measured) String() string {
	return fmt.Sprintf("%.1f MB | %v | %d MiB | 0 | %v", float64(m.size)/1e6, median(m.start), m.memory>>20, median(m.stop))
}

// TestImage measures the binary, limited like the image's container, and the image itself if
// ENGINE, such as docker, and IMAGE name one. With CGO_ENABLED=0, as in `make results`, the
// binary is that of the image.
func TestImage(t *testing.T) {
	starts := service.Scale(1, 5)
	rows := "| binary with CA certificates | " + measureBinary(t, starts).String() + " |\n"
	if os.Getenv("ENGINE") != "" {
		rows += "| image, read-only, without capabilities | " + measureImage(t, starts, strings.Fields(os.Getenv("ENGINE")), os.Getenv("IMAGE")).String() + " |\n"
	}
	service.Record(t, "## Image\n\n`TestImage`: "+`%d starts, each with an empty SQLite file and at most 128 MiB of memory: medians, and the most memory. The end comes after
server.shutdown_delay.

| | size | start to the first 200 | idle memory | exit status after SIGTERM | SIGTERM to the end |
| --- | --- | --- | --- | --- | --- |
%s`, starts, rows)
}

func measureBinary(t *testing.T, starts int) (m measured) {
	t.Helper()
	program, err := service.PlainProgram()
	service.Must(t, err)
	for _, file := range []string{program, "/etc/ssl/certs/ca-certificates.crt"} {
		if info, err := os.Stat(file); err == nil {
			m.size += info.Size()
		}
	}
	for range starts {
		port := service.FreePorts(t, 1)[0]
		cmd := service.Command(t, append(imageVariables(t, t.TempDir()), service.DefaultDelay), "--port", port)
		cmd.Args = slices.Concat([]string{"sh", "-c", `ulimit -n 1024 -d 131072; exec "$0" "$@"`, program}, cmd.Args[1:])
		cmd.Path = "/bin/sh"
		began := time.Now()
		s := service.Launch(t, cmd)
		awaitOK(t, port)
		m.start = append(m.start, time.Since(began))
		m.memory = max(m.memory, s.Memory(t))
		began = time.Now()
		service.Must(t, s.Process.Signal(syscall.SIGTERM))
		if err := s.Wait(t); err != nil {
			t.Errorf("got %v, want exit status 0", err)
		}
		m.stop = append(m.stop, time.Since(began))
	}
	return m
}

func measureImage(t *testing.T, starts int, engine []string, image string) (m measured) {
	t.Helper()
	run := func(args ...string) string {
		t.Helper()
		all := slices.Concat(engine[1:], args)
		output, err := exec.Command(engine[0], all...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", all, err, output)
		}
		return strings.TrimSpace(string(output))
	}
	size, err := strconv.ParseInt(run("image", "inspect", "--format", "{{.Size}}", image), 10, 64)
	service.Must(t, err)
	m.size = size
	for i := range starts {
		name, port := fmt.Sprintf("plantstore-test-%d-%d", os.Getpid(), i), service.FreePorts(t, 1)[0]
		run("create", "--name", name, "--no-healthcheck", "--network", "host", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
			"--memory", "128m", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000",
			"--env", "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:"+service.FreePorts(t, 1)[0], "--env", "DATABASE_URL=sqlite:/data/plantstore.db", image, "--port", port)
		defer run("rm", "--force", "--volumes", name)
		began := time.Now()
		run("start", name)
		awaitOK(t, port)
		m.start = append(m.start, time.Since(began))
		run("exec", name, "/plantstore", "healthcheck")
		pid, err := strconv.Atoi(run("inspect", "--format", "{{.State.Pid}}", name))
		service.Must(t, err)
		process, err := os.FindProcess(pid)
		service.Must(t, err)
		m.memory = max(m.memory, (&service.Service{Process: process}).Memory(t))
		began = time.Now()
		run("stop", "--time", "30", name)
		m.stop = append(m.stop, time.Since(began))
		if status := run("inspect", "--format", "{{.State.ExitCode}}", name); status != "0" {
			t.Errorf("got exit status %s, want 0", status)
		}
	}
	return m
}
