package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	dashboardFile = "../../../grafana/stint.json"
	rulesFile     = "../../../prometheus/alerts.yml"
	patience      = 90 * time.Second
)

// Each panel and each alert finds data, in a real Prometheus that scrapes the example
// under load.
func TestObserve(t *testing.T) {
	if os.Getenv("STINT_SUITE") != "observe" {
		t.Skip("make test-observe runs it")
	}
	for _, tool := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skipf("no %s: apt-get install prometheus", tool)
		}
	}
	if out, err := exec.Command("promtool", "check", "rules", rulesFile).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("promtool", "test", "rules", strings.Replace(rulesFile, ".yml", "_test.yml", 1)).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	queries := dashboard(t)
	served := serve(t)
	asked := scrape(t, served)
	alerts := asked.alerts(t)
	if len(queries) < 24 || len(alerts) < 12 {
		t.Fatalf("%d queries of panels, %d alerts", len(queries), len(alerts))
	}
	for name, expr := range alerts {
		queries["alert "+name] = expr
	}

	// What is looked for comes and goes as the store does: asked until seen.
	for deadline := time.Now().Add(patience); len(queries) > 0 && time.Now().Before(deadline); time.Sleep(time.Second) {
		for name, expr := range queries {
			if n := asked.query(t, expr); n > 0 {
				t.Logf("%s: %d series", name, n)
				delete(queries, name)
			}
		}
	}
	for name, expr := range queries {
		t.Errorf("no data for %s: %s", name, expr)
	}
	lint(t, served)
}

// lint has promtool look at the names of all metrics, once all have been seen.
func lint(t *testing.T, served string) {
	t.Helper()
	resp, err := http.Get("http://" + served + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var ours bytes.Buffer // and not the Go runtime's
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "stint_") {
			ours.WriteString(line)
		}
	}
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = &ours
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// dashboard are the queries of the panels, with what Grafana would put for variables.
func dashboard(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "30s", "$limiter", ".*", "$route", ".*")
	queries := map[string]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries[fmt.Sprintf("panel %q %s", p.Title, target.RefID)] = fill.Replace(target.Expr)
		}
	}
	return queries
}

// start starts a program that ends with the test.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// serve starts the example under load, and returns its address.
func serve(t *testing.T) (addr string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "-addr", "127.0.0.1:0", "-load", (2 * patience).String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(line, "http://")
	addr, _, found := strings.Cut(after, ":")
	port, _, _ := strings.Cut(strings.TrimPrefix(after, addr+":"), ":")
	if !found {
		t.Fatalf("the example says %q", line)
	}
	return addr + ":" + port
}

// server is the address of a Prometheus.
type server string

// scrape starts a Prometheus that scrapes target each second, with the alerts.
func scrape(t *testing.T, target string) server {
	t.Helper()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs: [{job_name: example, static_configs: [{targets: [%q]}]}]\n", rules, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn")
	cmd.Stderr = os.Stderr
	start(t, cmd)
	p := server("http://" + addr)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // a real Prometheus begins
		if resp, err := http.Get(string(p) + "/-/ready"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return p
			}
		}
	}
	t.Fatal("prometheus does not get ready")
	return ""
}

// get asks the API, and fails the test if that fails.
func (p server) get(t *testing.T, path string, data any) {
	t.Helper()
	resp, err := http.Get(string(p) + "/api/v1/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v, %s", path, err, answer.Error)
	}
}

// query returns how many series the query finds that are numbers.
func (p server) query(t *testing.T, expr string) (n int) {
	t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	p.get(t, "query?query="+url.QueryEscape(expr), &data)
	for _, r := range data.Result {
		if r.Value[1] != "NaN" {
			n++
		}
	}
	return n
}

// alerts are the expressions of the alerts that the server has loaded.
func (p server) alerts(t *testing.T) map[string]string {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Query string }
		}
	}
	p.get(t, "rules?type=alert", &data)
	alerts := map[string]string{}
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			alerts[r.Name] = r.Query
		}
	}
	return alerts
}
