package examples

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// repository starts the store with an empty bare repository at git/rides.git.
func repository(t *testing.T) (store kept, bare string) {
	t.Helper()
	needs(t, "git")
	store, root := apache(t, "git")
	bare = filepath.Join(root, "git", "rides.git")
	git(t, "", "init", "-q", "--bare", "--initial-branch=main", bare)
	git(t, bare, "update-server-info")
	opened(t, bare)
	return store, bare
}

// gitting is a command of git that asks nothing of whoever runs the tests.
func gitting(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = clean("GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=demo", "GIT_AUTHOR_EMAIL=demo@example.test", "GIT_COMMITTER_NAME=demo", "GIT_COMMITTER_EMAIL=demo@example.test")
	return cmd
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := gitting(t, dir, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// whole checks that the repository is intact and has these commits, the newest first.
func whole(t *testing.T, bare string, commits ...string) {
	t.Helper()
	git(t, bare, "fsck", "--full", "--strict")
	if got, want := git(t, bare, "log", "--format=%s", "main"), strings.Join(commits, "\n")+"\n"; got != want {
		t.Errorf("the repository has the commits\n%s\nwant\n%s", got, want)
	}
}

func TestGitOverWebdavRefusesTheStalePush(t *testing.T) {
	t.Parallel()
	store, bare := repository(t)
	r := before(t, "git-over-webdav/fenceproxy.yaml", store.url)
	playsAsShown(t, "git-over-webdav", r)
	whole(t, bare, "driver B", "driver A")
	byToken := map[string]int{}
	for _, o := range r.outcomes(t, "git/rides.git") {
		byToken[o]++
	}
	// Folders, locks, objects, refs: all on one resource.
	if byToken["admitted 33"] < 9 || byToken["admitted 34"] < 9 {
		t.Errorf("the proxy saw %v; want many writes in a push", byToken)
	}
	// One request of git, one of curl: a stale push ends with its first.
	if byToken["stale 33"] != 2 || byToken["missing"] != 1 {
		t.Errorf("the proxy saw %v; want two stale requests and one without a token", byToken)
	}
}

// TestGitPushThatPausesHalfWay: the push with 33 has its locks and its objects in the store when it pauses. It is refused when it goes on to
// move the branch, and leaves neither a lock nor a damaged repository.
func TestGitPushThatPausesHalfWay(t *testing.T) {
	t.Parallel()
	store, bare := repository(t)
	r := before(t, "git-over-webdav/fenceproxy.yaml", store.url)
	paused, wake := make(chan struct{}), make(chan struct{}) // each closed once: here, and by the test
	var once sync.Once
	slow := between(t, r.proxy, "", func(req *http.Request) int {
		if req.Method == http.MethodPut && strings.HasSuffix(req.URL.Path, "/refs/heads/main") {
			once.Do(func() {
				close(paused)
				<-wake
			})
		}
		return 0
	})
	goOn := sync.OnceFunc(func() { close(wake) })
	defer goOn() // or the server of between would not end

	dir := t.TempDir()
	commit := func(clone, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, clone, "driver"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		git(t, filepath.Join(dir, clone), "add", "driver")
		git(t, filepath.Join(dir, clone), "commit", "-q", "-m", text)
	}
	push := func(clone, token string) *exec.Cmd {
		t.Helper()
		return gitting(t, filepath.Join(dir, clone), "-c", "http.extraHeader=Fencing-Token: "+token, "push", "origin", "HEAD:main")
	}
	git(t, dir, "clone", "-q", r.proxy+"/git/rides.git", "b")
	commit("b", "first")
	if out, err := push("b", "32").CombinedOutput(); err != nil {
		t.Fatalf("the first push: %v\n%s", err, out)
	}
	git(t, dir, "clone", "-q", slow+"/git/rides.git", "a")
	commit("a", "driver A")
	commit("b", "driver B")

	late := push("a", "33")
	var said strings.Builder
	late.Stdout, late.Stderr = &said, &said
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1) // takes the one result of the goroutine below, for which the test waits
	go func() { ended <- late.Wait() }()
	select {
	case <-paused:
	case err := <-ended:
		t.Fatalf("the push of A ended before it moved the branch: %v\n%s", err, &said)
	}
	// A still has git's own lock on the branch, so that B has to come back; but 34 was seen.
	out, err := push("b", "34").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "lock") {
		t.Errorf("the push of B beside the lock of A: %v\n%s", err, out)
	}
	goOn()
	if err := <-ended; err == nil {
		t.Errorf("the late push of A succeeded:\n%s", &said)
	}
	t.Logf("A is told:\n%s", &said)
	whole(t, bare, "first")
	if out, err := push("b", "34").CombinedOutput(); err != nil {
		t.Errorf("B cannot push once A was refused: %v\n%s", err, out)
	}
	whole(t, bare, "driver B", "first")
}
