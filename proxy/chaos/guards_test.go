package chaos_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// guard is a piece of the product that keeps a promise, and how to take it out: in file, old becomes new. old must be there exactly once,
// so that code which moves makes the test fail instead of proving nothing.
type guard struct {
	name     string
	file     string
	old, new string
	only     string   // the faults that bring it out
	says     []string // what TestChaos must complain of, one of these; for the damage matrix, the row
	damage   bool     // the damage matrix of tokenstore finds it, not TestChaos
	power    bool     // power cuts find it, not TestChaos: the page cache survives kill -9
}

var allGuards = []guard{
	{
		name: "drain", file: "proxy/gate/wait.go",
		old: "\t\t\t\treturn obstacle{BusyInDoubt, f.until}, true\n\t\t\t}\n\t\t\treturn obstacle{reason: BusyInFlight}, true\n",
		new: "\t\t\t\treturn obstacle{BusyInDoubt, f.until}, true\n\t\t\t}\n", only: "pause,client-stop", says: []string{"order: "},
	},
	{
		name: "in-doubt hold", file: "proxy/gate/admission.go",
		old: "if hold <= 0 {", new: "if hold >= 0 {", only: "pause,store-drop", says: []string{"order: "},
	},
	{
		name: "startup rule", file: "cmd/fenceproxy/store.go",
		old: "if !s.store.UncleanStop() {", new: "if true {", only: "pause,kill-proxy-received", says: []string{"order: "},
	},
	{
		// The gate takes the mark for durable at once, and the store gets it a moment later, as one would that syncs every now and then.
		name: "sync before forward", file: "proxy/gate/advance.go",
		old:  "\terr := g.store.Advance(ms)\n\tg.mu.Lock()\n",
		new:  "\tvar err error\n\ttime.AfterFunc(20*time.Millisecond, func() { _ = g.store.Advance(ms) })\n\tg.mu.Lock()\n",
		only: "pause,kill-proxy-received", says: []string{"mark: ", "order: "},
	},
	{
		name: "SEQ check", file: "tokenstore/guards.go",
		old: "if head.seq < acked {", new: "if false && head.seq < acked {", damage: true, says: []string{"log:_deleted"},
	},
	{
		name: "synced commits", file: "tokenstore/badger.go", old: "WithSyncWrites(true)", new: "WithSyncWrites(false)", power: true,
	},
	{
		name: "spool", file: "proxy/fence.go",
		old: "f.takeBody(req, x, d.Policy.Stream)", new: "f.takeBody(req, x, true)", only: "hangup,slow", says: []string{"cut: "},
	},
	{
		name: "no retry", file: "proxy/leg/client.go",
		old: "if reused && !sent && r.unread()", new: "if reused && r.unread()", only: "pause,store-drop,reset", says: []string{"twice: "},
	},
	{
		name: "detach from the client", file: "proxy/upstream.go",
		old: "\tif detach {\n\t\tctx = context.Background()\n\t}\n", new: "", only: "hangup", says: []string{"detach: "},
	},
}

// shortGuards are the two that the long mode of TestChaos takes along.
var shortGuards = []string{"drain", "spool"}

// TestChaosFindsMissingGuards builds the product without one of its guards at a time, and expects the other tests to notice.
func TestChaosFindsMissingGuards(t *testing.T) {
	chosen := strings.Split(*guards, ",")
	switch {
	case *guards == "" && *runFor == 0:
		t.Skip("it builds nine binaries: run it with -args -chaos.guards=all")
	case *guards == "" || *guards == "short":
		chosen = shortGuards
	}
	for _, g := range allGuards {
		if *guards == "all" || slices.Contains(chosen, g.name) {
			t.Run(g.name, func(t *testing.T) { g.mustBeMissed(t) })
		}
	}
}

// mustBeMissed takes the guard out and fails unless something complains.
func (g guard) mustBeMissed(t *testing.T) {
	overlay := g.overlay(t)
	if g.damage {
		g.damageFindsIt(t, overlay)
		return
	}
	path := filepath.Join(t.TempDir(), "fenceproxy")
	if err := buildProxy(path, false, "-overlay="+overlay); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if g.power {
		lost := powerCuts(t, path, 2)
		if len(lost) == 0 {
			t.Fatal("no power cut lost a mark")
		}
		t.Logf("found by the power cuts after %v: %d marks, %s", time.Since(began).Round(100*time.Millisecond), len(lost), lost[0])
		return
	}
	c := campaign{
		binary: path, seed: max(*seed, 1), only: g.only, active: 2200 * time.Millisecond, until: began.Add(3 * time.Minute),
		logf: t.Logf, dir: t.TempDir, quiet: true,
	}
	err := c.run()
	took := time.Since(began).Round(100 * time.Millisecond)
	if err == nil {
		t.Fatalf("nothing was noticed in %v: %v", took, &c)
	}
	lines := strings.Split(err.Error(), "\n")
	for _, says := range g.says {
		for _, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), says) {
				t.Logf("found by %s, with -chaos.only=%s, after %v: %s", lines[0][:strings.Index(lines[0], ":")], g.only, took, strings.TrimSpace(line))
				return
			}
		}
	}
	t.Errorf("what was noticed is something else than %q:\n%v", g.says, err)
}

// overlay writes what go build -overlay wants: the altered file beside the original.
func (g guard) overlay(t *testing.T) (path string) {
	t.Helper()
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(root)), filepath.FromSlash(g.file))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), g.old); n != 1 {
		t.Fatalf("%s holds %q %d times; want once: the code has moved, so say anew how to take this guard out", g.file, g.old, n)
	}
	dir := t.TempDir()
	altered, list := filepath.Join(dir, "altered.go"), filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{file: altered}})
	if err != nil {
		t.Fatal(err)
	}
	code := strings.Replace(string(text), g.old, g.new, 1)
	for name, content := range map[string][]byte{altered: []byte(code), list: b} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// damageFindsIt runs the damage matrix of the token store on the altered code.
func (g guard) damageFindsIt(t *testing.T, overlay string) {
	began := time.Now()
	out, err := exec.Command("go", "test", "-overlay="+overlay, "-count=1", "-run=TestDamageIsHarmlessOrRefused", "github.com/fenceproxy/fenceproxy/tokenstore").CombinedOutput()
	want := "--- FAIL: TestDamageIsHarmlessOrRefused/" + g.says[0]
	if err == nil || !strings.Contains(string(out), want) {
		t.Fatalf("the damage matrix does not notice (%v); want %q:\n%s", err, want, out)
	}
	t.Logf("found by %d rows of the damage matrix, after %v", strings.Count(string(out), "--- FAIL: TestDamageIsHarmlessOrRefused/"), time.Since(began).Round(100*time.Millisecond))
}
