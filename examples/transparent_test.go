package examples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// hosts are the network namespaces that transparent/network.sh makes, under a name of the test's own.
type hosts struct {
	t   *testing.T
	net string
	dir string // a copy of the example with the programs, readable for the proxy's user
}

// proxyUser is the user in fence.nft.
const proxyUser = "64000"

var networks atomic.Int64 // made so far, for their names

func network(t *testing.T) *hosts {
	t.Helper()
	needs(t, "ip", "nft", "setpriv", "sh", "bash", "curl")
	h := &hosts{t: t, net: fmt.Sprintf("fp%d-%d", os.Getpid(), networks.Add(1))}
	h.possible()
	dir, err := os.MkdirTemp("", "fenceproxy-transparent-*") // not t.TempDir, whose parents belong to who runs the tests
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h.dir = dir
	if err := os.CopyFS(dir, os.DirFS("transparent")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fenceproxy", "store"} {
		if err := os.Link(program(t, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		h.sh("./network.sh down")
		names, err := filepath.Glob("/run/netns/" + h.net + "-*")
		if err != nil || len(names) > 0 {
			t.Errorf("network.sh down left %q: %v", names, err)
		}
	})
	h.sh("./network.sh up")
	h.marks()
	return h
}

// possible skips the test where namespaces, or what it needs in them, cannot be made.
func (h *hosts) possible() {
	h.t.Helper()
	if os.Geteuid() != 0 {
		absent(h.t, "only root makes network namespaces and rules")
	}
	name := h.net + "-try"
	defer func() { _ = exec.Command("ip", "netns", "del", name).Run() }() // absent, if it could not be made
	for _, line := range []string{
		"ip netns add " + name,
		"ip -n " + name + " link add switch type bridge",
		"ip -n " + name + " link add eth0 type veth peer name eth1",
		"ip netns exec " + name + " nft add table inet t",
		"ip netns exec " + name + " nft add chain inet t c '{ type nat hook output priority -100; }'",
		"ip netns exec " + name + " nft add rule inet t c meta skuid 1 tcp dport 1 redirect to :2",
	} {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			absent(h.t, fmt.Sprintf("no network for the test can be made here: %s: %v: %s", line, err, bytes.TrimSpace(out)))
		}
	}
}

// marks gives the proxy an empty directory for its marks.
func (h *hosts) marks() {
	h.t.Helper()
	h.sh("rm -rf marks && install -d -o " + proxyUser + " -m 700 marks")
}

