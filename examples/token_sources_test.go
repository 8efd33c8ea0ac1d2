package examples

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// etcd starts an etcd on data, or on a folder of its own.
func etcd(t *testing.T, data string) (endpoint string) {
	t.Helper()
	needs(t, "etcd", "etcdctl")
	if data == "" {
		data = filepath.Join(t.TempDir(), "data")
	}
	addr, peer := listenable(t), "http://"+listenable(t)
	endpoint = "http://" + addr
	daemon(t, addr, nil, "etcd", "--data-dir", data, "--name", "e1", "--log-level", "error",
		"--listen-client-urls", endpoint, "--advertise-client-urls", endpoint,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "e1="+peer)
	return endpoint
}

// zookeeper starts a ZooKeeper with short sessions, and puts its command line into a folder for PATH.
func zookeeper(t *testing.T) (addr, bin string) {
	t.Helper()
	needs(t, "java")
	const jar = "/usr/share/java/zookeeper.jar"
	if _, err := os.Stat(jar); err != nil {
		absent(t, jar+" is not installed")
	}
	dir := t.TempDir()
	addr, bin = listenable(t), filepath.Join(dir, "bin")
	_, port, _ := net.SplitHostPort(addr)
	config := "tickTime=500\ndataDir=" + dir + "/data\nclientPortAddress=127.0.0.1\nclientPort=" + port + "\nadmin.enableServer=false\n"
	write(t, filepath.Join(dir, "zoo.cfg"), config, 0o600)
	write(t, filepath.Join(bin, "zkCli.sh"), "#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp "+jar+" org.apache.zookeeper.ZooKeeperMain \"$@\"\n", 0o700)
	daemon(t, addr, nil, "java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", jar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(dir, "zoo.cfg"))
	return addr, bin
}

// redis starts a Redis that keeps nothing on disk.
func redis(t *testing.T, args ...string) (addr string) {
	t.Helper()
	needs(t, "redis-server", "redis-cli")
	addr = listenable(t)
	_, port, _ := net.SplitHostPort(addr)
	daemon(t, addr, nil, append([]string{"redis-server", "--bind", "127.0.0.1", "--port", port, "--save", ""}, args...)...)
	return addr
}

// postgres starts a Postgres, as another user where the tests run as root, and returns what clients need to know.
func postgres(t *testing.T) (env []string) {
	t.Helper()
	needs(t, "psql", "setpriv")
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		absent(t, "no server of Postgres is installed under /usr/lib/postgresql")
	}
	bin := filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "fenceproxy-postgres-*") // not t.TempDir, whose parents belong to who runs the tests
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	as := []string{"env", "-C", dir}
	if os.Geteuid() == 0 {
		who, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(who.Uid)
		gid, _ := strconv.Atoi(who.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		as = append(as, "setpriv", "--reuid", who.Uid, "--regid", who.Gid, "--clear-groups")
	}
	data := filepath.Join(dir, "data")
	initdb := append(as, filepath.Join(bin, "initdb"), "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale", "C", "-D", data)
	if out, err := exec.Command(initdb[0], initdb[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	addr := listenable(t)
	_, port, _ := net.SplitHostPort(addr)
	daemon(t, addr, nil, append(as, filepath.Join(bin, "postgres"), "-D", data, "-h", "127.0.0.1", "-p", port, "-k", dir, "-c", "fsync=off")...)
	env = []string{"PGHOST=127.0.0.1", "PGPORT=" + port, "PGUSER=postgres", "PGDATABASE=postgres"}
	answers(t, env, "psql", "-XqAtc", "select 1") // it listens a little before it answers
	return env
}

// answers waits until a command succeeds, and returns what it prints.
func answers(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = clean(env...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return strings.TrimSpace(string(out))
		}
		if time.Now().After(giveUp) {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
	}
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// recipe plays a recipe before a store of its own and compares what it prints with its page.
func recipe(t *testing.T, name string, env ...string) *rig {
	t.Helper()
	needs(t, "bash", "curl")
	r := start(t, "token-sources", "--config", "fenceproxy.yaml")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./demo.sh", name)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has jobs to end
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = r.dir
	cmd.Env = append(clean("PROXY="+r.proxy, "ADMIN="+r.admin, "STORE="+r.store), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		t.Fatalf("demo.sh %s: %v\n%s\n%s\nthe proxy's log:\n%s", name, err, &out, &errs, r.log)
	}
	var got, want strings.Builder
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "# ") {
			got.WriteString(line)
		}
	}
	page := filepath.Join("token-sources", name)
	for _, s := range transcripts(t, page) {
		want.WriteString("$ " + s.command + "\n" + s.output)
	}
	if got.String() != want.String() {
		t.Errorf("demo.sh printed\n%s\nand %s/README.md shows\n%s", &got, page, &want)
	}
	return r
}

// put writes with a token by way of the proxy.
func (r *rig) put(t *testing.T, path, token string, want int) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, r.proxy+path, strings.NewReader(token+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Fencing-Token", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != want {
		t.Errorf("PUT %s with %s was answered %s; want %d", path, token, resp.Status, want)
	}
}

