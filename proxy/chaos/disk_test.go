package chaos_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// bench is a proxy on a directory of the test's choice, before a store in this process.
type bench struct {
	t      *testing.T
	binary string
	dir    string // of the marks
	home   string // of all else
	store  *httptest.Server
	*process
	addr, admin string

	mu      sync.Mutex
	applied map[string]uint64 // what the store was made to apply
	acked   map[string]uint64 // what clients were told that it was applied
}

func newBench(t *testing.T, binary, dir string) *bench {
	t.Helper()
	b := &bench{t: t, binary: binary, dir: dir, home: t.TempDir(), applied: map[string]uint64{}, acked: map[string]uint64{}}
	if err := os.WriteFile(b.config(), []byte("token_store: {min_free: 64MiB}\nunmatched_writes: fence\ndefaults: {in_doubt_hold: 300ms}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.store = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			b.note(b.applied, r.URL.Path, r.Header.Get("Fencing-Token"))
		}
	}))
	t.Cleanup(func() {
		if b.process != nil {
			b.kill()
		}
		b.store.Close()
	})
	return b
}

func (b *bench) config() string { return filepath.Join(b.home, "fenceproxy.yaml") }

func (b *bench) note(in map[string]uint64, path, token string) {
	n, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		b.t.Errorf("the store got the token %q: %v", token, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	in[strings.TrimPrefix(path, "/")] = max(in[strings.TrimPrefix(path, "/")], n)
}

func (b *bench) copyOf(m map[string]uint64) map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(m)
}

// command returns the command line that serves on the directory.
func (b *bench) command(more ...string) *exec.Cmd {
	cmd := exec.Command(b.binary, append([]string{"serve", "--config", b.config(), "--upstream", b.store.URL, "--dir", b.dir, "--listen", "127.0.0.1:0",
		"--admin-listen", "127.0.0.1:0", "--log-level", "warn"}, more...)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "TMPDIR="+b.home)
	return cmd
}

