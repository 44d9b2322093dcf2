//go:build prometheus

package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/tests/service"
)

// The files that operators load.
const (
	alertsFile    = "../../deploy/prometheus/alerts.yaml"
	dashboardFile = "../../deploy/grafana/dashboard.json"
)

// dashboard is the part of Grafana's model that the tests need.
type dashboard struct {
	Panels []panel
}

type panel struct {
	ID         int
	Type       string
	Title      string
	GridPos    struct{ X, Y, W, H int }
	Datasource struct{ Type, UID string }
	Targets    []target
}

type target struct{ RefID, Expr, LegendFormat string }

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	service.Must(t, err)
	service.Must(t, json.Unmarshal(text, &d))
	return d
}

// TestDashboardLayout checks what Grafana would silently repair: ids, and places on its grid
// of 24 columns.
func TestDashboardLayout(t *testing.T) {
	ids, taken := make(map[int]string), make(map[[2]int]string)
	for _, p := range readDashboard(t).Panels {
		if other, ok := ids[p.ID]; ok || p.ID == 0 {
			t.Errorf("%s: got the id %d, which %q has, too", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		if p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W*p.GridPos.H == 0 {
			t.Errorf("%s: got %+v, want a place in 24 columns", p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[cell]; ok {
					t.Fatalf("%s overlaps %s", p.Title, other)
				}
				taken[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" {
			t.Errorf("%s: got the data source %v, want the variable", p.Title, p.Datasource)
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if refs[target.RefID] || target.RefID == "" || target.LegendFormat == "" || !strings.Contains(target.Expr, "$instance") {
				t.Errorf("%s: got %+v, want a refId of its own, a legend and the variable $instance", p.Title, target)
			}
			refs[target.RefID] = true
		}
		if len(refs) == 0 {
			t.Errorf("%s: got no query", p.Title)
		}
	}
}

// TestDashboardExplainsOutages runs a service for each kind of outage, and a Prometheus that
// scrapes all of them and has the alerts. It asks the queries of the dashboard and of the
// alerts before and during the outages.
func TestDashboardExplainsOutages(t *testing.T) {
	type subject struct {
		outage
		s        *service.Service
		instance string
		begin    func(*service.Service) (end func() error)
		before   string // a row of the results
	}
	var subjects []*subject
	var instances []string
	for _, o := range outages() {
		databaseURL, begin := o.prepare(t)
		s, admin := service.StartAdmin(t, "DATABASE_URL="+databaseURL)
		instance := strings.TrimPrefix(admin.URL, "http://")
		subjects = append(subjects, &subject{outage: o, s: s, instance: instance, begin: begin})
		instances = append(instances, instance)
		trickle(t, s)
	}
	// Only a service with a standby, or a certificate, has its metrics.
	primary, standby := service.OwnServers(t)
	folder := t.TempDir()
	service.NewPair(t).In(t, folder)
	withCertificate := func(t *testing.T, settings ...string) *service.Service {
		return service.StartTLS(t, folder, settings...)
	}
	_, admin := service.StartAdminOf(t, withCertificate, "DATABASE_URL="+primary.URL, "DATABASE_REPLICA_URLS="+standby.URL)
	withStandby := strings.TrimPrefix(admin.URL, "http://")
	follow := service.Launch(t, service.Command(t, []string{"PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_CLIENT_TOKEN=" + service.Token}, "follow", "--url", subjects[0].s.URL,
		"--post", "http://127.0.0.1:1", "--secret-file", service.Write(t, "secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "--admin-address", "127.0.0.1:0"))
	p := startPrometheus(t, append(slices.Clone(instances), withStandby), strings.TrimPrefix(follow.Admin(t).URL, "http://"))
	d := readDashboard(t)

	t.Run("every query has a result", func(t *testing.T) {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				name := panel.Title + " " + target.RefID
				if slices.Contains([]string{"Ready B", "Failed requests A", "Errors by code A"}, name) {
					continue // they have one in an outage
				}
				t.Run(name, func(t *testing.T) {
					instances := instances
					if strings.Contains(target.Expr, "plantstore_standby") {
						instances = []string{withStandby}
					}
					for _, instance := range instances {
						service.Eventually(t, instance, func() bool { return len(p.query(t, target.Expr, instance)) > 0 })
					}
				})
			}
		}
	})
	for _, subject := range subjects {
		if slices.Contains(p.alerts(t, subject.instance), "PlantstoreNotReady") {
			t.Errorf("%s: got an alert before it", subject.name)
		}
		subject.before = p.row(t, d, subject.instance)
		subject.begin(subject.s)
	}

	var table strings.Builder
	page, err := os.ReadFile("../../docs/observe.md")
	service.Must(t, err)
	for _, subject := range subjects {
		t.Run(subject.name, func(t *testing.T) {
			// Until no success is in the range of a rate.
			service.Eventually(t, "the outage to fill the range", func() bool {
				return p.value(t, `sum(rate(http_server_request_duration_seconds_count{instance=~"$instance",http_request_method="POST",http_route="/plants",http_response_status_code="200"}[$__rate_interval]))`, subject.instance) == 0 &&
					slices.Contains(p.alerts(t, subject.instance), "PlantstoreNotReady")
			})
			during := p.row(t, d, subject.instance)
			fmt.Fprintf(&table, "| %s: before | %s |\n| %[1]s | %[3]s |\n", subject.name, subject.before, during)
			ready := p.panel(t, d, "Ready", subject.instance)
			if len(ready) != 1 || ready[0].value != 0 || !strings.HasPrefix(ready[0].labels["reason"], subject.reason) {
				t.Errorf("Ready: got %v, want 0 with the reason %q", ready, subject.reason)
			}
			for _, sample := range ready {
				if row := "| `" + sample.labels["reason"] + "` |"; !strings.Contains(string(page), row) {
					t.Errorf("docs/observe.md has no row %s", row)
				}
			}
			if failed := p.panel(t, d, "Failed requests", subject.instance); len(failed) != 1 || failed[0].value < 0.1 {
				t.Errorf("Failed requests: got %v, want a share of at least 10 %%", failed)
			}
			var codes []string // of server faults
			for _, code := range p.panel(t, d, "Errors by code", subject.instance) {
				if label := code.labels["error"]; strings.HasPrefix(label, "5") {
					codes = append(codes, label)
				}
			}
			if !slices.Equal(codes, []string{"50302"}) {
				t.Errorf("Errors by code: got %v, want 50302 alone", codes)
			}
		})
	}

	if all := p.alerts(t, ""); !slices.Contains(all, "PlantstoreFailing") {
		t.Errorf("got the alerts %v of the job, want PlantstoreFailing", all)
	}
	t.Run("service killed", func(t *testing.T) {
		victim := subjects[0]
		service.Must(t, victim.s.Process.Kill())
		service.Eventually(t, "an alert", func() bool { return slices.Contains(p.alerts(t, victim.instance), "PlantstoreDown") })
		service.Eventually(t, "the end of its rates", func() bool { return len(p.panel(t, d, "Requests by status", victim.instance)) == 0 })
		ready := p.panel(t, d, "Ready", victim.instance)
		if len(ready) != 1 || ready[0].value != 0 || ready[0].labels["__name__"] != "up" {
			t.Errorf("Ready: got %v, want 0 of up alone", ready)
		}
		fmt.Fprintf(&table, "| service killed | %s |\n", p.row(t, d, victim.instance))
	})
	service.Record(t, `## Outages on the dashboard

What the queries of [the dashboard](../deploy/grafana/dashboard.json) return for a service with a little load, before and
during each outage, and which [alerts](../deploy/prometheus/alerts.yaml) of the instance begin.

| outage | ready | failed requests | errors by code, per second | p99 of POST and of GET | alerts |
| --- | --- | --- | --- | --- | --- |
%s`, table.String())

	t.Run("every metric and label exists", func(t *testing.T) {
		alerts := p.rules(t)
		for _, a := range alerts {
			t.Run(a.Name, func(t *testing.T) { p.checkNames(t, a.Query, "") })
		}
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				t.Run(panel.Title+" "+target.RefID, func(t *testing.T) { p.checkNames(t, target.Expr, target.LegendFormat) })
			}
		}
		// So that the check itself is checked.
		for expr, missing := range map[string]string{
			`rate(no_such_metric[5m])`:                         "no_such_metric",
			`sum by (no_such_label) (up)`:                      "no_such_label",
			`up{no_such_label!="x"}`:                           "no_such_label",
			`plantstore_refused_total{error="1"} > 0`:          `plantstore_refused_total{error="1"}`,
			`up == 0 and on (job, no_such_label) up offset 5m`: "no_such_label",
		} {
			if got := p.missing(t, expr, ""); !slices.Contains(got, missing) {
				t.Errorf("%s: got %v missing, want %s", expr, got, missing)
			}
		}
	})
	t.Run("every alert is tested and says what to do", func(t *testing.T) {
		tests, err := os.ReadFile(filepath.Join(filepath.Dir(alertsFile), "alerts_test.yaml"))
		service.Must(t, err)
		for _, rule := range p.rules(t) {
			if rule.Type != "alerting" {
				continue
			}
			if !strings.Contains(string(tests), `alertname="`+rule.Name+`"`) {
				t.Errorf("%s: no test in alerts_test.yaml", rule.Name)
			}
			// TestLinks checks that the section exists.
			if runbook := rule.Annotations["runbook"]; !strings.HasPrefix(runbook, "docs/") || !strings.Contains(runbook, ".md#") {
				t.Errorf("%s: got the runbook %q, want a section of a page", rule.Name, runbook)
			}
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s: got %v and %v, want a severity, a summary and a description", rule.Name, rule.Labels, rule.Annotations)
			}
		}
	})
}

// trickle sends a few requests of each kind per second until the test ends.
func trickle(t *testing.T, s *service.Service) {
	t.Helper()
	requests := []func(transport *http.Transport, id int64){
		func(transport *http.Transport, id int64) {
			s.Create(transport, id, strings.NewReader(service.BodyOf(id)))
			_, _ = s.TryOn(transport, "GET", fmt.Sprintf("/plants/%d", id), nil, service.As(service.Token)...)
		},
		func(transport *http.Transport, _ int64) {
			_, _ = s.TryOn(transport, "GET", "/plants/export?tag=x", nil, service.As(service.Token)...)
		},
		func(transport *http.Transport, id int64) {
			_, _ = s.TryOn(transport, "POST", "/plants/import", strings.NewReader(service.BodyOf(id)), service.As(service.Token, "Content-Type", service.InNDJSON)...)
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, request := range requests {
		group.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for ticker := time.NewTicker(100 * time.Millisecond); ; {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
					request(transport, service.IDs.Add(1))
				}
			}
		})
	}
	t.Cleanup(func() { stop(); group.Wait() })
}

// prometheus is a running Prometheus.
type prometheus struct{ url string }

const scrapeInterval = 3 * time.Second // more than a scrape takes while the database hangs

// startPrometheus starts Prometheus with the alerts until the test ends. It scrapes instances, and a follower.
func startPrometheus(t *testing.T, instances []string, follower string) *prometheus {
	t.Helper()
	folder := t.TempDir()
	rules, err := filepath.Abs(alertsFile)
	service.Must(t, err)
	config, err := json.Marshal(map[string]any{ // JSON is YAML
		"global":     map[string]any{"scrape_interval": scrapeInterval.String(), "scrape_timeout": scrapeInterval.String(), "evaluation_interval": "1s"},
		"rule_files": []string{rules},
		"scrape_configs": []any{
			map[string]any{"job_name": "plantstore", "static_configs": []any{map[string]any{"targets": instances}}},
			map[string]any{"job_name": "plantstore-follow", "static_configs": []any{map[string]any{"targets": []string{follower}}}},
		},
	})
	service.Must(t, err)
	service.Must(t, os.WriteFile(filepath.Join(folder, "prometheus.yml"), config, 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	service.Must(t, err)
	address := listener.Addr().String()
	service.Must(t, listener.Close())

	cmd := exec.CommandContext(t.Context(), "prometheus", "--config.file="+filepath.Join(folder, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	service.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	p := &prometheus{"http://" + address}
	service.Eventually(t, "Prometheus", func() bool {
		resp, err := http.Get(p.url + "/-/ready")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	return p
}

// get returns what the API responds with.
func (p *prometheus) get(t *testing.T, path string, query url.Values, data any) {
	t.Helper()
	resp, err := http.Get(p.url + path + "?" + query.Encode())
	service.Must(t, err)
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	service.Must(t, json.NewDecoder(resp.Body).Decode(&answer))
	if answer.Status != "success" {
		t.Fatalf("%s %v: %s", path, query, answer.Error)
	}
}

// sample is a value of a series.
type sample struct {
	labels map[string]string
	value  float64
}

// interpolate replaces the variables of the dashboard as Grafana does; its range for rates is
// four scrapes.
func interpolate(expr, instance string) string {
	instance = strings.ReplaceAll(regexp.QuoteMeta(instance), `\`, `\\`)
	return strings.NewReplacer("$instance", instance, "$__rate_interval", (4 * scrapeInterval).String()).Replace(expr)
}

// query returns the present result of a query of the dashboard.
func (p *prometheus) query(t *testing.T, expr, instance string) (samples []sample) {
	t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	p.get(t, "/api/v1/query", url.Values{"query": {interpolate(expr, instance)}}, &data)
	for _, r := range data.Result {
		value, err := strconv.ParseFloat(r.Value[1].(string), 64)
		service.Must(t, err)
		samples = append(samples, sample{r.Metric, value})
	}
	return samples
}

// value is query for one value, or 0.
func (p *prometheus) value(t *testing.T, expr, instance string) float64 {
	t.Helper()
	if samples := p.query(t, expr, instance); len(samples) > 0 {
		return samples[0].value
	}
	return 0
}

// panel returns the results of the queries of a panel.
func (p *prometheus) panel(t *testing.T, d dashboard, title, instance string) (samples []sample) {
	t.Helper()
	i := slices.IndexFunc(d.Panels, func(p panel) bool { return p.Title == title })
	if i < 0 {
		t.Fatalf("no panel %q", title)
	}
	for _, target := range d.Panels[i].Targets {
		samples = append(samples, p.query(t, target.Expr, instance)...)
	}
	return samples
}

// row returns what the panels show that explain an outage, and the alerts.
func (p *prometheus) row(t *testing.T, d dashboard, instance string) string {
	t.Helper()
	ready, failed, errors, latency := "", "", []string(nil), []string(nil)
	for _, s := range p.panel(t, d, "Ready", instance) {
		reason := s.labels["reason"]
		if s.labels["__name__"] == "up" {
			reason = "cannot be scraped"
		}
		ready = strings.TrimSuffix(fmt.Sprintf("%g: %s", s.value, reason), ": ")
	}
	for _, s := range p.panel(t, d, "Failed requests", instance) {
		failed = fmt.Sprintf("%.0f %%", 100*s.value)
	}
	for _, s := range p.panel(t, d, "Errors by code", instance) {
		errors = append(errors, fmt.Sprintf("%s: %.1f", s.labels["error"], s.value))
	}
	for _, s := range p.panel(t, d, "Latency by route, p99", instance) {
		switch s.labels["http_request_method"] + " " + s.labels["http_route"] {
		case "POST /plants":
			latency = append(latency, fmt.Sprintf("%.3f s", s.value))
		case "GET /plants/:id":
			latency = append([]string{fmt.Sprintf("%.3f s", s.value)}, latency...)
		}
	}
	slices.Sort(errors)
	slices.Reverse(latency)
	return strings.Join([]string{ready, failed, strings.Join(errors, ", "), strings.Join(latency, ", "), strings.Join(p.alerts(t, instance), ", ")}, " | ")
}

// alerts returns the alerts of an instance whose conditions hold.
func (p *prometheus) alerts(t *testing.T, instance string) (names []string) {
	t.Helper()
	var data struct {
		Alerts []struct{ Labels map[string]string }
	}
	p.get(t, "/api/v1/alerts", nil, &data)
	for _, a := range data.Alerts {
		if a.Labels["instance"] == instance {
			names = append(names, a.Labels["alertname"])
		}
	}
	slices.Sort(names)
	return names
}

// rule is an alert or a recorded query.
type rule struct {
	Name, Type, Query   string
	Labels, Annotations map[string]string
}

func (p *prometheus) rules(t *testing.T) (all []rule) {
	t.Helper()
	var data struct{ Groups []struct{ Rules []rule } }
	p.get(t, "/api/v1/rules", nil, &data)
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("Prometheus has no rules")
	}
	return all
}

// checkNames checks that each metric, label and value of a query exists.
func (p *prometheus) checkNames(t *testing.T, expr, legend string) {
	t.Helper()
	if missing := p.missing(t, expr, legend); len(missing) > 0 {
		t.Errorf("%s: no series has %q", expr, missing)
	}
}

// promToken matches a text in quotes, a name, a number or duration, or another character.
var promToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[A-Za-z_:][A-Za-z0-9_:]*|[0-9][0-9a-z.]*|\S`)

// missing returns the selectors of a query without series, and the labels in it, and in the
// legend of its panel, which its series lack.
func (p *prometheus) missing(t *testing.T, expr, legend string) (missing []string) {
	t.Helper()
	tokens := append(promToken.FindAllString(interpolate(strings.ReplaceAll(expr, `"$instance"`, `".*"`), ""), -1), "", "")
	var selectors, labels []string
	isName := func(s string) bool { return regexp.MustCompile(`^[A-Za-z_:]`).MatchString(s) }
	for i := 0; i < len(tokens); i++ {
		word, next := tokens[i], tokens[i+min(1, len(tokens)-1-i)]
		switch {
		case !isName(word), slices.Contains([]string{"and", "or", "unless", "offset", "bool", "inf", "nan"}, strings.ToLower(word)):
		case slices.Contains([]string{"by", "without", "on", "ignoring", "group_left", "group_right"}, word):
			for i++; tokens[i] != ")"; i++ {
				if isName(tokens[i]) {
					labels = append(labels, tokens[i])
				}
			}
		case next == "(" || next == "by" || next == "without": // a function
		case next == "{":
			selector := word
			for i++; ; i++ {
				if selector += tokens[i]; isName(tokens[i]) {
					labels = append(labels, tokens[i])
				}
				if tokens[i] == "}" {
					break
				}
			}
			selectors = append(selectors, selector)
		default:
			selectors = append(selectors, word)
		}
	}
	for _, match := range regexp.MustCompile(`{{\s*(\w+)\s*}}`).FindAllStringSubmatch(legend, -1) {
		labels = append(labels, match[1])
	}
	found := make(map[string]bool)
	for _, selector := range selectors {
		var series []map[string]string
		p.get(t, "/api/v1/series", url.Values{"match[]": {selector}}, &series)
		if len(series) == 0 {
			missing = append(missing, strings.ReplaceAll(selector, `instance=~".*"`, ""))
		}
		for _, s := range series {
			for label := range s {
				found[label] = true
			}
		}
	}
	for _, label := range labels {
		if !found[label] {
			missing = append(missing, label)
		}
	}
	if len(selectors) == 0 {
		missing = append(missing, "any metric")
	}
	return missing
}