// try runs a line in the example's folder. "on HOST COMMAND" runs a command on a host.
func (h *hosts) try(line string) (string, error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the test's own context is over when it cleans up
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `on() { at=$1; shift; ip netns exec "$NET-$at" "$@"; }; `+line)
	cmd.Dir, cmd.Env = h.dir, append(clean("NET="+h.net), "PATH="+h.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *hosts) sh(line string) string {
	h.t.Helper()
	out, err := h.try(line)
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// start runs a program on a host until stop is called or the test ends. A program that is ours has to end well.
func (h *hosts) start(host string, env []string, ready string, argv ...string) (l *log, stop func()) {
	h.t.Helper()
	l = &log{more: make(chan struct{})}
	cmd := exec.Command("ip", append([]string{"netns", "exec", h.net + "-" + host}, argv...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = h.dir, l, l, append(clean(), env...)
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && strings.Contains(strings.Join(argv, " "), "fenceproxy") {
			h.t.Errorf("%s: %v\n%s", strings.Join(argv, " "), err, l)
		}
	})
	h.t.Cleanup(stop)
	l.await(h.t, ready)
	return l, stop
}

// store starts the store on a host.
func (h *hosts) store(host, listen string) {
	h.t.Helper()
	h.start(host, nil, `store: serving on`, "./store", "-listen", listen)
}

// proxy starts the proxy on a host as its own user.
func (h *hosts) proxy(host, config, listen string) (l *log, stop func()) {
	h.t.Helper()
	env := []string{}
	if listen != "" {
		env = append(env, "FENCEPROXY_LISTEN="+listen)
	}
	return h.start(host, env, `fenceproxy: serving on`,
		"setpriv", "--reuid", proxyUser, "--regid", proxyUser, "--clear-groups", "./fenceproxy", "serve", "--config", config)
}

// put writes from a host and returns the answer's status and the proxy's word, or curl's exit code: "201 admitted", "412 stale", "exit 7".
func (h *hosts) put(host, token, url string, args ...string) string {
	h.t.Helper()
	if token != "" {
		args = append(args, "-H 'Fencing-Token: "+token+"'")
	}
	out, err := h.try("on " + host + ` curl -gs -m 30 -o /dev/null -w '%{response_code} %header{fencing-status}' -X PUT -d 'by ` + host + " with " + token + "' " +
		strings.Join(args, " ") + " '" + url + "'")
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		return fmt.Sprintf("exit %d", exit.ExitCode())
	} else if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (h *hosts) wantPut(want, host, token, url string, args ...string) {
	h.t.Helper()
	if got := h.put(host, token, url, args...); got != want {
		h.t.Errorf("PUT %s from %s with %q: %s; want %s", url, host, token, got, want)
	}
}

// stored asks the store itself what it has under a path; "" for nothing.
func (h *hosts) stored(path string) string {
	h.t.Helper()
	return strings.TrimSpace(h.sh("on store curl -gs -w '' http://10.99.0.1:9000" + path + " | grep -v '^404 page not found' || true"))
}

func (h *hosts) wantStored(path, want string) {
	h.t.Helper()
	if got := h.stored(path); got != want {
		h.t.Errorf("the store has %q under %s; want %q", got, path, want)
	}
}

// wantNoDatagrams sends some to the port of the store, where none may arrive, and to the port beside it.
func (h *hosts) wantNoDatagrams(host string) {
	h.t.Helper()
	h.sh("on store nft add table inet seen")
	h.sh("on store nft add chain inet seen c '{ type filter hook input priority 0; }'")
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, port := range []string{"9000", "9001"} {
			h.sh("on store nft add rule inet seen c meta nfproto " + family + " udp dport " + port + " counter comment " + family + "-" + port)
		}
	}
	arrived := func(what string) bool {
		h.t.Helper()
		for line := range strings.Lines(h.sh("on store nft list table inet seen")) {
			if strings.Contains(line, what) {
				return !strings.Contains(line, "counter packets 0 ")
			}
		}
		h.t.Fatalf("%s is not counted", what)
		return false
	}
	for family, at := range map[string]string{"ipv4": "10.99.0.1", "ipv6": "fd99::1"} {
		_, _ = h.try("on " + host + " bash -c 'echo x >/dev/udp/" + at + "/9000'") // refused here or on the way
		h.sh("on " + host + " bash -c 'echo x >/dev/udp/" + at + "/9001'")
		for giveUp := time.Now().Add(30 * time.Second); !arrived(family + "-9001"); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(giveUp) {
				h.t.Fatalf("no datagram from %s arrived at %s, port 9001", host, at)
			}
		}
		if arrived(family + "-9000") {
			h.t.Errorf("a datagram from %s arrived at %s, the port of the store", host, at)
		}
	}
}

// without returns the name of a rules file that lacks the lines with a text.
func (h *hosts) without(file string, texts ...string) string {
	h.t.Helper()
	return h.edited(file, func(line string) string {
		for _, text := range texts {
			if strings.Contains(line, text) {
				return ""
			}
		}
		return line
	})
}

func (h *hosts) edited(file string, edit func(string) string) string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, file))
	if err != nil {
		h.t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		b.WriteString(edit(line))
	}
	if b.String() == string(text) {
		h.t.Fatalf("%s has nothing to edit", file)
	}
	write(h.t, filepath.Join(h.dir, "edited.nft"), b.String(), 0o600)
	return "edited.nft"
}

