package examples

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// leaderStory is one of the stories in which a paused holder wakes up.
type leaderStory struct {
	name, page string
	held       string // what the store has at page in the end
	unfenced   string // what it would have if nothing were refused
	absent     string // what A was not to write, and nobody else wrote
	refused    string // the log line of A's first refused write
}

func leaderStories() []leaderStory {
	return []leaderStory{
		{"job-scheduler", "/jobs/report/2026-11-30", "report by B", "report by A", "/jobs/report/2026-11-29",
			`msg=write outcome=stale .* policy=jobs resource=jobs/report token=1 `},
		{"web-crawler", "/pages/example.com/news", "news by B", "news by A", "/pages/example.com/contact",
			`msg=write outcome=stale .* policy=pages resource=domains/example.com token=33 `},
	}
}

func (s leaderStory) start(t *testing.T, file string) (r *rig, env []string) {
	t.Helper()
	needs(t, "bash", "curl")
	args := []string{"--config", file}
	if s.name == "job-scheduler" {
		args = append(args, "--leases-listen", "127.0.0.1:0")
	}
	r = start(t, s.name, args...)
	env = []string{"PROXY=" + r.proxy, "STORE=" + r.store, "PATH=" + programs.dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	if s.name == "job-scheduler" {
		env = append(env, "LEASES=http://"+r.log.await(t, `fenceproxy: leases on (\S+)`)[1])
	}
	return r, env
}

// play runs demo.sh and returns what it prints, without the comments, and what it says of an error.
func (s leaderStory) play(t *testing.T, r *rig, env []string) (out, errs string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./demo.sh")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has jobs to end
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir, cmd.Env = r.dir, clean(env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var b strings.Builder
	for line := range strings.Lines(stdout.String()) {
		if !strings.HasPrefix(line, "# ") {
			b.WriteString(line)
		}
	}
	return b.String(), stderr.String(), err
}

// shows returns what the page shows of the demo, or of its database.
func (s leaderStory) shows(t *testing.T, database bool) string {
	t.Helper()
	var b strings.Builder
	for _, line := range transcripts(t, s.name) {
		if !strings.HasPrefix(line.command, "fenceproxy check ") && strings.HasPrefix(line.command, "psql ") == database {
			b.WriteString("$ " + line.command + "\n" + line.output)
		}
	}
	return b.String()
}

// has is what the store answers for a path.
func (r *rig) has(t *testing.T, path string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(r.store + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestStoriesRefuseThePausedLeader(t *testing.T) {
	t.Parallel()
	for _, s := range leaderStories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r, env := s.start(t, "fenceproxy.yaml")
			out, errs, err := s.play(t, r, env)
			if err != nil || errs != "" {
				t.Fatalf("demo.sh: %v\n%s\n%s\nthe proxy's log:\n%s", err, out, errs, r.log)
			}
			if want := s.shows(t, false); out != want {
				t.Errorf("demo.sh printed\n%s\nand %s/README.md shows\n%s", out, s.name, want)
			}
			r.stored(t, s.page, s.held)
			if status, body := r.has(t, s.absent); status != http.StatusNotFound {
				t.Errorf("the store has %q under %s; want nothing", body, s.absent)
			}
			r.log.await(t, s.refused)
			switch s.name {
			case "job-scheduler":
				r.stored(t, "/jobs/report/2026-12-01", "report by B")
				if regexp.MustCompile(`msg=write .*token=3 `).MatchString(r.log.String()) {
					t.Errorf("the job under lease run wrote after its lease was lost:\n%s", r.log)
				}
			case "web-crawler":
				r.stored(t, "/pages/example.com/about", "about by B")
				r.stored(t, "/pages/example.org/index", "index by C")
				for _, n := range []string{"1", "2", "3", "4"} {
					r.stored(t, "/pages/example.com/archive/"+n, "archive by B")
				}
			}
			left, err := filepath.Glob(filepath.Join(r.dir, "[AB].*"))
			if err != nil || len(left) > 0 {
				t.Errorf("demo.sh leaves %q behind (%v)", left, err)
			}
		})
	}
}

// TestStoriesNeedTheFence plays them with a policy that only watches: the late write lands, and the demo says that it should not have.
func TestStoriesNeedTheFence(t *testing.T) {
	t.Parallel()
	for _, s := range leaderStories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(s.name, "fenceproxy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "fenceproxy.yaml")
			write(t, file, string(text)+"defaults: {mode: observe}\n", 0o600)
			r, env := s.start(t, file)
			out, errs, err := s.play(t, r, env)
			if err == nil || !strings.Contains(errs, "demo.sh: expected ") {
				t.Errorf("demo.sh: %v; want a failure that says what was expected\n%s\n%s", err, out, errs)
			}
			r.stored(t, s.page, s.unfenced)
		})
	}
}

