package examples

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	isStale   = "The fencing token is stale"
	isMissing = "The fencing token is missing"
)

// snippet is a client and how its snippet is run.
type snippet struct {
	name  string
	argv  func(*testing.T) []string
	hop   bool                    // it goes through clients/hop.cfg, at least for some requests
	reads string                  // what the person reads of a stale token, if not its title
	more  func(*testing.T, *play) // what else it has to do
}

// play is a client at work before a store.
type play struct {
	snippet
	client  carrying
	store   kept
	proxy   *rig
	objects string // bucket, collection or database
}

func script(name string, programs ...string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		needs(t, programs...)
		return []string{absolute(t, "clients/"+name)}
	}
}

func absolute(t *testing.T, name string) string {
	t.Helper()
	p, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// awsCLI finds an aws cli by its version, among all that are in PATH.
func awsCLI(t *testing.T, version, what string) string {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		file := filepath.Join(dir, "aws")
		if out, err := exec.Command(file, "--version").CombinedOutput(); err == nil && regexp.MustCompile(version).Match(out) {
			return file
		}
	}
	if version == newAWS {
		notPackaged(t, "there is no "+what)
	}
	absent(t, "there is no "+what)
	return ""
}

func withAWS(snippet, version, what string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		return []string{"env", "AWS=" + awsCLI(t, version, what), absolute(t, "clients/"+snippet)}
	}
}

// debianPython is the one for which Debian packages boto3.
const debianPython = "/usr/bin/python3"

func withPython(python string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		if out, err := exec.Command(python, "-c", "import boto3").CombinedOutput(); err != nil {
			if python != debianPython {
				notPackaged(t, fmt.Sprintf("%s has no boto3", python))
			}
			absent(t, fmt.Sprintf("%s has no boto3: %s", python, out))
		}
		return []string{python, absolute(t, "clients/boto3_client.py")}
	}
}

// goClients are built once. Where nothing may be missing their modules are fetched; else they have to be at hand.
var goClients struct {
	once sync.Once
	dir  string
	out  []byte
	err  error
}

func goClient(name string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		program(t, "fenceproxy") // made programs.dir
		goClients.once.Do(func() {
			goClients.dir = filepath.Join(programs.dir, "go")
			cmd := exec.Command("go", "build", "-o", goClients.dir+"/", "./...")
			cmd.Dir = "clients/go"
			cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly")
			if os.Getenv("FENCEPROXY_NO_SKIP") != "1" {
				cmd.Env = append(cmd.Env, "GOPROXY=off")
			}
			goClients.out, goClients.err = cmd.CombinedOutput()
		})
		if goClients.err != nil {
			absent(t, fmt.Sprintf("the clients in Go cannot be built (go mod download in examples/clients/go): %v\n%s", goClients.err, goClients.out))
		}
		return []string{filepath.Join(goClients.dir, name)}
	}
}

const (
	newAWS = `aws-cli/(1\.(3[2-9]|[4-9]\d)|2\.(1[5-9]|[2-9]\d))\.`
	anyAWS = `aws-cli/2\.`
)