// play runs demo.sh and returns its output without the comments.
func (h *hosts) play(part string) string {
	h.t.Helper()
	var b strings.Builder
	for line := range strings.Lines(h.sh("./demo.sh " + part)) {
		if !strings.HasPrefix(line, "# ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

const exempts = "meta skuid $proxy accept"

func TestTransparentFencesClientsThatKnowOfNothing(t *testing.T) {
	t.Parallel()
	h := network(t)
	before := h.sh("nft list tables")
	h.sh("on app nft -f fence.nft")
	if after := h.sh("nft list tables"); after != before {
		t.Errorf("the machine's own tables were\n%s\nand are\n%s", before, after)
	}
	h.store("store", ":9000")
	l, stop := h.proxy("app", "fenceproxy.yaml", "")

	got := h.play("")
	l.await(t, `msg=write outcome=stale .* token=33 .* client=10\.99\.0\.2 `)
	stop()
	got += h.play("stopped")
	var want strings.Builder
	for _, s := range transcripts(t, "transparent") {
		if strings.HasPrefix(s.command, "app ") || strings.HasPrefix(s.command, "other ") {
			want.WriteString("$ " + s.command + "\n" + s.output)
		}
	}
	if got != want.String() {
		t.Errorf("demo.sh printed\n%s\nand the page shows\n%s", got, &want)
	}
	h.wantStored("/rides/7/driver", "driver A") // the limit: from the host that nobody redirects
}

func TestTransparentLeavesTheRestAlone(t *testing.T) {
	t.Parallel()
	h := network(t)
	h.sh("on app nft -f fence.nft")
	h.sh("on app nft -f fence.nft") // replaces itself
	h.store("store", ":9000")
	h.store("store", ":9001")
	h.store("other", ":9000")
	h.proxy("app", "fenceproxy.yaml", "")
	h.wantPut("428 missing", "app", "", "http://10.99.0.1:9000/rides/1/driver")
	h.wantPut("201", "app", "", "http://10.99.0.1:9001/rides/1/driver") // another port
	h.wantPut("201", "app", "", "http://[fd99::1]:9001/rides/1/driver")
	h.wantPut("201", "app", "", "http://10.99.0.3:9000/rides/1/driver") // another host
	h.wantPut("201", "app", "", "http://[fd99::3]:9000/rides/1/driver")

	h.wantNoDatagrams("app")
}

func TestTransparentByIPv6(t *testing.T) {
	t.Parallel()
	h := network(t)
	h.sh("on app nft -f fence.nft")
	h.store("store", ":9000")
	const four, six = "http://10.99.0.1:9000/rides/7/driver", "http://[fd99::1]:9000/rides/7/driver"
	_, stop := h.proxy("app", "fenceproxy.yaml", "")
	h.wantPut("exit 7", "app", "34", six) // nobody listens there
	h.wantStored("/rides/7/driver", "")
	// A client that knows both addresses takes the one that answers.
	h.wantPut("201 admitted", "app", "34", "http://store.example.test:9000/rides/7/driver", "--resolve 'store.example.test:9000:[fd99::1],10.99.0.1'")
	stop()

	h.proxy("app", "fenceproxy.yaml", "[::]:8080")
	h.wantPut("412 stale", "app", "33", six)
	h.wantPut("201 admitted", "app", "36", six)
	h.wantPut("412 stale", "app", "35", four) // the same mark
	h.wantStored("/rides/7/driver", "by app with 36")
	// The port takes what was redirected alone.
	for _, url := range []string{"http://10.99.0.2:8080/rides/7/driver", "http://[fd99::2]:8080/rides/7/driver"} {
		h.wantPut("exit 7", "other", "37", url)
	}
}

// TestTransparentLoopEnds takes the rule away, or puts it too late, that keeps the proxy's connections from coming back to it.
func TestTransparentLoopEnds(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]func(*hosts) string{
		"without the rule": func(h *hosts) string { return h.without("fence.nft", exempts) },
		"the rule last": func(h *hosts) string {
			rule := ""
			return h.edited("fence.nft", func(line string) string {
				switch {
				case strings.Contains(line, exempts):
					rule = line
					return ""
				case strings.Contains(line, "stores6 redirect"):
					return line + rule
				}
				return line
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := network(t)
			h.store("store", ":9000")
			h.sh("on app nft -f " + rules(h))

			// The line of the page that is to be run first finds out.
			const page = "ip netns exec fence-app setpriv --reuid 64000 --regid 64000 --clear-groups curl -s -o /dev/null http://10.99.0.1:9000/"
			check := strings.ReplaceAll(page, "fence-app", h.net+"-app")
			text, err := os.ReadFile("transparent/README.md")
			if err != nil || !bytes.Contains(text, []byte("\n"+page+"\n")) {
				t.Errorf("the page does not show %s (%v)", page, err)
			}
			if out, err := h.try(check); err == nil {
				t.Errorf("the proxy's user reaches the store: %s", out)
			}

			h.proxy("app", "fenceproxy.yaml", "")
			const url = "http://10.99.0.1:9000/rides/7/driver"
			h.wantPut("503 admitted", "app", "34", url)
			h.wantStored("/rides/7/driver", "")
			if metrics := h.sh("on app curl -s http://127.0.0.1:8081/metrics"); strings.Contains(metrics, `fenceproxy_connections_refused_total{reason="connections"} 0`) {
				t.Errorf("no connection was one too many:\n%s", metrics)
			}

			// It outlives the loop: with the right rules it goes on.
			h.sh("on app nft -f fence.nft")
			h.sh(check)
			for giveUp := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) { // until it has closed the loop's last connections
				if got := h.put("app", "34", url); got == "201 admitted" {
					break
				} else if time.Now().After(giveUp) {
					t.Fatalf("after the loop: %s", got)
				}
			}
			h.wantPut("412 stale", "app", "33", url)
			h.wantStored("/rides/7/driver", "by app with 34")
		})
	}
}

func TestTransparentBackstopFailsClosed(t *testing.T) {
	t.Parallel()
	h := network(t)
	h.store("store", ":9000")

	// A connection from before the rules, on which a write comes after them. With a firewall at work the kernel knows the connection, and
	// such a connection is never redirected.
	h.sh("on app nft add table inet firewall")
	h.sh("on app nft add chain inet firewall c '{ type filter hook output priority 0; }'")
	h.sh("on app nft add rule inet firewall c ct state established accept")
	early := exec.Command("ip", "netns", "exec", h.net+"-app", "bash", "-c",
		`exec 3<>/dev/tcp/10.99.0.1/9000; echo connected; read -r; printf 'PUT /rides/1/driver HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nearly' >&3; cat <&3`)
	l := &log{more: make(chan struct{})}
	early.Stdout, early.Stderr = l, l
	in, err := early.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := early.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = early.Process.Kill() }) // over already, unless the test failed
	l.await(t, "connected")
	h.sh("on app nft -f fence.nft")
	h.proxy("app", "fenceproxy.yaml", "")
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	if err := early.Wait(); err == nil || strings.Contains(l.String(), "201") {
		t.Errorf("a connection from before the rules went on (%v): %s", err, l)
	}
	h.wantStored("/rides/1/driver", "")

	// The redirect is lost, the rest is there.
	h.sh("on app nft -f " + h.without("fence.nft", "redirect to :8080"))
	h.wantPut("exit 7", "app", "34", "http://10.99.0.1:9000/rides/7/driver")
	h.wantPut("exit 7", "app", "34", "http://[fd99::1]:9000/rides/7/driver")
	h.wantStored("/rides/7/driver", "")
}

