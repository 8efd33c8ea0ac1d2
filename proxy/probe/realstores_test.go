package probe_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
	"github.com/fenceproxy/fenceproxy/proxy/probe"
)

// TestRealStores probes servers that people run. What they are expected to take for one object was found by hand before there was a probe.
// Where a server is not installed the test is skipped by name, or fails with FENCEPROXY_NO_SKIP=1.
func TestRealStores(t *testing.T) {
	for _, s := range []struct {
		name     string
		start    func(testing.TB) *storetest.Store
		verdicts map[string]probe.Verdict
		checks   map[string]string
	}{
		{"nginx", storetest.Nginx, map[string]probe.Verdict{
			"dot": probe.Same, "dotdot": probe.Same, "encoded-dot": probe.Same, "encoded-dotdot": probe.Same, "encoded-climb": probe.Same,
			"empty": probe.Same, "trailing-slash": probe.Refused, "encoded-slash": probe.Same, "escape": probe.Same, "hex-case": probe.Same,
			"params": probe.Other, "folder-params": probe.Other, "query": probe.Same, "case": probe.Other, "nfd": probe.Other, "double": probe.Other,
			"plus": probe.Other, "trailing-dot": probe.Other, "absolute": probe.Same, "absolute-foreign": probe.Same, "host-foreign": probe.Same,
			"destination": probe.Same, "destination-path": probe.Same, "destination-escape": probe.Same, "destination-slash": probe.Same,
			"destination-dot": probe.Same, "destination-move": probe.Same,
		}, map[string]string{"cut-fin": "the object is intact", "cut-reset": "the object is intact", "delete-folder": "the objects below stay"}},
		{"lighttpd", storetest.Lighttpd, map[string]probe.Verdict{
			"dot": probe.Same, "dotdot": probe.Same, "encoded-dot": probe.Same, "encoded-dotdot": probe.Same, "encoded-climb": probe.Same,
			"empty": probe.Same, "trailing-slash": probe.Refused, "encoded-slash": probe.Same, "escape": probe.Same, "hex-case": probe.Same,
			"params": probe.Other, "query": probe.Same, "case": probe.Other, "nfd": probe.Other, "double": probe.Other, "plus": probe.Other,
			"absolute": probe.Same, "absolute-foreign": probe.Same, "host-foreign": probe.Same, "destination": probe.Same,
			"destination-escape": probe.Same, "destination-slash": probe.Same, "destination-dot": probe.Same, "destination-move": probe.Same,
		}, map[string]string{"cut-fin": "the object is intact", "cut-reset": "the object is intact", "delete-folder": "takes the objects below along"}},
		{"apache", storetest.Apache, map[string]probe.Verdict{
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
			store := s.start(t)
			files := filepath.Join(store.Root, "files")
			if err := os.Mkdir(files, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(files, 0o777); err != nil { // for the server's own user
				t.Fatal(err)
			}
			report := run(t, store.URL+"/files", probe.Patient)
			expect(t, report, s.verdicts, s.checks)
			if report.Dialect != "webdav" {
				t.Errorf("dialect %s; want webdav", report.Dialect)
			}
			left, err := os.ReadDir(files)
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
