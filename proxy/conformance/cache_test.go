package conformance_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

// pathsYAML fences each path.
const pathsYAML = `
unmatched_writes: fence
defaults: {mode: MODE}
`

// TestCacheTests runs http-cache-tests, which judges caches and thereby how answers are carried: their heads, ages, ranges, conditions,
// 1xx answers and odd headers. The proxy is no cache, so what the suite wants from one fails with it and without it. What passes directly
// has to pass through the proxy; the other way round is no news, since the suite's client cannot read some answers of the suite's server.
func TestCacheTests(t *testing.T) {
	optIn(t)
	suite := os.Getenv("FENCEPROXY_CACHE_TESTS")
	if suite == "" {
		t.Skip("FENCEPROXY_CACHE_TESTS does not name the directory of http-cache-tests (npm install http-cache-tests@0.4.5)")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	direct := cacheTests(t, node, suite, directly)
	for _, w := range proxied {
		t.Run(w.name, func(t *testing.T) {
			var worse []string
			for range 2 { // once more where they differ: some tests measure seconds
				got := cacheTests(t, node, suite, w)
				worse = nil
				for _, line := range diff(direct, got) {
					if strings.Contains(line, ": pass directly") {
						worse = append(worse, line)
					} else {
						t.Log(line)
					}
				}
				if len(worse) == 0 {
					return
				}
			}
			t.Errorf("what passes directly and not through the proxy:\n%s", strings.Join(worse, "\n"))
		})
	}
}

// loopback keeps the suite's server, which listens everywhere, on 127.0.0.1.
const loopback = `const { Server } = require('net'); const listen = Server.prototype.listen
Server.prototype.listen = function (port) { return listen.call(this, port, '127.0.0.1') }
`

// cacheTests runs the suite's client against the suite's server, reached in the given way.
func cacheTests(t *testing.T, node, suite string, w way) results {
	t.Helper()
	dir, addr := t.TempDir(), storetest.FreeAddress(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "loopback.cjs"), []byte(loopback), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(node, "--no-warnings", "--require", filepath.Join(dir, "loopback.cjs"), filepath.Join(suite, "server", "server.mjs"))
	server.Dir = suite
	server.Env = append(os.Environ(), "npm_config_protocol=http", "npm_config_port="+port, "npm_config_pidfile="+filepath.Join(dir, "pid"))
	storetest.Run(t, server, addr)
	at, log := w.open(t, addr, pathsYAML)
	client := exec.Command(node, "--no-warnings", "cli.mjs")
	client.Dir = suite
	client.Env = append(os.Environ(), "npm_config_base=http://"+at, "npm_config_id=", "npm_package_config_id=")
	late := time.AfterFunc(15*time.Minute, func() { _ = client.Process.Signal(syscall.SIGKILL) })
	defer late.Stop()
	out, err := client.Output()
	if err != nil {
		t.Fatalf("http-cache-tests: %v\n%s", err, out)
	}
	keep(t, "cache-"+w.name, out, log())
	// Each result is true, or a kind of failure and what was expected.
	var said map[string]any
	if err := json.Unmarshal(out[strings.IndexByte(string(out), '{'):], &said); err != nil {
		t.Fatalf("results: %v\n%.2000s", err, out)
	}
	got := results{}
	for id, v := range said {
		switch v := v.(type) {
		case bool:
			got[id] = "pass"
		case []any:
			kind, _ := v[0].(string)
			got[id] = kind
		}
	}
	if len(got) < 300 {
		t.Fatalf("%d results\n%.2000s", len(got), out)
	}
	t.Logf("%s: %s", w.name, got.count())
	return got
}