// TestClientsCarryTheToken runs each snippet with the real client before a real store: upload, download, copy and delete with the token of
// the lease, then a stale upload. The person can read why, and the client tries no more often than with any other final error.
func TestClientsCarryTheToken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every client several times")
	}
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		snippets := []snippet{
			{name: "curl", argv: script("curl.sh", "sh", "curl")},
			{name: "awscli", argv: withAWS("awscli.sh", newAWS, "aws cli that knows AWS_SDK_UA_APP_ID")},
			{name: "awscli-plugin", argv: withAWS("awscli-plugin.sh", anyAWS, "aws cli 2")},
			{name: "boto3", argv: withPython(debianPython), more: boto3More},
			{name: "boto3-in-path", argv: withPython("python3"), more: boto3More},
			{name: "aws-sdk-go-v2", argv: goClient("awssdk")},
			{name: "minio-go", argv: goClient("minio")},
			{name: "s3cmd", argv: script("s3cmd.sh", "sh", "s3cmd"), hop: true, more: s3cmdMore},
			{name: "rclone", argv: script("rclone.sh", "sh", "rclone"), more: rcloneMore},
		}
		var names []string
		for _, s := range snippets {
			names = append(names, s.name)
		}
		store := versity(t, names...)
		proxy := before(t, "clients/fenceproxy.yaml", store.url)
		for _, s := range snippets {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				p := &play{snippet: s, store: store, proxy: proxy, objects: s.name}
				p.story(t, "driver B\n", "late driver A\n") // rclone goes by size and time, and would skip a file that has both
			})
		}
	})
	t.Run("webdav", func(t *testing.T) {
		t.Parallel()
		store := nginxFiles(t)
		p := &play{store: store, proxy: before(t, "clients/webdav.yaml", store.url), objects: "rides"}
		// cadaver shows the status line, in which the hop says it.
		p.snippet = snippet{name: "cadaver", argv: script("cadaver.sh", "sh", "cadaver"), hop: true, reads: "412 The fencing token is stale"}
		p.story(t, "driver B\n", "late driver A\n")
	})
	t.Run("couchdb", func(t *testing.T) {
		t.Parallel()
		store := pouch(t)
		modules := os.Getenv("NODE_PATH")
		if modules == "" {
			out, err := exec.Command("npm", "root", "-g").Output()
			if err != nil {
				absent(t, "npm cannot say where it keeps modules")
			}
			modules = strings.TrimSpace(string(out))
		}
		for _, m := range []string{"pouchdb-core", "pouchdb-adapter-http"} {
			if _, err := os.Stat(filepath.Join(modules, m)); err != nil {
				absent(t, m+" is not installed (npm install -g)")
			}
		}
		p := &play{store: store, proxy: before(t, "clients/couchdb.yaml", store.url), objects: "rides"}
		p.snippet = snippet{name: "pouchdb", argv: func(t *testing.T) []string {
			return []string{"env", "NODE_PATH=" + modules, "node", absolute(t, "clients/pouchdb.mjs")}
		}}
		p.story(t, `{"driver":"B"}`+"\n", `{"driver":"A"}`+"\n")
	})
}

func (p *play) story(t *testing.T, held, late string) {
	hops := map[string]string{}
	p.client = carrying{argv: p.argv(t), dir: t.TempDir(), at: func(token string) []string {
		return []string{"PROXY=" + p.proxy.proxy, "HOP=" + hops[token]}
	}}
	if p.hop {
		for _, token := range []string{"33", "34"} {
			hops[token] = hop(t, token, p.proxy.proxy)
		}
	}
	if p.reads == "" {
		p.reads = isStale
	}
	ride, other := p.objects+"/ride", p.objects+"/ride-copy"
	p.client.file(t, "ride", held)
	p.client.file(t, "late", late)

	p.client.must(t, "34", "upload", "ride", ride)
	p.store.holds(t, ride, held)
	p.client.must(t, "34", "download", ride, "back")
	if got, err := os.ReadFile(filepath.Join(p.client.dir, "back")); err != nil || string(got) != held {
		t.Errorf("download has %q, %v; want %q", got, err, held)
	}
	p.client.must(t, "34", "copy", ride, other)
	p.store.holds(t, other, held)
	p.client.must(t, "34", "delete", other)
	p.store.holdsNot(t, other)
	if got := p.proxy.outcomes(t, ride); !slices.Equal(got, []string{"admitted 34"}) {
		t.Errorf("the proxy saw the writes %q to %s; want one with 34", got, ride)
	}
	if got := p.proxy.outcomes(t, other); !slices.Equal(got, []string{"admitted 34", "admitted 34"}) {
		t.Errorf("the proxy saw the writes %q to %s; want the copy and its deletion, with 34", got, other)
	}

	said := p.client.refused(t, p.reads, "33", "upload", "late", ride)
	p.store.holds(t, ride, held)
	tries := p.proxy.outcomes(t, ride)[1:]
	for _, o := range tries {
		if o != "stale 33" {
			t.Errorf("the stale upload had the outcome %q", o)
		}
	}

	// How often does the client try when the store itself refuses?
	elsewhere := p.client
	other403, forbidden := forbidding(t, p.store)
	elsewhere.at = func(token string) []string { return []string{"PROXY=" + other403, "HOP=" + other403} }
	elsewhere.refused(t, "", "34", "upload", "late", ride)
	if n := forbidden.Load(); len(tries) == 0 || int64(len(tries)) > n {
		t.Errorf("the client made %d attempts with a stale token and %d when it was forbidden", len(tries), n)
	}
	t.Logf("%d attempts with a stale token, %d at a 403 of the store. It says:\n%s", len(tries), forbidden.Load(), said)
	if p.more != nil {
		p.more(t, p)
	}
}

