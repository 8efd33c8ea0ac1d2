package examples

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fenceproxy/fenceproxy/policies"
)

// load reads a configuration as serve does, and refuses warnings but those that the page beside it shows.
func load(t *testing.T, name string, data []byte) *policies.Config {
	t.Helper()
	cfg, err := policies.Load(name, data, policies.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	page, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "README.md")) // one that is missing shows none
	for _, w := range cfg.Warnings() {
		if !strings.Contains(string(page), "fenceproxy: warning: ") || !strings.Contains(string(page), w.Message) {
			t.Errorf("warning: %v", w)
		}
	}
	return cfg
}

func loadFile(t *testing.T, name string) (*policies.Config, []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return load(t, name, data), data
}

func TestEveryConfigurationLoadsWithoutOtherWarningsThanItsPageShows(t *testing.T) {
	for _, example := range folders(t) {
		loadFile(t, filepath.Join(example, "fenceproxy.yaml"))
	}
	if cfg, _ := loadFile(t, "quickstart/fenceproxy.yaml"); cfg.Upstream.URL.Host != "127.0.0.1:9000" {
		t.Errorf("quickstart forwards to %s", cfg.Upstream)
	}
}

// longestWrite is how long an admitted write may be on its way.
func longestWrite(cfg *policies.Config) time.Duration {
	longest := time.Duration(0)
	for _, p := range cfg.Policies.Policies() {
		longest = max(longest, p.DrainTimeout)
	}
	return longest + cfg.Upstream.Timeout
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantLoopback(t *testing.T, what, address string) {
	t.Helper()
	host, _, err := net.SplitHostPort(address)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("%s is %s; want a loopback address", what, address)
	}
}

// unit reads a systemd unit into section -> key -> values.
func unit(t *testing.T, file string) map[string]map[string][]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, section := map[string]map[string][]string{}, ""
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			section = strings.Trim(line, "[]")
			out[section] = map[string][]string{}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section == "" {
			t.Fatalf("%s:%d: %q is not a setting", file, i+1, line)
		}
		out[section][key] = append(out[section][key], value)
	}
	return out
}

func TestSystemdUnitFitsTheConfiguration(t *testing.T) {
	cfg, _ := loadFile(t, "systemd/fenceproxy.yaml")
	service := unit(t, "systemd/fenceproxy.service")["Service"]
	for key, want := range map[string]string{
		"DynamicUser": "yes", "StateDirectory": "fenceproxy", "CacheDirectory": "fenceproxy", "ProtectSystem": "strict", "UMask": "0077",
		"NoNewPrivileges": "yes", "Restart": "on-failure", "CapabilityBoundingSet": "",
		"ExecStart": "/usr/local/bin/fenceproxy serve --config /etc/fenceproxy/fenceproxy.yaml",
	} {
		if got := service[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q; want %q", key, got, want)
		}
	}
	if got := service["ExecReload"]; len(got) != 2 || !strings.Contains(got[0], "fenceproxy check") || got[1] != "/bin/kill -HUP $MAINPID" {
		t.Errorf("ExecReload is %q; want a check, then SIGHUP", got)
	}
	if cfg.TokenStore.Dir != "/var/lib/fenceproxy" || !cfg.TokenStore.MustExist || cfg.Spool.Dir != "/var/cache/fenceproxy" {
		t.Errorf("the directories are %q (must exist: %v) and %q; want those of the unit", cfg.TokenStore.Dir, cfg.TokenStore.MustExist, cfg.Spool.Dir)
	}
	wantLoopback(t, "the store", cfg.Upstream.URL.Host)
	wantLoopback(t, "the admin listener", cfg.Admin.Listen.Address)
	shutdown := time.Duration(0)
	for _, e := range service["Environment"] {
		if v, ok := strings.CutPrefix(e, "FENCEPROXY_SHUTDOWN_TIMEOUT="); ok {
			shutdown = duration(t, v)
		}
	}
	stop := duration(t, service["TimeoutStopSec"][0])
	if longest := longestWrite(cfg); shutdown <= longest || stop <= shutdown {
		t.Errorf("a write may take %v, shutdown waits %v, systemd %v; want them to rise", longest, shutdown, stop)
	}
}

