package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

// bucketsYAML makes one resource of each bucket, so that whatever an S3 client does can be fenced. Paths are read as versitygw reads them.
const bucketsYAML = `
defaults: {dialect: s3, mode: MODE, identity: {dot_segments: resolve, empty_segments: collapse}}
policies: [{name: buckets, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}"}]
`

// keysYAML fences keys one by one, and buckets as such, and keeps to what the dialect says of paths.
const keysYAML = `
defaults: {dialect: s3, mode: MODE}
policies:
  - {name: buckets, match: {path: "/{bucket}"}, resource: "bucket:{bucket}"}
  - {name: objects, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}"}
`

// TestVersitygw runs the suite that versitygw brings along. It tries 765 things, and half of them are errors.
func TestVersitygw(t *testing.T) {
	optIn(t)
	direct := versitygw(t, directly, "")
	for _, tt := range []struct {
		name, policies string
		way            way
		known          []string // reasons for tests that differ
	}{
		{"observe", bucketsYAML, proxied[0], []string{"above"}},
		{"enforce", bucketsYAML, proxied[2], []string{"backslash", "above", "service", "batch"}},
		{"enforce by key", keysYAML, proxied[2], []string{"backslash", "above", "service", "batch", "dots", "form"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, line := range diff(direct, versitygw(t, tt.way, tt.policies)) {
				if why := known(line, append(tt.known, "flake")); why != "" {
					t.Logf("%s (%s)", line, why)
				} else {
					t.Error(line)
				}
			}
		})
	}
}

// differences are why a test may have another verdict behind the proxy, and which tests. proxy/README.md lists them.
var differences = map[string]struct {
	why   string
	tests *regexp.Regexp
}{
	"flake":     {"has no stable verdict directly either: uploads of the same second have no order", regexp.MustCompile(`^ListMultipartUploads_keyMarker_not_from_list$`)},
	"backslash": {"a backslash in a path is always refused", regexp.MustCompile(`^PutObject_(special_chars|false_negative_object_names)$`)},
	"above":     {"400 both ways, with the code InvalidArgument in place of the store's: the path climbs out of the bucket", regexp.MustCompile(`^PutObject_invalid_object_names$`)},
	"service":   {"a write that names no bucket is 403 unfenceable before the store can say 405", regexp.MustCompile(`^RouterPostRoot$`)},
	"batch":     {"DeleteObjects without a key is refused, as Amazon does; the store takes it for nothing to do", regexp.MustCompile(`^DeleteObjects_empty_input$`)},
	"dots":      {"a spelling that the dialect takes for ambiguous is 400 before the store can refuse it for another reason", regexp.MustCompile(`^(AccessControl_policy_normalizes_object_key_for_get_put_delete|Server_large_http_header)$`)},
	"form":      {"uploads by form, and other writes that name their object nowhere in head and path, need one resource for the bucket", regexp.MustCompile(`^(PostObject_\w+|RouterCopySourceNotAllowed)$`)},
}

// known returns why the test that a line is about may differ, or "".
func known(line string, reasons []string) string {
	name, _, _ := strings.Cut(line, ":")
	name, _, _ = strings.Cut(name, " ") // without the number of its run
	for _, r := range reasons {
		if d := differences[r]; d.tests.MatchString(name) {
			return d.why
		}
	}
	return ""
}

// A verdict names its test. Some tests run twice.
var versitygwLine = regexp.MustCompile(`(?m)^(?:\x1b\[[0-9;]*m)*(PASS|FAIL|SKIP)(?:\x1b\[[0-9;]*m|\s)+(\w+)`)

// versitygw runs the suite against an empty store, reached in the given way.
func versitygw(t *testing.T, w way, policies string) results {
	t.Helper()
	store := storetest.Versitygw(t)
	at, log := w.open(t, store.Addr, policies)
	program, err := exec.LookPath("versitygw")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // the suite looks for the program in its directory
	if err := os.Symlink(program, filepath.Join(dir, "versitygw")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("./versitygw", "test", "-a", storetest.AccessKey, "-s", storetest.SecretKey, "-e", "http://"+at, "full-flow", "--vs")
	cmd.Dir = dir
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "AWS_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	out, err := cmd.CombinedOutput() // it fails if a test does
	got, times := results{}, map[string]int{}
	for _, m := range versitygwLine.FindAllStringSubmatch(string(out), -1) {
		name := m[2]
		if times[name]++; times[name] > 1 {
			name += fmt.Sprintf(" (%d)", times[name])
		}
		got[name] = strings.ToLower(m[1])
	}
	keep(t, "versitygw-"+w.name, out, log())
	if len(got) < 100 {
		t.Fatalf("%s: %d results, %v\n%.4000s", w.name, len(got), err, out)
	}
	t.Logf("%s: %s", w.name, got.count())
	return got
}

// keep writes what a suite and the proxy said to the directory FENCEPROXY_CONFORMANCE_DIR, if there is one.
func keep(t *testing.T, name string, out []byte, log string) {
	t.Helper()
	dir := os.Getenv("FENCEPROXY_CONFORMANCE_DIR")
	if dir == "" {
		return
	}
	name = filepath.Join(dir, strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(t.Name()+"-"+name))
	for suffix, b := range map[string][]byte{".out": out, ".log": []byte(log)} {
		if len(b) == 0 {
			continue
		}
		if err := os.WriteFile(name+suffix, b, 0o644); err != nil {
			t.Error(err)
		}
	}
}