func TestTransparentOnARouter(t *testing.T) {
	t.Parallel()
	h := network(t)
	h.store("store", ":9000")
	h.store("store", ":9001")
	h.sh("on gate nft -f gateway.nft")
	l, stop := h.proxy("gate", "fenceproxy.yaml", "[::]:8080")
	const four, six = "http://10.99.0.1:9000/rides/7/driver", "http://[fd99::1]:9000/rides/7/driver"
	h.wantPut("201 admitted", "guest", "34", four)
	h.wantPut("412 stale", "guest", "33", six)
	h.wantPut("201 admitted", "guest", "35", six)
	h.wantPut("412 stale", "guest", "34", four)
	h.wantStored("/rides/7/driver", "by guest with 35")
	l.await(t, `outcome=stale .* client=10\.98\.0\.2 `)
	h.wantPut("201", "guest", "", "http://10.99.0.1:9001/rides/7/driver") // another port
	h.wantPut("exit 7", "guest", "36", "http://10.98.0.1:8080/rides/7/driver")
	h.wantPut("exit 7", "other", "36", "http://10.99.0.4:8080/rides/7/driver")
	h.wantNoDatagrams("guest")
	stop()
	h.wantPut("exit 7", "guest", "36", four)
	h.sh("on gate nft -f " + h.without("gateway.nft", "redirect to :8080"))
	h.wantPut("exit 7", "guest", "36", four)
	h.wantPut("exit 7", "guest", "36", six)
	h.wantStored("/rides/7/driver", "by guest with 35")
}

