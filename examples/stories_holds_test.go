package examples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// holdStory is an example at work before a store of which the test sees every write.
type holdStory struct {
	*rig
	example string
	token   string // the header that carries it

	mu     sync.Mutex // guards writes
	writes []storeWrite
}

// storeWrite is a write that reached the store.
type storeWrite struct{ method, path, token, body string }

// holdStoryFence changes a configuration of the example, whose file has that name.
type holdStoryFence func(file, config string) string

func startHoldStory(t *testing.T, example, token string, change holdStoryFence) *holdStory {
	t.Helper()
	s := &holdStory{example: example, token: token}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	_, out := run(t, dir, nil, "store", "-listen", "127.0.0.1:0")
	store := between(t, "http://"+out.await(t, `store: serving on (\S+)`)[1], "", s.see)
	upstream := store
	for _, file := range []string{"bookings.yaml", "fenceproxy.yaml"} { // from the store outwards
		config, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			write(t, filepath.Join(dir, file), change(file, string(config)), 0o600)
		}
		s.rig = before(t, filepath.Join(dir, file), upstream)
		upstream = s.proxy
	}
	s.dir, s.store = dir, store
	return s
}

func (s *holdStory) see(r *http.Request) int {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return 0
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return http.StatusBadRequest
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, storeWrite{r.Method, r.URL.Path, r.Header.Get(s.token), string(body)})
	return 0
}

// seen returns the writes to paths that begin so, in the order in which they reached the store.
func (s *holdStory) seen(path string) (all []storeWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes {
		if strings.HasPrefix(w.path, path) {
			all = append(all, w)
		}
	}
	return all
}

// play runs demo.sh against a proxy and returns what it prints, without the comments, and what it complains of.
func (s *holdStory) play(t *testing.T, proxy string) (out, complaint string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./demo.sh")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has jobs to end
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir, cmd.Env = s.dir, clean("PROXY="+proxy, "STORE="+s.store)
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

// asShown plays the example and compares what it prints with the section Run of its page.
func (s *holdStory) asShown(t *testing.T) {
	t.Helper()
	got, complaint, err := s.play(t, s.proxy)
	if err != nil || complaint != "" {
		t.Fatalf("demo.sh: %v\n%s\n%s\nthe proxy's log:\n%s", err, got, complaint, s.log)
	}
	if want := holdStoryShows(t, s.example, "Run"); got != want {
		t.Errorf("demo.sh printed\n%s\nand %s/README.md shows\n%s", got, s.example, want)
	}
}

// holdStoryShows returns the lines with their output that one section of an example's page shows.
func holdStoryShows(t *testing.T, example, section string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(example, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("%s/README.md has no section %q", example, section)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "README.md"), text, 0o600)
	var b strings.Builder
	for _, s := range transcripts(t, dir) {
		b.WriteString("$ " + s.command + "\n" + s.output)
	}
	return b.String()
}

func TestRideGoesToTheFirstDriver(t *testing.T) {
	t.Parallel()
	needs(t, "bash", "curl")
	s := startHoldStory(t, "ride-dispatch", "Hold-Id", nil)
	s.asShown(t)

	got := s.seen("/")
	if len(got) != 4 {
		t.Fatalf("the store saw %q; want the winner three times, and who took the ride then", got)
	}
	first, second := got[0].token, got[3].token
	want := []storeWrite{
		{"PUT", "/rides/7/driver", first, got[0].body}, {"PUT", "/rides/7/state", first, "on my way"}, {"DELETE", "/rides/7/driver", first, ""},
		{"PUT", "/rides/7/driver", second, got[3].body},
	}
	if !slices.Equal(got, want) || first == second || len(first) != 32 || got[0].body == got[3].body {
		t.Errorf("the store saw %q; want one holder's writes, and then another's", got)
	}
	if strings.Contains(fmt.Sprint(got), "driver E") {
		t.Errorf("the store saw %q; want nothing of the driver who was paused", got)
	}
	s.stored(t, "/rides/7/driver", got[3].body)
}

func TestSeatIsBookedByItsHolderAndStaysBooked(t *testing.T) {
	t.Parallel()
	needs(t, "bash", "curl")
	s := startHoldStory(t, "seat-booking", "Hold-Id", nil)
	s.asShown(t)
	const seat = "/flights/7/seats/12A"
	if got := s.seen(seat + "/booking"); len(got) != 1 || got[0].body != "B" {
		t.Errorf("the store saw the bookings %q; want that of B alone", got)
	}
	s.stored(t, seat+"/booking", "B")
	var holders []string
	for _, w := range s.seen(seat + "/hold") {
		holders = append(holders, w.method+" "+w.body)
	}
	if want := []string{"PUT A", "PUT B", "PUT C", "DELETE "}; !slices.Equal(holders, want) {
		t.Errorf("the store saw the holds %q; want %q", holders, want)
	}
}