func TestEtcdFencesThePausedHolder(t *testing.T) {
	t.Parallel()
	recipe(t, "etcd", "ETCDCTL_ENDPOINTS="+etcd(t, ""))
}

func TestZooKeeperFencesThePausedHolder(t *testing.T) {
	t.Parallel()
	addr, bin := zookeeper(t)
	recipe(t, "zookeeper", "ZK="+addr, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestRedisFencesThePausedHolder(t *testing.T) {
	t.Parallel()
	r := recipe(t, "redis", "REDIS=redis://"+redis(t))
	r.log.await(t, `the epoch of a policy was raised.* policy=redis was=0 now=1`)
}

func TestPostgresFencesThePausedHolder(t *testing.T) {
	t.Parallel()
	recipe(t, "postgres", postgres(t)...)
}

// TestEtcdRestoredFromASnapshotFalls is the README's warning: an etcd restored as it was hands out numbers that it has handed out before.
func TestEtcdRestoredFromASnapshotFalls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	snapshot, data := filepath.Join(dir, "snapshot.db"), filepath.Join(dir, "restored")
	lock := []string{"etcdctl", "lock", "rides/7", "--", "sh", "-c", "echo $ETCD_LOCK_REV"}

	env := []string{"ETCDCTL_ENDPOINTS=" + etcd(t, "")}
	answers(t, env, "etcdctl", "snapshot", "save", snapshot)
	r := start(t, "token-sources", "--config", "fenceproxy.yaml")
	r.put(t, "/etcd/7", answers(t, env, lock...), http.StatusCreated)
	before := answers(t, env, lock...)
	r.put(t, "/etcd/7", before, http.StatusCreated)

	answers(t, env, "etcdctl", "snapshot", "restore", snapshot, "--name", "e1", "--data-dir", data,
		"--initial-advertise-peer-urls", "http://127.0.0.1:1", "--initial-cluster", "e1=http://127.0.0.1:1")
	env = []string{"ETCDCTL_ENDPOINTS=" + etcd(t, data)}
	after := answers(t, env, lock...)
	r.put(t, "/etcd/7", after, http.StatusPreconditionFailed)
	t.Logf("the revision fell from %s to %s", before, after)
}

// TestRedisFailoverLosesGrants is the README's warning: replication is asynchronous, so a replica that takes over may not have seen the last grants.
func TestRedisFailoverLosesGrants(t *testing.T) {
	t.Parallel()
	first := redis(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(first)
	second := redis(t, "--replicaof", host, port)
	incr := func(addr string) string {
		return answers(t, nil, "redis-cli", "-u", "redis://"+addr, "incr", "{rides/7}:fence")
	}
	r := start(t, "token-sources", "--config", "fenceproxy.yaml")
	r.put(t, "/redis/7", incr(first), http.StatusCreated)
	if got := answers(t, nil, "redis-cli", "-u", "redis://"+first, "wait", "1", "60000"); got != "1" {
		t.Fatalf("%s replicas have the first grant; want 1", got)
	}
	// The link breaks, grants go on, and the replica is made the master.
	answers(t, nil, "redis-cli", "-u", "redis://"+second, "replicaof", "no", "one")
	r.put(t, "/redis/7", incr(first), http.StatusCreated)
	before := incr(first)
	r.put(t, "/redis/7", before, http.StatusCreated)
	after := incr(second)
	r.put(t, "/redis/7", after, http.StatusPreconditionFailed)
	t.Logf("the counter fell from %s to %s", before, after)
}

// TestPaperRecipesNumbers plays the numbers of the recipes for which no service runs here, and those that have to be refused.
func TestPaperRecipesNumbers(t *testing.T) {
	t.Parallel()
	r := start(t, "token-sources", "--config", "fenceproxy.yaml")
	for _, w := range []struct {
		path, token string
		want        int
	}{
		{"/raft/7", "7.1042", http.StatusCreated},
		{"/raft/7", "8.1051", http.StatusCreated},
		{"/raft/7", "7.1042", http.StatusPreconditionFailed},
		{"/raft/8", "7.999", http.StatusCreated},
		{"/raft/8", "7.1042", http.StatusCreated},
		{"/raft/8", "8.3", http.StatusCreated},        // a recovered node: the index fell, the term rose
		{"/kubernetes/7", "0", http.StatusBadRequest}, // a Lease that was deleted and made anew
		{"/kubernetes/7", "1", http.StatusCreated},
		{"/kubernetes/7", "2", http.StatusCreated},
		{"/kubernetes/7", "1", http.StatusPreconditionFailed},
		{"/znode/7", "/locks/rides-7/lock-2147483647", http.StatusCreated},
		{"/znode/7", "/locks/rides-7/lock--2147483648", http.StatusBadRequest}, // the counter has overflowed
		{"/znode/8", "/locks/rides-8/_c_0d2b9a53-0000-4000-8000-000000000000-lock-0000000034", http.StatusCreated},
		{"/zookeeper/7", "16", http.StatusBadRequest}, // a czxid in decimal, where hex is expected
	} {
		r.put(t, w.path, w.token, w.want)
	}
}
