package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestS3RefusesTheStaleWriter(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "curl", "openssl", "aws")
	store := versity(t, "rides")
	r := before(t, "s3/fenceproxy.yaml", store.url)
	long := strings.Repeat("driver B\n", 1_000_000) // longer than one part
	if err := os.WriteFile(filepath.Join(r.dir, "big.bin"), []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	samePlay(t, "s3", demoOf(t, "s3", r))
	if got, ok := store.read("rides/big"); !ok || got != long {
		t.Errorf("the store has %d bytes of big.bin, %t; want %d", len(got), ok, len(long))
	}
	store.holdsNot(t, "rides/7") // deleted with 35
	store.holdsNot(t, "rides/8")
	got := r.outcomes(t, "rides/big")
	if len(got) < 5 || got[len(got)-1] != "stale 33" || slices.ContainsFunc(got[:len(got)-1], func(o string) bool { return o != "admitted 34" }) {
		t.Errorf("the proxy saw %q; want creation, parts and completion with 34, then one attempt with 33", got)
	}
}

// TestS3UploadOfThePausedWriterIsNotCompleted: created with 33, completed after 34 wrote.
func TestS3UploadOfThePausedWriterIsNotCompleted(t *testing.T) {
	t.Parallel()
	needs(t, "curl")
	store := versity(t, "rides")
	r := before(t, "s3/fenceproxy.yaml", store.url)
	curl := func(want string, args ...string) string {
		t.Helper()
		out, err := exec.Command("curl", append([]string{"-sS", "-i", "-K", "s3/s3.curl"}, args...)...).CombinedOutput()
		if err != nil || !regexp.MustCompile(want).Match(out) {
			t.Fatalf("curl %q: %v\n%s\nwant %s in it", args, err, out, want)
		}
		return string(out)
	}
	created := curl("200 OK", "-X", "POST", "-H", "Fencing-Token: 33", r.proxy+"/rides/7?uploads=")
	id := regexp.MustCompile(`<UploadId>([^<]+)</UploadId>`).FindStringSubmatch(created)
	if id == nil {
		t.Fatalf("no upload id in\n%s", created)
	}
	part := curl("200 OK", "-X", "PUT", "-d", "driver A", r.proxy+"/rides/7?partNumber=1&uploadId="+id[1])
	etag := regexp.MustCompile(`(?i)etag: "?([0-9a-f]+)"?`).FindStringSubmatch(part)
	if etag == nil {
		t.Fatalf("no ETag in\n%s", part)
	}
	curl("200 OK", "-X", "PUT", "-H", "Fencing-Token: 34", "-d", "driver B", r.proxy+"/rides/7")
	complete := fmt.Sprintf(`<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"%s"</ETag></Part></CompleteMultipartUpload>`, etag[1])
	curl("(?s)412 Precondition Failed.*"+isStale, "-X", "POST", "-d", complete, r.proxy+"/rides/7?uploadId="+id[1])
	store.holds(t, "rides/7", "driver B")
}