func TestAuctionGoesToTheHighestBid(t *testing.T) {
	t.Parallel()
	needs(t, "bash", "curl")
	s := startHoldStory(t, "auction", "Bid-Cents", nil)
	s.asShown(t)
	s.stored(t, "/items/1/bid", "160 by A")
	s.stored(t, "/items/2/bid", "1100 cents")
	for _, item := range []string{"/items/1/", "/items/2/"} {
		last, bids := 0, s.seen(item)
		for _, w := range bids {
			bid, err := strconv.Atoi(w.token)
			if err != nil || bid <= last || !strings.HasPrefix(w.body, w.token+" ") {
				t.Errorf("after %d the store saw %q; want only ever higher bids", last, w)
			}
			last = bid
		}
		if len(bids) == 0 {
			t.Errorf("the store saw no bid for %s", item)
		}
	}
}

// TestHoldStoriesEndWithoutTheFence: each demo stops at an answer that only a fence gives.
func TestHoldStoriesEndWithoutTheFence(t *testing.T) {
	if testing.Short() {
		t.Skip("plays every demo several times")
	}
	needs(t, "bash", "curl")
	mode := func(broken, mode string) holdStoryFence {
		return func(file, config string) string {
			if file == broken {
				config = strings.Replace(config, "    compare: ", "    mode: "+mode+"\n    compare: ", 1)
			}
			return config
		}
	}
	const outer, inner = "fenceproxy.yaml", "bookings.yaml"
	refused := map[string]string{ // what the demo waits for in vain
		"ride-dispatch": "1 201", "seat-booking": `"policy": "seats"`, "auction": "Fencing-Status: stale",
	}
	type row struct {
		name, example, want string
		change              holdStoryFence
		unfenced            bool
	}
	rows := []row{
		{name: "seat-booking, bookings observe", example: "seat-booking", want: `"policy": "bookings"`, change: mode(inner, "observe")},
		{name: "seat-booking, bookings off", example: "seat-booking", want: `"policy": "bookings"`, change: mode(inner, "off")},
		{name: "seat-booking, bookings run out", example: "seat-booking", want: `"policy": "bookings"`, change: func(_, config string) string {
			return strings.Replace(config, "    drain_timeout: 20s\n", "    drain_timeout: 20s\n    hold: {ttl: 1s}\n", 1)
		}},
	}
	apart := func(file, config string) string { // a second device of A books the seat that B holds
		if file == outer {
			config = "unmatched_writes: allow\n" + strings.Replace(config, "/{seat}/{rest...}", "/{seat}/hold", 1)
		}
		return config
	}
	rows = append(rows, row{name: "seat-booking, holds and bookings apart", example: "seat-booking", want: `"policy": "seats"`, change: apart})
	for example, want := range refused {
		rows = append(rows,
			row{name: example + ", observe", example: example, want: want, change: mode(outer, "observe")},
			row{name: example + ", off", example: example, want: want, change: mode(outer, "off")},
			row{name: example + ", no proxy", example: example, want: want, unfenced: true})
	}
	for _, r := range rows {
		if r.name == "auction, no proxy" || r.name == "auction, off" {
			r.want = "Fencing-Status: admitted" // nobody says so
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s := startHoldStory(t, r.example, "", r.change)
			proxy := s.proxy
			if r.unfenced {
				proxy = s.store
			}
			out, complaint, err := s.play(t, proxy)
			if _, failed := errors.AsType[*exec.ExitError](err); !failed || !strings.HasPrefix(complaint, "demo.sh: expected "+r.want+"\n") {
				t.Errorf("demo.sh ended with %v and %q; want it to miss %q\n%s", err, complaint, r.want, out)
			}
		})
	}
}

// TestDatabasesAloneDoWhatThePagesShow runs the SQL of the pages.
func TestDatabasesAloneDoWhatThePagesShow(t *testing.T) {
	t.Parallel()
	env := postgres(t)
	for _, example := range []string{"ride-dispatch", "seat-booking", "auction"} {
		const line = "psql -Xq -f database.sql"
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir, cmd.Env = example, clean(env...)
		out, err := cmd.CombinedOutput()
		got, want := "$ "+line+"\n"+string(out), holdStoryShows(t, example, "When the database alone is the better lock")
		if err != nil || got != want {
			t.Errorf("%s (%v) printed\n%s\nand the page shows\n%s", example, err, got, want)
		}
	}
}
