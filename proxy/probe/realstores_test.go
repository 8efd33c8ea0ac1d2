package probe_test

import (
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/fenceproxy/fenceproxy/proxy/probe"
)

// TestRealStores probes servers that people run. What they are expected to take for one object was found by hand before there was a probe.
// Where a server is not installed the test is skipped by name, or fails with FENCEPROXY_NO_SKIP=1.
func TestRealStores(t *testing.T) {
	for _, s := range []struct {
		name, program string
		config        func(dir, addr string) (file string, args []string)
		verdicts      map[string]probe.Verdict
		checks        map[string]string
	}{
		{"nginx", "/usr/sbin/nginx", nginxConfig, map[string]probe.Verdict{
			"dot": probe.Same, "dotdot": probe.Same, "encoded-dot": probe.Same, "encoded-dotdot": probe.Same, "encoded-climb": probe.Same,
			"empty": probe.Same, "trailing-slash": probe.Refused, "encoded-slash": probe.Same, "escape": probe.Same, "hex-case": probe.Same,
			"params": probe.Other, "folder-params": probe.Other, "query": probe.Same, "case": probe.Other, "nfd": probe.Other, "double": probe.Other,
			"plus": probe.Other, "trailing-dot": probe.Other, "absolute": probe.Same, "absolute-foreign": probe.Same, "host-foreign": probe.Same,
			"destination": probe.Same, "destination-path": probe.Same, "destination-escape": probe.Same, "destination-slash": probe.Same,
			"destination-dot": probe.Same, "destination-move": probe.Same,
		}, map[string]string{"cut-fin": "the object is intact", "cut-reset": "the object is intact", "delete-folder": "the objects below stay"}},
		{"lighttpd", "/usr/sbin/lighttpd", lighttpdConfig, map[string]probe.Verdict{
			"dot": probe.Same, "dotdot": probe.Same, "encoded-dot": probe.Same, "encoded-dotdot": probe.Same, "encoded-climb": probe.Same,
			"empty": probe.Same, "trailing-slash": probe.Refused, "encoded-slash": probe.Same, "escape": probe.Same, "hex-case": probe.Same,
			"params": probe.Other, "query": probe.Same, "case": probe.Other, "nfd": probe.Other, "double": probe.Other, "plus": probe.Other,
			"absolute": probe.Same, "absolute-foreign": probe.Same, "host-foreign": probe.Same, "destination": probe.Same,
			"destination-escape": probe.Same, "destination-slash": probe.Same, "destination-dot": probe.Same, "destination-move": probe.Same,
		}, map[string]string{"cut-fin": "the object is intact", "cut-reset": "the object is intact", "delete-folder": "takes the objects below along"}},
		{"apache", "/usr/sbin/apache2", apacheConfig, map[string]probe.Verdict{
			"dot": probe.Same, "dotdot": probe.Same, "encoded-dot": probe.Same, "encoded-dotdot": probe.Same, "encoded-climb": probe.Refused,
			"empty": probe.Same, "trailing-slash": probe.Refused, "encoded-slash": probe.Refused, "escape": probe.Same, "hex-case": probe.Same,
			"params": probe.Other, "query": probe.Same, "case": probe.Other, "nfd": probe.Other, "double": probe.Other, "plus": probe.Other,
			"absolute": probe.Same, "absolute-foreign": probe.Same, "host-foreign": probe.Same, "destination": probe.Same,
			"destination-path": probe.Refused, "destination-escape": probe.Same, "destination-dot": probe.Same, "destination-foreign": probe.Same,
			"destination-move": probe.Same,
		}, map[string]string{
			"cut-fin": "the object is intact", "cut-reset": "the object is intact", "if-none-match": "honoured", "if-match": "honoured",
			"partial-put": "written into the object",
		}},
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
			report := run(t, "http://"+addr+"/files", probe.Patient)
			expect(t, report, s.verdicts, s.checks)
			if report.Dialect != "webdav" {
				t.Errorf("dialect %s; want webdav", report.Dialect)
			}
			left, err := os.ReadDir(filepath.Join(dir, "root", "files"))
			if err != nil || len(left) > 0 {
				t.Errorf("left on disk: %v, %v; want nothing", left, err)
			}
		})
	}
}

// TestFakeS3 probes gofakes3, whose keys are flat.
func TestFakeS3(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	defer server.Close()
	report := run(t, server.URL+"/bucket")
	expect(t, report, map[string]probe.Verdict{
		"dot": probe.Other, "dotdot": probe.Other, "encoded-dot": probe.Other, "empty": probe.Other, "trailing-slash": probe.Other,
		"encoded-slash": probe.Same, "escape": probe.Same, "params": probe.Other, "query": probe.Same, "case": probe.Other,
		"absolute": probe.Same, "absolute-foreign": probe.Same, "host-foreign": probe.Same,
	}, map[string]string{"copy": "not tried", "if-none-match": "honoured", "if-match": "honoured", "cut-fin": "the object is intact", "delete-folder": "the objects below stay"})
	if report.Dialect != "s3" || len(report.Settings) > 0 {
		t.Errorf("dialect %s, settings %v; want s3 with its defaults", report.Dialect, report.Settings)
	}
	objects, err := backend.ListBucket("bucket", nil, gofakes3.ListBucketPage{})
	if err != nil || len(objects.Contents) > 0 {
		t.Errorf("left in the bucket: %v, %v; want nothing", objects, err)
	}
	if report.Warnings == nil || !strings.Contains(strings.Join(report.Evidence, "\n"), "x-amz-request-id") {
		t.Errorf("evidence %q, warnings %q", report.Evidence, report.Warnings)
	}
}

func storeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fenceproxy-probe-*") // readable for the server's own user, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, sub := range []string{"", "root", "root/files", "tmp"} {
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
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // a signal is how it ends
		out.Close()
	})
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(out.Name())
			t.Fatalf("%s does not listen: %v\n%s", program, err, said)
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