func TestTransparentFromSeveralMachines(t *testing.T) {
	t.Parallel()
	h := network(t)
	h.store("store", ":9000")
	h.store("store", ":9001")
	_, stop := h.proxy("gate", "fenceproxy.yaml", "[::]:8080")
	h.sh("on app nft -f remote.nft")
	h.sh("on other nft -f remote.nft")
	const four, six = "http://10.99.0.1:9000/rides/7/driver", "http://[fd99::1]:9000/rides/7/driver"
	h.wantPut("201 admitted", "other", "34", four)
	h.wantPut("412 stale", "app", "33", four)
	h.wantPut("412 stale", "app", "33", six)
	h.wantPut("201 admitted", "app", "35", six)
	h.wantPut("412 stale", "other", "34", four)
	h.wantPut("201", "app", "", "http://10.99.0.1:9001/rides/7/driver") // another port
	h.wantNoDatagrams("app")
	stop()
	h.wantPut("exit 7", "app", "36", four)
	h.sh("on app nft -f " + h.without("remote.nft", "dnat ip"))
	h.wantPut("exit 7", "app", "36", four)
	h.wantPut("exit 7", "app", "36", six)
	h.wantStored("/rides/7/driver", "by app with 35")
}

// TestTransparentWithTLS makes the certificate with the page's own lines.
func TestTransparentWithTLS(t *testing.T) {
	t.Parallel()
	needs(t, "openssl", "haproxy")
	h := network(t)
	page, err := os.ReadFile("transparent/README.md")
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "fenceproxy ca init ") || strings.HasPrefix(line, "openssl req ") || strings.HasPrefix(line, "chown ") {
			h.sh(line)
			// The store has a certificate from somebody else, made in the same way.
			h.sh(strings.NewReplacer("ca.pem", "store-ca.pem", "ca.key", "store-ca.key", "proxy.key", "store.pem.key", "proxy.pem", "store.pem").Replace(line))
			made++
		}
	}
	if made != 3 {
		t.Fatalf("the page has %d lines that make the certificate; want 3", made)
	}
	write(t, filepath.Join(h.dir, "haproxy.cfg"), `defaults
  mode http
  timeout client 1m
  timeout server 1m
  timeout connect 5s
frontend tls
  bind 10.99.0.1:9000 ssl crt store.pem
  default_backend store
backend store
  server store 127.0.0.1:9002
`, 0o600)
	h.store("store", "127.0.0.1:9002")
	h.start("store", nil, "", "haproxy", "-db", "-f", "haproxy.cfg")
	const url = "https://10.99.0.1:9000/rides/7/driver"
	for giveUp := time.Now().Add(30 * time.Second); h.put("other", "", url+"0", "--cacert store-ca.pem") != "201"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Fatal("the store does not answer over TLS")
		}
	}
	h.sh("on app nft -f fence.nft")
	h.proxy("app", "tls.yaml", "")
	h.wantPut("201 admitted", "app", "34", url, "--cacert ca.pem")
	h.wantPut("412 stale", "app", "33", url, "--cacert ca.pem")
	if got := h.sh("on store curl -s http://127.0.0.1:9002/rides/7/driver"); got != "by app with 34\n" {
		t.Errorf("the store has %q", got)
	}
	h.wantPut("exit 60", "app", "35", url, "--cacert store-ca.pem") // who trusts the store alone does not take the proxy for it
	h.wantPut("exit 60", "other", "35", url, "--cacert ca.pem")     // and the other way round, where nobody redirects
}