// boto3More: metadata comes back as it was written, and presigned URLs carry the token under their signature.
func boto3More(t *testing.T, p *play) {
	if got := p.client.must(t, "34", "metadata", p.objects+"/ride"); strings.TrimSpace(got) != "{'owner': 'driver-a'}" {
		t.Errorf("the metadata came back as %s", got)
	}
	put := func(url, want string, header ...string) {
		t.Helper()
		args := []string{"-s", "-o", "/dev/null", "-w", "%{http_code}", "-T", filepath.Join(p.client.dir, "ride")}
		for _, h := range header {
			args = append(args, "-H", h)
		}
		out, err := exec.Command("curl", append(args, url)...).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("PUT %s %q was answered %s, %v; want %s", url, header, out, err, want)
		}
	}
	object := p.objects + "/presigned"
	inHeader := strings.TrimSpace(p.client.must(t, "34", "presign", "header", object))
	put(inHeader, "200", "Fencing-Token: 34")
	put(inHeader, "428")
	put(inHeader, "403", "Fencing-Token: 99") // the signature covers it, and the store's 403 takes the mark back
	put(inHeader, "200", "Fencing-Token: 34")
	inQuery := strings.TrimSpace(p.client.must(t, "35", "presign", "query", object))
	put(inQuery, "200")
	put(inQuery, "400", "Fencing-Token: 36") // two tokens
	put(strings.Replace(inQuery, "fencing-token=35", "fencing-token=99", 1), "403")
	put(inHeader, "412", "Fencing-Token: 34")
	put(strings.Replace(inQuery, "fencing-token=35&", "", 1), "400", "Fencing-Token: 36") // covers no token: refused by the proxy
	want := []string{"admitted 34", "missing", "admitted 99", "admitted 34", "admitted 35", "malformed", "admitted 99", "stale 34", "malformed"}
	if got := p.proxy.outcomes(t, object); !slices.Equal(got, want) {
		t.Errorf("the proxy saw %q; want %q", got, want)
	}
}

// s3cmdMore: the trap of s3cmd, and parts without a token.
func s3cmdMore(t *testing.T, p *play) {
	straight := p.client
	straight.at = func(string) []string { return []string{"PROXY=" + p.proxy.proxy, "HOP=" + p.proxy.proxy} }
	straight.refused(t, isMissing, "34", "delete", p.objects+"/ride") // --add-header is not on DELETE
	p.store.holds(t, p.objects+"/ride", "driver B\n")

	long := strings.Repeat("driver B\n", 2<<20) // 18 MiB: two parts
	p.client.file(t, "long", long)
	p.client.must(t, "34", "upload", "long", p.objects+"/long")
	if got, ok := p.store.read(p.objects + "/long"); !ok || got != long {
		t.Errorf("the store has %d bytes of the multipart upload, %t; want %d", len(got), ok, len(long))
	}
	if got := p.proxy.outcomes(t, p.objects+"/long"); len(got) != 4 || slices.ContainsFunc(got, func(o string) bool { return o != "admitted 34" }) {
		t.Errorf("the proxy saw %q; want creation, two parts and completion, with 34", got)
	}
	p.client.refused(t, isStale, "33", "upload", "long", p.objects+"/long")
}

// rcloneMore: --header-upload looks as if it sent the token.
func rcloneMore(t *testing.T, p *play) {
	trap := p.client
	trap.argv = []string{"rclone", "--config", "", "--s3-provider=Other", "--s3-env-auth", "--s3-region=us-east-1", "--s3-no-check-bucket", "--s3-endpoint=" + p.proxy.proxy}
	out := trap.refused(t, isMissing, "35", "copyto", "--header-upload", "Fencing-Token: 35", "late", ":s3:"+p.objects+"/ride")
	if !strings.Contains(out, "Don't know how to set key") {
		t.Logf("rclone no longer says that it drops the header:\n%s", out)
	}
	p.store.holds(t, p.objects+"/ride", "driver B\n")
}

// TestOldClientsThatDropTheTokenAreRefused: an aws cli that does not know AWS_SDK_UA_APP_ID says nothing, and its write is refused.
func TestOldClientsThatDropTheTokenAreRefused(t *testing.T) {
	const old = `aws-cli/2\.([0-9]|1[0-3])\.`
	found := false
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		out, err := exec.Command(filepath.Join(dir, "aws"), "--version").CombinedOutput()
		found = found || err == nil && regexp.MustCompile(old).Match(out)
	}
	if !found {
		absent(t, "there is no old aws cli to try it with")
	}
	t.Parallel()
	store := versity(t, "rides")
	proxy := before(t, "clients/fenceproxy.yaml", store.url)
	c := carrying{argv: withAWS("awscli.sh", old, "old aws cli")(t), dir: t.TempDir(), at: func(string) []string { return []string{"PROXY=" + proxy.proxy} }}
	c.file(t, "ride", "driver A\n")
	c.refused(t, isMissing, "34", "upload", "ride", "rides/ride")
	store.holdsNot(t, "rides/ride")
}

