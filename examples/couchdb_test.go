package examples

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pouchdbServer finds PouchDB Server, in POUCHDB_SERVER, in PATH or where couchdb/README.md installs it, and the modules that it brings along.
// Of all that the tests use it takes longest to install, so its absence is a skip even where nothing else may be missing.
func pouchdbServer(t *testing.T) (program, modules string) {
	t.Helper()
	needs(t, "node")
	for _, name := range []string{os.Getenv("POUCHDB_SERVER"), "pouchdb-server", absolute(t, "couchdb/node_modules/.bin/pouchdb-server")} {
		if name == "" {
			continue
		}
		found, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(found)
		if err != nil {
			t.Fatal(err)
		}
		pkg := filepath.Dir(filepath.Dir(real)) // node_modules/pouchdb-server/bin/pouchdb-server
		for _, dir := range []string{filepath.Join(pkg, "node_modules"), filepath.Dir(pkg)} {
			if _, err := os.Stat(filepath.Join(dir, "pouchdb-replication")); err == nil {
				return found, dir
			}
		}
		t.Fatalf("%s does not have its modules beside it", found)
	}
	t.Skip("pouchdb-server is not installed (couchdb/README.md)")
	return "", ""
}

func TestCouchdbRefusesTheStaleWriter(t *testing.T) {
	t.Parallel()
	program, modules := pouchdbServer(t)
	addr := listenable(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	daemon(t, addr, nil, program, "--in-memory", "--no-stdout-logs", "--host", host, "--port", port)
	store := "http://" + addr
	put := func(path, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, store+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("PUT %s was answered %s", path, resp.Status)
		}
	}
	put("/rides", "")
	put("/phone", "")
	put("/phone/7", `{"driver":"A, offline"}`)
	r := before(t, "couchdb/fenceproxy.yaml", store)
	playsAsShown(t, "couchdb", r, "NODE_PATH="+modules)

	// B and the replication with 34: the document, its attachment, its other branch. The late write, the late attachment, the late replication.
	want := []string{"admitted 33", "admitted 34", "stale 33", "stale 33", "admitted 34", "stale 33", "admitted 34"}
	if got := r.outcomes(t, "rides/7"); !slices.Equal(got, want) {
		t.Errorf("the proxy saw %q on rides/7; want %q", got, want)
	}
	// The batch and the copy are in the log under the resource that refused them.
	if got, want := r.outcomes(t, "rides/8"), []string{"admitted 36", "stale 35", "stale 35"}; !slices.Equal(got, want) {
		t.Errorf("the proxy saw %q on rides/8; want %q", got, want)
	}
}