func TestSystemdAcceptsTheUnit(t *testing.T) {
	needs(t, "systemd-analyze")
	text, err := os.ReadFile("systemd/fenceproxy.service")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "fenceproxy.service")
	text = bytes.ReplaceAll(text, []byte("/usr/local/bin/fenceproxy"), []byte(program(t, "fenceproxy")))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("fenceproxy.service")) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// manifests are the documents of a Kubernetes file by kind.
func manifests(t *testing.T, file string) map[string]node {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]node{}
	for dec := yaml.NewDecoder(f); ; {
		var doc map[string]any
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		kind, _ := doc["kind"].(string)
		if kind == "" || doc["apiVersion"] == nil || out[kind].v != nil {
			t.Fatalf("a document without kind or apiVersion, or a second %s", kind)
		}
		out[kind] = node{t, kind, doc}
	}
}

// node is a place in decoded YAML.
type node struct {
	t    *testing.T
	path string
	v    any
}

// at goes down: keys of mappings, or the name of the list element.
func (n node) at(keys ...string) node {
	n.t.Helper()
	for _, key := range keys {
		var next any
		switch v := n.v.(type) {
		case map[string]any:
			next = v[key]
		case []any:
			for i, item := range v {
				if m, ok := item.(map[string]any); ok && m["name"] == key || fmt.Sprint(i) == key {
					next = item
				}
			}
		}
		if n.path += "." + key; next == nil {
			n.t.Fatalf("there is no %s", n.path)
		}
		n.v = next
	}
	return n
}

func (n node) is(want any) {
	n.t.Helper()
	if fmt.Sprint(n.v) != fmt.Sprint(want) {
		n.t.Errorf("%s is %v; want %v", n.path, n.v, want)
	}
}

func (n node) text() string { return fmt.Sprint(n.v) }

func TestKubernetesPodFitsTheConfiguration(t *testing.T) {
	docs := manifests(t, "kubernetes/store.yaml")
	cfg, file := loadFile(t, "kubernetes/fenceproxy.yaml")
	inside := docs["ConfigMap"].at("data", "fenceproxy.yaml").text()
	if inside != string(file) {
		t.Errorf("the ConfigMap holds\n%s\nand fenceproxy.yaml\n%s", inside, file)
	}
	load(t, "kubernetes/ConfigMap", []byte(inside))

	// One proxy, and never two at a time.
	docs["Deployment"].at("spec", "replicas").is(1)
	docs["Deployment"].at("spec", "strategy", "type").is("Recreate")
	docs["PersistentVolumeClaim"].at("spec", "accessModes").is("[ReadWriteOnce]")
	pod := docs["Deployment"].at("spec", "template", "spec")
	pod.at("volumes", "marks", "persistentVolumeClaim", "claimName").is(docs["PersistentVolumeClaim"].at("metadata", "name").v)
	pod.at("volumes", "config", "configMap", "name").is(docs["ConfigMap"].at("metadata", "name").v)

	// The store listens on loopback, where the proxy looks for it, and outlives the proxy.
	store := pod.at("initContainers", "store")
	store.at("restartPolicy").is("Always")
	store.at("args", "1").is(cfg.Upstream.URL.Host)
	wantLoopback(t, "the store", cfg.Upstream.URL.Host)

	// Ports.
	proxy := pod.at("containers", "fenceproxy")
	proxy.at("ports", "http", "containerPort").is(port(t, cfg.Listen.Address))
	proxy.at("ports", "admin", "containerPort").is(port(t, cfg.Admin.Listen.Address))
	for probe, path := range map[string]string{"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"} {
		proxy.at(probe, "httpGet", "port").is("admin")
		proxy.at(probe, "httpGet", "path").is(path)
	}
	service := docs["Service"].at("spec")
	if ports, _ := service.at("ports").v.([]any); len(ports) != 1 {
		t.Errorf("the Service has %d ports; want the proxy's alone", len(ports))
	}
	service.at("ports", "http", "targetPort").is("http")
	service.at("selector", "app").is(docs["Deployment"].at("spec", "template", "metadata", "labels", "app").v)
	policy := docs["NetworkPolicy"].at("spec")
	policy.at("podSelector", "matchLabels", "app").is(service.at("selector", "app").v)
	policy.at("ingress", "0", "ports", "0", "port").is(port(t, cfg.Listen.Address))
	policy.at("ingress", "1", "ports", "0", "port").is(port(t, cfg.Admin.Listen.Address))
	policy.at("ingress", "1", "from")

	// Directories.
	proxy.at("volumeMounts", "marks", "mountPath").is(cfg.TokenStore.Dir)
	proxy.at("volumeMounts", "spool", "mountPath").is(cfg.Spool.Dir)
	proxy.at("env", "FENCEPROXY_CONFIG", "value").is(proxy.at("volumeMounts", "config", "mountPath").text() + "/fenceproxy.yaml")
	if !cfg.TokenStore.MustExist {
		t.Error("token_store.must_exist is false")
	}
	proxy.at("securityContext", "runAsUser").is(dockerfile(t).user)

	// Time to stop.
	shutdown := duration(t, proxy.at("env", "FENCEPROXY_SHUTDOWN_TIMEOUT", "value").text())
	sleep := duration(t, proxy.at("lifecycle", "preStop", "sleep", "seconds").text()+"s")
	grace := duration(t, pod.at("terminationGracePeriodSeconds").text()+"s")
	if longest := longestWrite(cfg); shutdown <= longest || grace <= sleep+shutdown {
		t.Errorf("a write may take %v, shutdown waits %v after %v, Kubernetes %v; want them to rise", longest, shutdown, sleep, grace)
	}
}