// TestSignaturesStayWhole: whatever the key looks like, what a client signs is what the store sees. A token that is changed on the way is
// refused by the store, and does not count.
func TestSignaturesStayWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("starts clients many times")
	}
	t.Parallel()
	store := versity(t, "keys")
	proxy := before(t, "clients/fenceproxy.yaml", store.url)
	at := func(url string) func(string) []string {
		return func(string) []string { return []string{"PROXY=" + url} }
	}
	for name, argv := range map[string]func(*testing.T) []string{
		"boto3": withPython(debianPython), "aws-sdk-go-v2": goClient("awssdk"), "minio-go": goClient("minio"),
	} {
		t.Run(name, func(t *testing.T) {
			c := carrying{argv: argv(t), dir: t.TempDir(), at: at(proxy.proxy)}
			for i, key := range []string{"a b+c", "ü/é", "100%", "a%2Fb", "~!$&'()*,;=:@", "q?x=1#y", "[x]", ".hidden", "a/.../b"} {
				text := fmt.Sprintf("%s %d\n", name, i)
				c.file(t, "f", text)
				c.must(t, "34", "upload", "f", "keys/"+name+key)
				store.holds(t, "keys/"+name+key, text)
				if name == "boto3" && i > 1 {
					continue // it takes long to start
				}
				c.must(t, "34", "download", "keys/"+name+key, "back")
				if got, err := os.ReadFile(filepath.Join(c.dir, "back")); err != nil || string(got) != text {
					t.Errorf("%s came back as %q, %v; want %q", key, got, err, text)
				}
			}
			if name == "minio-go" {
				return // signs before the token is there
			}
			changed := c
			changed.at = at(between(t, proxy.proxy, "", func(r *http.Request) int {
				r.Header.Set("Fencing-Token", "99")
				return 0
			}))
			changed.refused(t, "SignatureDoesNotMatch", "34", "upload", "f", "keys/"+name+"altered")
			store.holdsNot(t, "keys/"+name+"altered")
			c.must(t, "34", "upload", "f", "keys/"+name+"altered") // 99 did not count
		})
	}
}

func TestClientsDemo(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "curl")
	store := versity(t, "rides")
	r := before(t, "clients/fenceproxy.yaml", store.url)
	samePlay(t, "clients", demoOf(t, "clients", r))
	store.holds(t, "rides/7", "driver B\n")
}

// demoOf runs demo.sh of a copy of an example and returns its output without the comments.
func demoOf(t *testing.T, example string, r *rig) string {
	t.Helper()
	if err := os.CopyFS(r.dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "./demo.sh")
	cmd.Dir = r.dir
	cmd.Env = clean("PROXY="+r.proxy, "STORE="+r.store, "ADMIN="+r.admin)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("demo.sh: %v\n%s\n%s\nthe proxy's log:\n%s", err, out, &errs, r.log)
	}
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "# ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// samePlay compares what demo.sh printed with all that the README shows, but for fenceproxy's own commands.
func samePlay(t *testing.T, example, got string) {
	t.Helper()
	var want strings.Builder
	for _, s := range transcripts(t, example) {
		if !strings.HasPrefix(s.command, "fenceproxy ") {
			want.WriteString("$ " + s.command + "\n" + s.output)
		}
	}
	if got != want.String() {
		t.Errorf("demo.sh printed\n%s\nand %s/README.md shows\n%s", got, example, &want)
	}
}

func TestEveryClientOfThePageIsRun(t *testing.T) {
	page, err := os.ReadFile("clients/README.md")
	if err != nil {
		t.Fatal(err)
	}
	test, err := os.ReadFile("clients_test.go")
	if err != nil {
		t.Fatal(err)
	}
	snippets := 0
	for _, pattern := range []string{"clients/*.sh", "clients/*.py", "clients/*.mjs", "clients/go/*/main.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			f = strings.TrimPrefix(f, "clients/")
			if f == "demo.sh" {
				continue
			}
			snippets++
			if !strings.Contains(string(page), "]("+f+")") {
				t.Errorf("clients/README.md does not list %s", f)
			}
			if base := strings.TrimSuffix(strings.TrimPrefix(f, "go/"), "/main.go"); !strings.Contains(string(test), `"`+base+`"`) && !strings.Contains(string(test), "clients/"+base+`"`) {
				t.Errorf("no test runs %s", f)
			}
		}
	}
	if snippets < 10 {
		t.Errorf("found %d snippets", snippets)
	}
}