// start starts the proxy. It returns an error if the proxy ends instead of serving.
func (b *bench) start(more ...string) error {
	b.t.Helper()
	at := make(chan [2]string, 1)
	p, err := start(b.command(more...), func(line string) {
		if f := strings.Fields(strings.ReplaceAll(line, ",", "")); len(f) == 10 && f[1] == "serving" {
			at <- [2]string{f[3], f[9]}
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	select {
	case a := <-at:
		b.process, b.addr, b.admin = p, a[0], a[1]
		return nil
	case <-p.ended:
		return fmt.Errorf("%w: %s", errors.Join(p.err, errors.New("it ended")), p.stderr())
	case <-time.After(30 * time.Second):
		p.kill()
		return errors.New("it neither serves nor ends")
	}
}

// put writes and returns the status, and 0 if there was no answer.
func (b *bench) put(resource string, token uint64) (code int, status string) {
	req, err := http.NewRequest(http.MethodPut, "http://"+b.addr+"/"+resource, strings.NewReader("body"))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Fencing-Token", fmt.Sprint(token))
	resp, err := benchClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode == http.StatusOK {
		b.note(b.acked, "/"+resource, fmt.Sprint(token))
	}
	return resp.StatusCode, resp.Header.Get("Fencing-Status")
}

var benchClient = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// want writes and checks the answer.
func (b *bench) want(resource string, token uint64, wantCode int, wantStatus string) {
	b.t.Helper()
	if code, status := b.put(resource, token); code != wantCode || status != wantStatus {
		b.t.Errorf("PUT %s with %d: got %d %s; want %d %s", resource, token, code, status, wantCode, wantStatus)
	}
}

// get returns the status of a GET from either listener.
func (b *bench) get(addr, path string) int {
	resp, err := benchClient.Get("http://" + addr + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// wantMarks compares the marks in a stopped proxy's directory with what was acknowledged and applied.
func (b *bench) wantMarks(dir string, atLeast map[string]uint64) {
	b.t.Helper()
	marks, err := exportMarks(b.binary, dir)
	if err != nil {
		b.t.Fatal(err)
	}
	for r, want := range atLeast {
		if marks[r] < want {
			b.t.Errorf("mark of %s: got %d; want at least %d", r, marks[r], want)
		}
	}
}

// pound has writers raise tokens until stop is set, and returns how many writes were refused with 507.
func (b *bench) pound(stop *atomic.Bool) (full *atomic.Int64, wait func()) {
	full = new(atomic.Int64)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := uint64(1); !stop.Load(); n++ {
				if code, _ := b.put(fmt.Sprintf("w%d-%d", w, n%8), 100+n); code == http.StatusInsufficientStorage {
					full.Add(1)
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	return full, writers.Wait
}

// mounted returns a directory on a small filesystem of its own: "ext4" on a loop device with the image file, or "tmpfs".
func mounted(t *testing.T, kind string, mib int, options string) (dir, image string) {
	t.Helper()
	needs(t, "root on Linux, to mount a filesystem", runtime.GOOS == "linux" && os.Geteuid() == 0)
	base := t.TempDir()
	dir, image = filepath.Join(base, "mnt"), filepath.Join(base, "image")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if kind == "tmpfs" {
		mount(t, dir, "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mib), "tmpfs")
		return dir, ""
	}
	_, err := exec.LookPath("mkfs.ext4")
	needs(t, "mkfs.ext4 (e2fsprogs)", err == nil)
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(int64(mib)<<20), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	mount(t, dir, "-o", "loop"+options, image)
	return dir, image
}

// mount mounts something on dir until the test ends.
func mount(t *testing.T, dir string, args ...string) {
	t.Helper()
	out, err := exec.Command("mount", append(args, dir)...).CombinedOutput()
	needs(t, fmt.Sprintf("to be allowed to mount (mount %v: %s)", args, strings.TrimSpace(string(out))), err == nil)
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			_ = exec.Command("umount", "-l", dir).Run()
			t.Errorf("umount: %v: %s", err, out)
		}
	})
}

func free(t *testing.T, dir string) int {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Bavail * uint64(st.Bsize) >> 20)
}

// TestFullDiskStopsNewMarksAndNothingElse fills the volume of the token store while writers raise tokens, to the last byte, and empties it
// again. Badger itself dies on a full volume; the proxy must not let it come to that.
func TestFullDiskStopsNewMarksAndNothingElse(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for _, kind := range []string{"ext4", "tmpfs"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, _ := mounted(t, kind, 160, "")
			b := newBench(t, proxyBinary(t), filepath.Join(dir, "marks"))
			if err := b.start(); err != nil {
				t.Fatal(err)
			}
			b.want("seen", 5, 200, "admitted")
			var stop atomic.Bool
			full, wait := b.pound(&stop)
			filler := filepath.Join(dir, "filler")
			fill(t, filler)
			eventually(t, 10*time.Second, "new marks are refused with 507", func() bool { return full.Load() > 0 })
			if left := free(t, dir); left > 1 {
				t.Errorf("%d MiB are left: the volume is not full", left)
			}
			b.want("seen", 5, 200, "admitted") // an equal token needs no new mark
			b.want("seen", 4, 412, "stale")
			b.want("seen", 6, 507, "unavailable")
			if code := b.get(b.addr, "/seen"); code != 200 {
				t.Errorf("a read: %d; want 200", code)
			}
			if code := b.get(b.admin, "/readyz"); code != 503 {
				t.Errorf("/readyz: %d; want 503", code)
			}
			stop.Store(true)
			wait()

			b.kill() // a restart on the full volume must refuse, and must not make it worse
			if err := b.start(); err == nil || !strings.Contains(err.Error(), "short of space") {
				t.Errorf("a start on the full volume: got %v; want a refusal for want of space", err)
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			if err := b.start("--must-exist"); err != nil {
				t.Fatal(err)
			}
			stop.Store(false)
			full, wait = b.pound(&stop)
			fill(t, filler)
			eventually(t, 10*time.Second, "new marks are refused again", func() bool { return full.Load() > 0 })
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			eventually(t, 10*time.Second, "it goes on by itself", func() bool { code, _ := b.put("seen", 7); return code == 200 })
			stop.Store(true)
			wait()
			if !b.running() {
				t.Fatalf("the proxy ended: %v\n%s", b.err, b.stderr())
			}
			b.kill()
			b.wantMarks(b.dir, b.copyOf(b.acked))
			b.wantMarks(b.dir, b.copyOf(b.applied))
		})
	}
}

// fill fills a volume to the last byte, not faster than the store looks (every 250 ms, with 64 MiB in reserve).
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 2<<20)
	for i := 0; i < 400; i++ {
		if _, err = f.Write(chunk); err != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	for range 1000 { // the last pages
		if _, err = f.Write(chunk[:4096]); errors.Is(err, syscall.ENOSPC) {
			return
		}
	}
	t.Fatalf("the volume does not fill up: %v", err)
}

// TestFailedSyncEndsAllWrites has the kernel refuse to sync while a mark is made durable. From then on nothing may be forwarded, not even
// with tokens that were seen before, although the disk works again.
func TestFailedSyncEndsAllWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	_, err := exec.LookPath("strace")
	needs(t, "strace", err == nil)
	b := newBench(t, proxyBinary(t), filepath.Join(t.TempDir(), "marks"))
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	for r := range 20 {
		b.want(fmt.Sprintf("r%d", r), 5, 200, "admitted")
	}
	trace := exec.Command("strace", "-f", "-qq", "-e", "trace=msync,fsync,fdatasync", "-e", "inject=msync,fsync,fdatasync:error=EIO",
		"-o", filepath.Join(t.TempDir(), "trace"), "-p", fmt.Sprint(b.cmd.Process.Pid))
	s, err := start(trace, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer s.kill()
	eventually(t, 10*time.Second, "strace has attached, or says why not", func() bool { return tracer(b.cmd.Process.Pid) || !s.running() })
	needs(t, "to be allowed to trace: "+s.stderr(), s.running())
	eventually(t, 10*time.Second, "a sync fails", func() bool { code, _ := b.put("r0", 6); return code == 503 })
	if n := b.copyOf(b.applied)["r0"]; n != 5 {
		t.Errorf("the store applied r0 with %d; want 5: the mark of 6 is not durable", n)
	}
	s.signal(syscall.SIGTERM) // the disk is well again
	_ = s.wait(10 * time.Second)
	for _, token := range []uint64{5, 6, 7} {
		b.want("r1", token, 503, "unavailable")
	}
	if code := b.get(b.addr, "/r1"); code != 200 {
		t.Errorf("a read: %d; want 200", code)
	}
	if code := b.get(b.admin, "/readyz"); code != 503 {
		t.Errorf("/readyz: %d; want 503", code)
	}
	if !b.running() {
		t.Fatalf("the proxy ended: %v\n%s", b.err, b.stderr())
	}
	b.kill()
	if err := b.start("--must-exist"); err != nil {
		t.Fatal(err)
	}
	b.want("r1", 4, 412, "stale")
	b.want("r1", 5, 200, "admitted")
	b.signal(syscall.SIGTERM)
	_ = b.wait(20 * time.Second)
	b.wantMarks(b.dir, b.copyOf(b.acked))
}

// tracer reports whether a process is being traced.
func tracer(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !strings.Contains(string(status), "TracerPid:\t0\n")
}

// TestSecondProxyIsRefused starts a second proxy on the directory of one that serves, and of one that is stopped and cannot answer.
func TestSecondProxyIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	b := newBench(t, proxyBinary(t), filepath.Join(t.TempDir(), "marks"))
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	b.want("r", 5, 200, "admitted")
	for _, stopped := range []bool{false, true} {
		if stopped {
			b.signal(syscall.SIGSTOP)
		}
		out, err := b.command("--lock-wait", "300ms").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "in use by another process") || !strings.Contains(string(out), fmt.Sprint(b.cmd.Process.Pid)) {
			t.Errorf("a second proxy (the first stopped: %v): %v, %s; want a refusal that names process %d", stopped, err, out, b.cmd.Process.Pid)
		}
		b.signal(syscall.SIGCONT)
	}
	b.want("r", 6, 200, "admitted")
	b.kill()
	if err := b.start("--must-exist"); err != nil {
		t.Fatalf("the first was killed, and its lock is still there: %v", err)
	}
	b.want("r", 5, 412, "stale")
}