func TestStoriesOfLeadersInADatabase(t *testing.T) {
	t.Parallel()
	env := postgres(t)
	for _, s := range leaderStories() {
		t.Run(s.name, func(t *testing.T) {
			db := leaderDatabase(t, env, s.name)
			cmd := exec.CommandContext(t.Context(), "psql", "-Xq", "-f", "database.sql")
			cmd.Dir, cmd.Env = s.name, clean(db...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("psql: %v\n%s", err, out)
			}
			if got, want := "$ psql -Xq -f database.sql\n"+string(out), s.shows(t, true); got != want {
				t.Errorf("psql printed\n%s\nand %s/README.md shows\n%s", got, s.name, want)
			}
			a, b, c := leaderSession(t, db, s.name), leaderSession(t, db, s.name), leaderSession(t, db, s.name)
			switch s.name {
			case "job-scheduler":
				// A leader paused inside its transaction is waited for, and leaves nothing when its session is ended.
				a.do(t, "begin; execute finish ('2026-12-01', 'report by A', 34)", "report by A")
				b.begin(t, "update jobs set token = 35 where name = 'report' and token <= 35 returning token")
				c.waitsForLock(t)
				c.do(t, "select 'ended ' || pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()", "ended true")
				b.out.await(t, `(?m)^35$`)
				c.do(t, "select 'results: ' || count(*) from results where run = '2026-12-01'", "results: 0")
			case "web-crawler":
				// Pages of one token do not wait for each other, the next holder waits for them, and then the token is stale.
				a.do(t, "begin; execute write_fenced ('example.com', 'a', 'a by B', 34)", "a by B")
				b.do(t, "execute write_fenced ('example.com', 'b', 'b by B', 34)", "b by B")
				c.begin(t, "update domains set token = 35 where name = 'example.com' and token < 35 returning token")
				b.waitsForLock(t)
				a.do(t, "commit; select 'committed'", "committed")
				c.out.await(t, `(?m)^35$`)
				b.do(t, "execute write_fenced ('example.com', 'c', 'c by B', 34); select 'pages: ' || count(*) from pages where url like '%/c'", "pages: 0")
			}
		})
	}
}

// leaderDatabase makes an empty database.
func leaderDatabase(t *testing.T, env []string, name string) []string {
	t.Helper()
	answers(t, env, "psql", "-Xqc", `create database "`+name+`"`)
	return append(env[:len(env):len(env)], "PGDATABASE="+name)
}

// leaderPsql is a session that stays.
type leaderPsql struct {
	in  io.Writer
	out *log
}

// leaderSession opens a session with the prepared statements of a story's database.sql.
func leaderSession(t *testing.T, env []string, story string) *leaderPsql {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(story, "database.sql"))
	if err != nil {
		t.Fatal(err)
	}
	p := &leaderPsql{out: &log{more: make(chan struct{})}}
	cmd := exec.Command("psql", "-XqAt")
	cmd.Env, cmd.Stdout, cmd.Stderr = clean(env...), p.out, p.out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may wait for another session, where the test failed
		_ = cmd.Wait()
	})
	p.in = in
	for _, statement := range regexp.MustCompile(`(?ms)^prepare .*?;$`).FindAllString(string(text), -1) {
		p.begin(t, strings.TrimSuffix(statement, ";"))
	}
	p.do(t, "select 'ready'", "ready")
	return p
}

func (p *leaderPsql) begin(t *testing.T, statement string) {
	t.Helper()
	if _, err := io.WriteString(p.in, statement+";\n"); err != nil {
		t.Fatal(err)
	}
}

func (p *leaderPsql) do(t *testing.T, statement, want string) {
	t.Helper()
	p.begin(t, statement)
	p.out.await(t, regexp.QuoteMeta(want))
}

// waitsForLock waits until a session of this database waits for another.
func (p *leaderPsql) waitsForLock(t *testing.T) {
	t.Helper()
	p.begin(t, `do $$ begin
		for i in 1 .. 600 loop
			perform pg_stat_clear_snapshot();
			if exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()) then return; end if;
			perform pg_sleep(0.05);
		end loop;
		raise 'nobody waits';
	end $$`)
	p.do(t, "select 'looked'", "looked")
	if strings.Contains(p.out.String(), "nobody waits") {
		t.Fatal("nobody waited for the lock")
	}
}

// TestCrawlerWritesPagesSideBySide has a store that answers only when all four pages are there.
func TestCrawlerWritesPagesSideBySide(t *testing.T) {
	t.Parallel()
	const pages = 4
	var mu sync.Mutex // guards there
	there, all := 0, make(chan struct{})
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if there++; there == pages {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
			w.WriteHeader(http.StatusCreated)
		case <-time.After(20 * time.Second):
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	}))
	t.Cleanup(store.Close)
	r := start(t, "web-crawler", "--config", "fenceproxy.yaml", "--upstream", store.URL)
	answered := make(chan string, pages)
	for n := range pages {
		go func() { answered <- leaderWrite(fmt.Sprintf("%s/pages/example.com/archive/%d", r.proxy, n), "34") }()
	}
	for range pages {
		if got := <-answered; got != "201 Created" {
			t.Errorf("a page was answered %s; want 201 Created: pages of one token wait for each other", got)
		}
	}
}

// leaderWrite is how a write with a token is answered.
func leaderWrite(url, token string) string {
	req, err := http.NewRequest(http.MethodPut, url, strings.NewReader("archive"))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Fencing-Token", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	resp.Body.Close()
	return resp.Status
}
