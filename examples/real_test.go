package examples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// absent skips a test for want of something, or fails it where everything has to be there.
func absent(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("FENCEPROXY_NO_SKIP") == "1" {
		t.Fatalf("%s, and FENCEPROXY_NO_SKIP=1 forbids to skip", what)
	}
	t.Skip(what)
}

// notPackaged skips a test for want of something that make deps cannot install: it is in no package registry, or not in this version.
func notPackaged(t *testing.T, what string) {
	t.Helper()
	t.Skip(what + "; make deps cannot install it")
}

// clean is the environment without what would change how S3 clients behave, and with the key of the store.
func clean(extra ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "AWS_") && !strings.HasPrefix(name, "RCLONE_") && !strings.HasPrefix(name, "TF_") {
			env = append(env, v)
		}
	}
	env = append(env, "AWS_ACCESS_KEY_ID=demo", "AWS_SECRET_ACCESS_KEY=demo-secret", "AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "TF_CLI_CONFIG_FILE=/dev/null", "NO_PROXY=*", "no_proxy=*", "PYTHONDONTWRITEBYTECODE=1")
	return append(env, extra...)
}

func listenable(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// daemon starts a server that is not ours, waits until it listens on addr, and ends it with the test.
func daemon(t *testing.T, addr string, env []string, argv ...string) {
	t.Helper()
	out := &log{more: make(chan struct{})}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = out, out, clean(env...), t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}) // closed by the goroutine below, which ends with the process
	go func() {
		defer close(ended)
		_ = cmd.Wait() // a signal is how it ends
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	for giveUp := time.After(time.Minute); ; {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return
		}
		select {
		case <-ended:
			t.Fatalf("%s ended:\n%s", argv[0], out)
		case <-giveUp:
			t.Fatalf("%s does not listen on %s:\n%s", argv[0], addr, out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// kept is a real store.
type kept struct {
	url  string
	read func(path string) (string, bool) // what it has under a path, not by way of the proxy
	deny string                           // how it words that something is forbidden
}

// inFiles reads a store that keeps objects as files.
func inFiles(root string) func(string) (string, bool) {
	return func(path string) (string, bool) {
		b, err := os.ReadFile(filepath.Join(root, path))
		return string(b), err == nil
	}
}

// versity starts an S3 store that checks signatures.
func versity(t *testing.T, buckets ...string) kept {
	t.Helper()
	addr, objects := startVersity(t)
	s := kept{"http://" + addr, inFiles(objects), accessDenied}
	for _, b := range buckets {
		makeBucket(t, s.url+"/"+b)
	}
	return s
}

const accessDenied = `<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>`

// startVersity starts versitygw with more arguments, and returns its address and where it keeps objects.
func startVersity(t *testing.T, args ...string) (addr, objects string) {
	t.Helper()
	needs(t, "versitygw", "curl")
	dir := t.TempDir()
	addr = listenable(t)
	for _, sub := range []string{"objects", "users"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	objects = filepath.Join(dir, "objects")
	argv := append([]string{"versitygw", "--port", addr, "-q", "--iam-dir", filepath.Join(dir, "users")}, args...)
	daemon(t, addr, []string{"ROOT_ACCESS_KEY=demo", "ROOT_SECRET_KEY=demo-secret"}, append(argv, "posix", objects)...)
	return addr, objects
}

func makeBucket(t *testing.T, url string, args ...string) {
	t.Helper()
	cmd := exec.Command("curl", append([]string{"-sS", "-f", "-K", "s3/s3.curl", "-X", "PUT", url}, args...)...)
	cmd.Env = clean()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the bucket %s: %v\n%s", url, err, out)
	}
}

// nginxFiles starts a WebDAV store.
func nginxFiles(t *testing.T) kept {
	t.Helper()
	const module = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so"
	if _, err := os.Stat(module); err != nil {
		absent(t, "nginx or its module dav-ext is not installed")
	}
	dir, err := os.MkdirTemp("", "fenceproxy-store-*") // readable for the server's own user, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, sub := range []string{"", "root", "root/rides", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	addr, file := listenable(t), filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`load_module %[3]s;
daemon off; pid %[1]s/pid; error_log stderr; worker_processes 1; master_process off;
events {}
http {
  access_log off; client_body_temp_path %[1]s/tmp; proxy_temp_path %[1]s/tmp; fastcgi_temp_path %[1]s/tmp; uwsgi_temp_path %[1]s/tmp; scgi_temp_path %[1]s/tmp;
  server { listen %[2]s; location / { root %[1]s/root; dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; create_full_put_path on; } }
}
`, dir, addr, module)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	daemon(t, addr, nil, "/usr/sbin/nginx", "-p", dir, "-c", file)
	return kept{"http://" + addr, inFiles(filepath.Join(dir, "root")), "no\n"}
}

// pouch starts a server with CouchDB's API and the database rides.
func pouch(t *testing.T) kept {
	t.Helper()
	needs(t, "node", "pouchdb-server")
	addr := listenable(t)
	host, p, _ := net.SplitHostPort(addr)
	daemon(t, addr, nil, "pouchdb-server", "--in-memory", "--no-stdout-logs", "--host", host, "--port", p)
	s := kept{url: "http://" + addr, deny: `{"error":"forbidden","reason":"no"}`}
	s.read = func(path string) (string, bool) {
		resp, err := http.Get(s.url + "/" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`"driver":"[^"]*"`).Find(b)
		return "{" + string(m) + "}\n", resp.StatusCode == http.StatusOK
	}
	req, err := http.NewRequest(http.MethodPut, s.url+"/rides", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("PUT /rides was answered %s", resp.Status)
	}
	return s
}

// before starts the proxy with a configuration before a store.
func before(t *testing.T, config, store string) *rig {
	t.Helper()
	file, err := filepath.Abs(config)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{dir: t.TempDir(), store: store}
	env := []string{
		"FENCEPROXY_LISTEN=127.0.0.1:0", "FENCEPROXY_ADMIN_LISTEN=127.0.0.1:0", "FENCEPROXY_UPSTREAM=" + store, "FENCEPROXY_DIR=./marks",
	}
	r.cmd, r.log = run(t, r.dir, env, "fenceproxy", "serve", "--config", file)
	m := r.log.await(t, `fenceproxy: serving on (\S+), forwarding to \S+, admin on (\S+)`)
	r.proxy, r.admin = "http://"+m[1], "http://"+m[2]
	return r
}

// between starts a reverse proxy before a URL, for what it sees or changes on the way. A change that returns a status answers with it.
func between(t *testing.T, target, body string, change func(*http.Request) (status int)) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := change(r); status != 0 {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return
		}
		forward.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(ln) }() // until the test ends
	t.Cleanup(func() { server.Close() })
	return "http://" + ln.Addr().String()
}

