package conformance_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

// filesYAML fences each file, and each collection with all that lies beneath.
const filesYAML = `
defaults: {dialect: webdav, collections: subtree, mode: MODE}
policies: [{name: files, match: {path: "/{rest...}"}, resource: "{path}"}]
`

// TestLitmus runs the WebDAV suite against servers that people run.
func TestLitmus(t *testing.T) {
	if testing.Short() {
		t.Skip("runs twelve times a suite")
	}
	storetest.Program(t, "litmus")
	for _, s := range []struct {
		name  string
		start func(testing.TB) *storetest.Store
	}{
		{"apache", storetest.Apache}, {"lighttpd", storetest.Lighttpd}, {"nginx", storetest.Nginx},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			direct := litmus(t, s.start(t), directly)
			for _, w := range proxied {
				t.Run(w.name, func(t *testing.T) {
					var lines []string
					for range 2 { // once more where they differ: a suite on a busy machine may stumble
						if lines = diff(direct, litmus(t, s.start(t), w)); len(lines) == 0 {
							return
						}
					}
					t.Errorf("what differs:\n%s", strings.Join(lines, "\n"))
				})
			}
		})
	}
}

// A test is announced, overwritten by its announcement and its verdict, and its warnings stand in between, in lines of their own.
var (
	litmusSuite   = regexp.MustCompile("^-> running `([a-z]+)':$")
	litmusTest    = regexp.MustCompile(`^ ?([0-9]+\. [a-z0-9_]+)`)
	litmusVerdict = regexp.MustCompile(`[. ](pass|FAIL|SKIPPED)(?: \(.*)?$`)
)

// litmus runs the suite against a fresh store, reached in the given way.
func litmus(t *testing.T, store *storetest.Store, w way) results {
	t.Helper()
	at, log := w.open(t, store.Addr, filesYAML)
	cmd := exec.Command("litmus", "-k", "http://"+at+"/")
	cmd.Dir = t.TempDir() // for its debug.log
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("litmus: %v\n%s", err, out)
	}
	keep(t, "litmus-"+w.name, out, log())
	got, suites, suite, test := results{}, 0, "", ""
	for _, line := range strings.FieldsFunc(string(out), func(c rune) bool { return c == '\r' || c == '\n' }) {
		if m := litmusSuite.FindStringSubmatch(line); m != nil {
			suite, suites = m[1], suites+1
		}
		if m := litmusTest.FindStringSubmatch(line); m != nil {
			test = suite + " " + m[1]
		}
		if m := litmusVerdict.FindStringSubmatch(line); m != nil && test != "" {
			got[test] = m[1]
		}
	}
	if suites != 5 || len(got) < 30 {
		t.Fatalf("%d suites and %d results\n%s", suites, len(got), out)
	}
	t.Logf("%s: %s", w.name, got.count())
	return got
}
