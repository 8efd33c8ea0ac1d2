package proxy_test

import (
	"cmp"
	"encoding/xml"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

// The TLS listener speaks HTTP/2 as well as Go's own server does: h2spec fails the same cases against both.
func TestH2Spec(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	program := storetest.Program(t, cmp.Or(os.Getenv("H2SPEC"), "h2spec"))
	store := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "every answer has a body\n")
	})
	_, cert, key := selfSigned(t)
	bare := &http.Server{Handler: store, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = bare.ServeTLS(ln, cert, key) }()
	defer bare.Close()
	r := overTLS(t, newRigWith(t, store, "unmatched_writes: fence\ndefaults: {missing_token: allow}"))

	// fails returns how many cases ran against a server, and which failed.
	fails := func(addr, report string) (ran int, failed []string, err error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return 0, nil, err
		}
		out, runErr := exec.CommandContext(t.Context(), program, "-t", "-k", "-h", host, "-p", port, "-j", report).CombinedOutput()
		text, err := os.ReadFile(report)
		if err != nil {
			t.Logf("h2spec: %v\n%s", runErr, out) // it ends with 1 when a case failed
			return 0, nil, err
		}
		var suites struct {
			Suites []struct {
				Name  string `xml:"name,attr"`
				Cases []struct {
					Package string    `xml:"package,attr"`
					Name    string    `xml:"classname,attr"`
					Failure *struct{} `xml:"failure"`
					Error   *struct{} `xml:"error"`
				} `xml:"testcase"`
			} `xml:"testsuite"`
		}
		if err := xml.Unmarshal(text, &suites); err != nil {
			return 0, nil, err
		}
		for _, s := range suites.Suites {
			for _, c := range s.Cases {
				ran++
				if c.Failure != nil || c.Error != nil {
					failed = append(failed, c.Package+": "+c.Name)
				}
			}
		}
		return ran, failed, nil
	}
	dir := t.TempDir()
	var wg sync.WaitGroup
	var ran [2]int
	var failed [2][]string
	var errs [2]error
	for i, addr := range []string{ln.Addr().String(), r.addr} {
		wg.Go(func() { ran[i], failed[i], errs[i] = fails(addr, filepath.Join(dir, string(rune('a'+i)))) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	if ran[0] < 100 || ran[0] != ran[1] {
		t.Errorf("%d and %d cases ran; want the same number, above 100", ran[0], ran[1])
	}
	if !slices.Equal(failed[0], failed[1]) {
		t.Errorf("failed against net/http:\n%q\nagainst the proxy:\n%q", failed[0], failed[1])
	}
	t.Logf("%d cases, failed against both: %q", ran[1], failed[1])
}