// TestPowerCutLosesNoMark cuts the power in the middle of the work.
func TestPowerCutLosesNoMark(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for _, text := range powerCuts(t, proxyBinary(t), 3) {
		t.Error(text)
	}
}

// powerCuts copies the image of the volume while the proxy is stopped in the middle of its work. The copy has what had reached the device, and
// nothing of what only the page cache knew, as after a power cut; a file that was never synced shows that. It returns what was lost.
func powerCuts(t *testing.T, binary string, cuts int) (lost []string) {
	dir, image := mounted(t, "ext4", 140, ",commit=300")
	b := newBench(t, binary, filepath.Join(dir, "marks"))
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	_, wait := b.pound(&stop)
	defer wait()
	defer stop.Store(true)
	survived := 0
	for cut := range cuts {
		time.Sleep(time.Duration(300+170*cut) * time.Millisecond)
		unsynced := fmt.Sprintf("unsynced-%d", cut)
		if err := os.WriteFile(filepath.Join(dir, unsynced), []byte("lost"), 0o600); err != nil {
			t.Fatal(err)
		}
		want := b.copyOf(b.applied) // and so acknowledged or in doubt
		at := b.imageNow(image)
		if left, err := os.ReadFile(filepath.Join(at, unsynced)); err == nil && string(left) == "lost" {
			survived++
		}
		marks, err := exportMarks(binary, filepath.Join(at, "marks"))
		if err != nil {
			lost = append(lost, fmt.Sprintf("cut %d: %v", cut, err))
		}
		for r, token := range want {
			if marks[r] < token {
				lost = append(lost, fmt.Sprintf("cut %d: the mark of %s is %d, and %d had been applied", cut, r, marks[r], token))
			}
		}
		t.Logf("cut %d: %d resources, the highest token %d", cut, len(want), highest(want))
	}
	if survived == cuts {
		t.Error("files that were never synced survived every cut: this machine does not show what a power cut does")
	}
	return lost
}

// imageNow mounts a copy of the volume's image, taken while the proxy is stopped.
func (b *bench) imageNow(image string) (dir string) {
	b.t.Helper()
	copied, at := filepath.Join(b.t.TempDir(), "copy"), filepath.Join(b.t.TempDir(), "mnt")
	b.signal(syscall.SIGSTOP)
	out, err := exec.Command("cp", "--sparse=always", image, copied).CombinedOutput()
	b.signal(syscall.SIGCONT)
	if err != nil {
		b.t.Fatalf("cp: %v: %s", err, out)
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		b.t.Fatal(err)
	}
	mount(b.t, at, "-o", "loop", copied)
	return at
}

func highest(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n = max(n, v)
	}
	return n
}
