// Package storetest starts the stores that people run, for tests: each on a free port of 127.0.0.1, in a directory of its own, until the
// test ends.
//
// [Nginx], [Lighttpd] and [Apache] speak WebDAV, [Versitygw] speaks S3, [PouchDB] speaks CouchDB's protocol. A store that is not installed skips the test by name; with
// FENCEPROXY_NO_SKIP=1 it fails the test instead.
package storetest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Store is a running store.
type Store struct {
	Addr string // host:port
	URL  string // http://host:port
	Root string // the directory that it serves, of those whose files are what they serve
}

// AccessKey and SecretKey sign what is sent to [Versitygw].
const (
	AccessKey = "fenceproxy"
	SecretKey = "fenceproxy-secret"
)

// Nginx starts nginx with its dav module and the one that adds PROPFIND, LOCK and UNLOCK.
func Nginx(t testing.TB) *Store { return start(t, "/usr/sbin/nginx", nginxConfig) }

// Lighttpd starts lighttpd with mod_webdav, its locks and properties included.
func Lighttpd(t testing.TB) *Store { return start(t, "/usr/sbin/lighttpd", lighttpdConfig) }

// Apache starts Apache with mod_dav and mod_dav_fs.
func Apache(t testing.TB) *Store { return start(t, "/usr/sbin/apache2", apacheConfig) }

// Versitygw starts versitygw on an empty directory, with versions. It asks for signatures by [AccessKey] and [SecretKey].
func Versitygw(t testing.TB) *Store {
	t.Helper()
	program := Program(t, "versitygw")
	dir, addr := directory(t, "root", "versions", "iam"), FreeAddress(t)
	cmd := exec.Command(program, "--port", addr, "-q", "--iam-dir", filepath.Join(dir, "iam"), "posix", "--versioning-dir", filepath.Join(dir, "versions"), filepath.Join(dir, "root"))
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	Run(t, cmd, addr)
	return &Store{Addr: addr, URL: "http://" + addr}
}

// PouchDB starts PouchDB Server, which keeps its databases in memory.
func PouchDB(t testing.TB) *Store {
	t.Helper()
	program := Program(t, "pouchdb-server")
	dir, addr := directory(t), FreeAddress(t)
	host, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(program, "--in-memory", "--no-stdout-logs", "--host", host, "--port", port)
	cmd.Dir = dir // for its configuration and its log
	Run(t, cmd, addr)
	return &Store{Addr: addr, URL: "http://" + addr}
}

// Program returns the path of a program that .ci/deps installs, and ends the test where it is missing.
func Program(t testing.TB, path string) string {
	t.Helper()
	found, err := exec.LookPath(path)
	switch {
	case err == nil:
	case os.Getenv("FENCEPROXY_NO_SKIP") == "1":
		t.Fatalf("%s is not installed (make deps)", path)
	default:
		t.Skipf("%s is not installed (make deps)", path)
	}
	return found
}

// FreeAddress returns an address of 127.0.0.1 on which nobody listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	return addr
}

func start(t testing.TB, program string, config func(dir, addr string) (file string, args []string)) *Store {
	t.Helper()
	Program(t, program)
	dir, addr := directory(t, "root", "tmp"), FreeAddress(t)
	text, args := config(dir, addr)
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	Run(t, exec.Command(program, args...), addr)
	return &Store{Addr: addr, URL: "http://" + addr, Root: filepath.Join(dir, "root")}
}

// directory makes one that the server's own user can write to, unlike t.TempDir.
func directory(t testing.TB, subs ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fenceproxy-store-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the store: %v", err)
		}
	})
	for _, sub := range append([]string{""}, subs...) {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// output is what a program says. It may be read while the program runs.
type output struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Run starts cmd, waits until it listens on addr, and ends it with the test.
func Run(t testing.TB, cmd *exec.Cmd, addr string) {
	t.Helper()
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // a signal is how it ends
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not listen: %v\n%s", cmd.Path, err, out)
		}
	}
}

func nginxConfig(dir, addr string) (string, []string) {
	return fmt.Sprintf(`load_module /usr/lib/nginx/modules/ngx_http_dav_ext_module.so;
daemon off; pid %[1]s/pid; error_log stderr; worker_processes 1; master_process off;
events {}
http {
  access_log off; client_body_temp_path %[1]s/tmp; proxy_temp_path %[1]s/tmp; fastcgi_temp_path %[1]s/tmp; uwsgi_temp_path %[1]s/tmp; scgi_temp_path %[1]s/tmp;
  dav_ext_lock_zone zone=locks:1m;
  server {
    listen %[2]s;
    client_max_body_size 0;
    location / {
      root %[1]s/root; create_full_put_path on;
      dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS LOCK UNLOCK; dav_ext_lock zone=locks;
    }
  }
}
`, dir, addr), []string{"-p", dir, "-c", filepath.Join(dir, "config")}
}

func lighttpdConfig(dir, addr string) (string, []string) {
	host, port, _ := strings.Cut(addr, ":")
	return fmt.Sprintf(`server.document-root = "%[1]s/root"
server.bind = "%[2]s"
server.port = %[3]s
server.modules = ("mod_webdav")
server.upload-dirs = ("%[1]s/tmp")
webdav.activate = "enable"
webdav.is-readonly = "disable"
webdav.sqlite-db-name = "%[1]s/tmp/webdav.db"
`, dir, host, port), []string{"-D", "-f", filepath.Join(dir, "config")}
}

func apacheConfig(dir, addr string) (string, []string) {
	var load strings.Builder
	for _, m := range []string{"mpm_event", "authz_core", "dav", "dav_fs"} {
		fmt.Fprintf(&load, "LoadModule %[1]s_module /usr/lib/apache2/modules/mod_%[1]s.so\n", m)
	}
	return fmt.Sprintf(`ServerRoot %[1]s
ServerName 127.0.0.1
Listen %[2]s
PidFile %[1]s/pid
Mutex file:%[1]s/tmp
ErrorLog /dev/stderr
%[3]sDocumentRoot %[1]s/root
DavLockDB %[1]s/tmp/locks
<Directory %[1]s/root>
  Dav On
  Require all granted
</Directory>
User www-data
Group www-data
`, dir, addr, load.String()), []string{"-f", filepath.Join(dir, "config"), "-DFOREGROUND"}
}