// forbidding answers every write with 403 and counts them.
func forbidding(t *testing.T, s kept) (string, *atomic.Int64) {
	t.Helper()
	var writes atomic.Int64
	return between(t, s.url, s.deny, func(r *http.Request) int {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions, "PROPFIND":
			return 0
		}
		writes.Add(1)
		return http.StatusForbidden
	}), &writes
}

// hop starts HAProxy with clients/hop.cfg.
func hop(t *testing.T, token, to string) string {
	t.Helper()
	needs(t, "haproxy")
	file, err := filepath.Abs("clients/hop.cfg")
	if err != nil {
		t.Fatal(err)
	}
	addr := listenable(t)
	daemon(t, addr, []string{"TOKEN=" + token, "HOP=" + addr, "PROXY=" + strings.TrimPrefix(to, "http://")}, "haproxy", "-f", file)
	return "http://" + addr
}

// outcomes returns what the proxy's log says of the writes to a resource, in order. A write without a token to another path goes last, so
// that all before it are in the log.
func (r *rig) outcomes(t *testing.T, resource string) (all []string) {
	t.Helper()
	last := fmt.Sprintf("/last/%d", time.Now().UnixNano())
	req, err := http.NewRequest(http.MethodDelete, r.proxy+last, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	r.log.await(t, `path=`+last)
	for _, m := range regexp.MustCompile(`msg=write outcome=(\S+) .* resource="?`+regexp.QuoteMeta(resource)+`"?(?: token=(\S+))? `).FindAllStringSubmatch(r.log.String(), -1) {
		all = append(all, strings.TrimSpace(m[1]+" "+m[2]))
	}
	return all
}

// carrying is a client as a snippet of the folder clients uses it.
type carrying struct {
	argv []string
	env  []string
	dir  string
	at   func(token string) []string // PROXY and HOP
}

// do runs one command of the snippet and returns all that it prints.
func (c carrying) do(t *testing.T, token string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	argv := append(append([]string(nil), c.argv...), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = c.dir, clean(append(append(c.at(token), c.env...), "TOKEN="+token)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s never ended:\n%s", strings.Join(argv, " "), &out)
	}
	return out.String(), err
}

func (c carrying) must(t *testing.T, token string, args ...string) string {
	t.Helper()
	out, err := c.do(t, token, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// refused runs a command that has to fail, and returns what the person reads.
func (c carrying) refused(t *testing.T, want, token string, args ...string) string {
	t.Helper()
	out, err := c.do(t, token, args...)
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		t.Fatalf("%s with %s ended with %v; want a failure\n%s", strings.Join(args, " "), token, err, out)
	}
	if !strings.Contains(out, want) {
		t.Errorf("%s with %s printed\n%s\nwant %q in it", strings.Join(args, " "), token, out, want)
	}
	return out
}

func (c carrying) file(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s kept) holds(t *testing.T, path, want string) {
	t.Helper()
	if got, ok := s.read(path); !ok || got != want {
		t.Errorf("the store has %q, %t under %s; want %q", got, ok, path, want)
	}
}

func (s kept) holdsNot(t *testing.T, path string) {
	t.Helper()
	if got, ok := s.read(path); ok {
		t.Errorf("the store has %q under %s; want nothing there", got, path)
	}
}