func TestComposeFitsTheConfiguration(t *testing.T) {
	data, err := os.ReadFile("compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	cfg, _ := loadFile(t, "compose/fenceproxy.yaml")
	root := node{t, "compose", doc}
	store, proxy := root.at("services", "store"), root.at("services", "fenceproxy")

	// Nobody shares a network with the store but the proxy, and nobody gets in from outside.
	if m, _ := store.v.(map[string]any); m["ports"] != nil {
		t.Error("the store publishes ports")
	}
	store.at("networks").is("[inside]")
	root.at("networks", "inside", "internal").is(true)
	proxy.at("networks").is("[inside outside]")
	services, _ := root.at("services").v.(map[string]any)
	for name := range services {
		if name != "store" && name != "fenceproxy" && slices.Contains(strings.Fields(strings.Trim(root.at("services", name, "networks").text(), "[]")), "inside") {
			t.Errorf("%s shares the store's network", name)
		}
	}
	if host := cfg.Upstream.URL.Hostname(); host != "store" {
		t.Errorf("the proxy forwards to %s; want store", host)
	}
	if at := store.at("command").text(); !strings.Contains(at, ":"+cfg.Upstream.URL.Port()+"]") {
		t.Errorf("the store is started with %s; want port %s", at, cfg.Upstream.URL.Port())
	}
	if ports := proxy.at("ports").text(); !strings.HasSuffix(ports, ":"+port(t, cfg.Listen.Address)+"]") {
		t.Errorf("published are %s; want the port of %s alone", ports, cfg.Listen.Address)
	}
	wantLoopback(t, "the admin listener", cfg.Admin.Listen.Address)

	// The marks are on a volume of their own.
	root.at("volumes", "marks")
	volumes := proxy.at("volumes").text()
	if !strings.Contains(volumes, "marks:"+cfg.TokenStore.Dir) {
		t.Errorf("the volumes are %s; want marks at %s", volumes, cfg.TokenStore.Dir)
	}
	// The folder: a mount of the file goes on showing the old one when an editor replaces it.
	if !strings.Contains(volumes, "[.:"+filepath.Dir(proxy.at("environment", "FENCEPROXY_CONFIG").text())+":ro") {
		t.Errorf("the volumes are %s; want the folder where FENCEPROXY_CONFIG says", volumes)
	}
	proxy.at("depends_on", "store", "condition").is("service_healthy")
	if test := store.at("healthcheck", "test").text(); !strings.Contains(test, ":"+cfg.Upstream.URL.Port()+"/") {
		t.Errorf("the store's health check is %s; want port %s", test, cfg.Upstream.URL.Port())
	}
	shutdown, grace := duration(t, proxy.at("environment", "FENCEPROXY_SHUTDOWN_TIMEOUT").text()), duration(t, proxy.at("stop_grace_period").text())
	if longest := longestWrite(cfg); shutdown <= longest || grace <= shutdown {
		t.Errorf("a write may take %v, shutdown waits %v, Compose %v; want them to rise", longest, shutdown, grace)
	}
}

// image is what the Dockerfile says of the last stage.
type image struct {
	stages            []string // base images
	build             []string // the go build line of the first stage, in words
	user, listen      string
	volume            string
	ports             []string
	health, run, main string
	copied            string // COPY lines
}

func dockerfile(t *testing.T) (out image) {
	t.Helper()
	data, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		switch last := len(out.stages) == 2; {
		case word == "FROM":
			out.stages = append(out.stages, strings.Fields(rest)[0])
		case word == "RUN" && strings.Contains(rest, "go build"):
			out.build = strings.Fields(strings.NewReplacer(`"`, "", "${VERSION}", "").Replace(rest))
		case word == "RUN" && last:
			t.Errorf("%q: the last stage has no shell", line)
		case word == "USER" && last:
			out.user = strings.SplitN(rest, ":", 2)[0]
		case word == "VOLUME":
			out.volume = rest
		case word == "EXPOSE":
			out.ports = strings.Fields(rest)
		case word == "ENV":
			out.listen, _ = strings.CutPrefix(rest, "FENCEPROXY_LISTEN=")
		case word == "HEALTHCHECK":
			out.health = rest
		case word == "ENTRYPOINT":
			out.run = rest
		case word == "CMD":
			out.main = rest
		case word == "COPY" && last:
			out.copied += rest + "\n"
		}
	}
	return out
}

