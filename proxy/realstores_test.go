package proxy_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRealStores plays the story before WebDAV servers that people run, in every spelling under which they take a path for the same
// file. Where a server is not installed the test is skipped by name, or fails with FENCEPROXY_NO_SKIP=1.
func TestRealStores(t *testing.T) {
	for _, s := range []struct {
		name, program string
		config        func(dir, addr string) (file string, args []string)
	}{
		{"nginx", "/usr/sbin/nginx", nginxConfig},
		{"lighttpd", "/usr/sbin/lighttpd", lighttpdConfig},
		{"apache", "/usr/sbin/apache2", apacheConfig},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(s.program); err != nil {
				if os.Getenv("FENCEPROXY_NO_SKIP") == "1" {
					t.Fatalf("%s is not installed (make deps)", s.program)
				}
				t.Skipf("%s is not installed (make deps)", s.program)
			}
			dir, addr := storeDir(t), freeAddress(t)
			config, args := s.config(dir, addr)
			if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o644); err != nil {
				t.Fatal(err)
			}
			startStore(t, s.program, args, addr)
			playBefore(t, newRig(t, "http://"+addr, defaultYAML))
		})
	}
}

func playBefore(t *testing.T, r *rig) {
	// A store answers 201 for a new file and 204 for a known one.
	put := func(path string, token, body string) reply {
		return r.must(http.MethodPut, path, body, "Fencing-Token", token)
	}
	if got := put("/d/f.txt", "33", "from A"); got.code != 201 {
		t.Fatalf("PUT with 33 = %v; want 201", got)
	}
	if got := put("/d/f.txt", "34", "from B"); got.code/100 != 2 {
		t.Fatalf("PUT with 34 = %v; want success", got)
	}
	for _, path := range []string{
		"/d/f.txt", "/d/f.txt/", "//d/f.txt", "/d//f.txt", "/d/./f.txt", "/d/%2e/f.txt", "/d/x/../f.txt", "/d/x/%2e%2e/f.txt", "/./d/f.txt",
		"/d%2Ff.txt", "/d/x%2f..%2ff.txt", "/d/%66.txt", "/d/f%2Etxt", "/d/f.txt?x=1", "/d/f.txt?", "/d/f.txt#y", `/d\f.txt`, "/d/f.txt%00",
		"/%64/f.txt", "/d/%2E%2E/d/f.txt", "/d/f.txt/.", "/d/f.txt/..%2ff.txt", "/d/;/f.txt", "/d/f.txt;v=1",
	} {
		got, err := r.do(http.MethodPut, path, "stale", "Fencing-Token", "33")
		if err != nil {
			continue // Go's client may refuse to send it
		}
		if now := r.must(http.MethodGet, "/d/f.txt", ""); now.body != "from B" {
			t.Fatalf("PUT %s with 33 was answered %v and the store holds %q; want B's bytes", path, got, now.body)
		}
	}
	if got := r.must(http.MethodDelete, "/d/f.txt", "", "Fencing-Token", "33"); got.code != 412 {
		t.Errorf("DELETE with 33 = %v; want 412", got)
	}
	if got := r.must(http.MethodDelete, "/d/f.txt", "", "Fencing-Token", "34"); got.code/100 != 2 {
		t.Errorf("DELETE with 34 = %v; want success", got)
	}
	if got := put("/d/f.txt", "33", "from the dead"); got.code != 412 {
		t.Errorf("PUT with 33 after the DELETE = %v; want 412: the mark outlives the object", got)
	}
}

func storeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fenceproxy-store-*") // readable for the server's own user, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, sub := range []string{"", "root", "root/d", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func startStore(t *testing.T, program string, args []string, addr string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // a signal is how it ends
	})
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not listen: %v\n%s", program, err, out)
		}
	}
}

func nginxConfig(dir, addr string) (string, []string) {
	return fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log stderr; worker_processes 1; master_process off;
events {}
http {
  access_log off; client_body_temp_path %[1]s/tmp; proxy_temp_path %[1]s/tmp; fastcgi_temp_path %[1]s/tmp; uwsgi_temp_path %[1]s/tmp; scgi_temp_path %[1]s/tmp;
  server { listen %[2]s; location / { root %[1]s/root; dav_methods PUT DELETE MKCOL COPY MOVE; create_full_put_path on; } }
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