func TestDockerfileMakesASmallImageThatServes(t *testing.T) {
	d := dockerfile(t)
	if len(d.stages) != 2 || d.stages[0] != "golang:1.26" || d.stages[1] != "scratch" {
		t.Errorf("the stages are %q", d.stages)
	}
	if !regexp.MustCompile(`^[1-9][0-9]+$`).MatchString(d.user) {
		t.Errorf("USER is %q; want a number, which Kubernetes' runAsNonRoot can check", d.user)
	}
	if d.volume != policies.DefaultDir || !strings.Contains(d.copied, "--chown="+d.user) {
		t.Errorf("VOLUME is %q, and copied is\n%swant %s, owned by %s", d.volume, d.copied, policies.DefaultDir, d.user)
	}
	if d.run != `["/fenceproxy"]` || d.main != `["serve"]` || !strings.HasSuffix(d.health, `CMD ["/fenceproxy", "health"]`) {
		t.Errorf("it runs %s %s, and %s; want no shell in either", d.run, d.main, d.health)
	}
	cfg, err := policies.Load("", nil, policies.Overrides{Listen: d.listen, UpstreamURL: "http://store:9000"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{port(t, cfg.Listen.Address), port(t, cfg.Admin.Listen.Address)}; !slices.Equal(d.ports, want) {
		t.Errorf("EXPOSE is %q; want %q", d.ports, want)
	}
	wantLoopback(t, "the admin listener", cfg.Admin.Listen.Address)
	if !strings.Contains(d.copied, "/etc/ssl/certs/ca-certificates.crt") {
		t.Error("the image has no roots, so that an https:// upstream cannot be verified")
	}
}

// TestDockerfileBuildsAStaticBinary runs the Dockerfile's own line.
func TestDockerfileBuildsAStaticBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command once more")
	}
	words := dockerfile(t).build
	file := filepath.Join(t.TempDir(), "fenceproxy")
	var env, args []string
	for i := 0; i < len(words); i++ {
		switch {
		case len(args) == 0 && strings.Contains(words[i], "="):
			env = append(env, words[i])
		case words[i] == "-o":
			args, i = append(args, "-o", file), i+1
		case words[i] == "-ldflags": // its quotes are gone: up to the next flag that go build knows
			flags := []string{}
			for i++; words[i] != "-o"; i++ {
				flags = append(flags, words[i])
			}
			args, i = append(args, "-ldflags", strings.Join(flags, " ")), i-1
		default:
			args = append(args, words[i])
		}
	}
	if len(args) < 2 || args[0] != "go" || args[1] != "build" || !slices.Contains(env, "CGO_ENABLED=0") || !slices.Contains(args, "-trimpath") {
		t.Fatalf("the build line is %q with %q", args, env)
	}
	cmd := exec.Command("go", args[1:]...)
	cmd.Dir, cmd.Env = "..", append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary needs an interpreter, and scratch has none")
		}
	}
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
		t.Errorf("the binary needs %q (%v)", libs, err)
	}
	if out, err := exec.Command(file, "version").CombinedOutput(); err != nil || !bytes.HasPrefix(out, []byte("fenceproxy ")) {
		t.Errorf("version: %v\n%s", err, out)
	}
}
