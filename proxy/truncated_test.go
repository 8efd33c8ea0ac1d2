package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

// fileStore is the REST store that everyone writes once: uploads go straight into the file.
type fileStore struct{ dir string }

func (s fileStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := filepath.Join(s.dir, filepath.FromSlash(path.Clean("/"+r.URL.Path)))
	switch r.Method {
	case http.MethodGet:
		http.ServeFile(w, r, name)
	case http.MethodPut:
		f, err := os.Create(name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		defer f.Close()
		if _, err := io.Copy(f, r.Body); err != nil {
			return
		}
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func goFiles(t testing.TB) *storetest.Store {
	dir := t.TempDir()
	s := httptest.NewServer(fileStore{dir})
	t.Cleanup(s.Close)
	return &storetest.Store{Addr: s.Listener.Addr().String(), URL: s.URL, Root: dir}
}

// cut is a way in which an upload breaks off half-way.
type cut struct {
	reset   bool // the connection is reset; otherwise it ends in order
	chunked bool // of unknown length
}

func (c cut) String() string {
	end, framing := "FIN", "Content-Length"
	if c.reset {
		end = "RST"
	}
	if c.chunked {
		framing = "chunked"
	}
	return end + ", " + framing
}

var cuts = []cut{{false, false}, {false, true}, {true, false}, {true, true}}

const (
	wholeLength = 200_000
	partLength  = 100_000
)

// upload begins a PUT of wholeLength bytes and sends the first n.
func (c cut) upload(t *testing.T, addr, target string, n int, header ...string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var b bytes.Buffer
	fmt.Fprintf(&b, "PUT %s HTTP/1.1\r\nHost: %s\r\n", target, addr)
	for i := 0; i+1 < len(header); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", header[i], header[i+1])
	}
	body := strings.Repeat("C", n)
	if c.chunked {
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", n, body)
		if n == wholeLength {
			b.WriteString("0\r\n\r\n")
		}
	} else {
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", wholeLength, body)
	}
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	return conn
}

// end ends the connection as the cut says.
func (c cut) end(conn net.Conn) {
	if c.reset {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	conn.Close()
}

// TestACutUploadLeavesTheOldObject: stores that destroy an object, or commit half of one, when an upload breaks off keep the old one whole
// behind the proxy. The client breaks off while it sends, or vanishes while its write waits for another.
func TestACutUploadLeavesTheOldObject(t *testing.T) {
	const old = "the old object, whole"
	for _, s := range []struct {
		name, object string
		start        func(testing.TB) *storetest.Store
		signed       bool
		damaged      []cut // by which ways the store harms the object when it is reached directly
		stream       []cut // by which it does behind a proxy that does not take bodies in first
	}{
		{"x-net-webdav", "/f", goDAV, false, cuts, cuts},
		{"files", "/f", goFiles, false, cuts, cuts},
		{"versitygw", "/bkt/f", storetest.Versitygw, true, []cut{{false, false}}, nil},
		{"nginx", "/f", storetest.Nginx, false, nil, nil},
		{"lighttpd", "/f", storetest.Lighttpd, false, nil, nil},
		{"apache", "/f", storetest.Apache, false, nil, nil},
		{"gofakes3", "/bkt/f", fakeS3, false, nil, nil},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			store := s.start(t)
			direct := s3Client{t, store.Addr, s.signed, time.Minute}
			if strings.HasPrefix(s.object, "/bkt") {
				direct.must(200, "PUT", "/bkt", "")
			}
			object, objects := "", 0 // each case has its own: the store may go on with a cut upload for a while
			begin := func(t *testing.T) {
				objects++
				object = fmt.Sprintf("%s%d", s.object, objects)
				if got := direct.send(false, attempt{method: "PUT", target: object, body: old}); got.code/100 != 2 {
					t.Fatalf("PUT = %v", got)
				}
			}
			sign := func(addr string) []string {
				if !s.signed {
					return nil
				}
				return storetest.Sign("PUT", object, addr, false)
			}
			now := func() string { return direct.send(false, attempt{method: "GET", target: object}).body }
			for _, c := range cuts {
				t.Run("directly, "+c.String(), func(t *testing.T) {
					begin(t)
					c.end(c.upload(t, store.Addr, object, partLength, sign(store.Addr)...))
					if !slices.Contains(s.damaged, c) {
						return // it is known to keep the object; there is nothing to wait for
					}
					eventually(t, "the store harms the object", func() bool { return now() != old })
				})
			}
			for _, body := range []string{"spool", "stream"} {
				for _, c := range cuts {
					t.Run(body+", "+c.String(), func(t *testing.T) {
						begin(t)
						// The proxy has ended when the inner test has, and with it all that it would do.
						t.Run("proxy", func(t *testing.T) {
							r := newRig(t, store.URL, "spool: {memory: 1KiB}\nunmatched_writes: fence\ndefaults: {request_body: "+body+", in_doubt_hold: 300ms}")
							conn := c.upload(t, r.addr(), object, partLength, append(sign(r.addr()), "Fencing-Token", "34")...)
							if body == "stream" {
								eventually(t, "the write is under way, or was refused by the store", func() bool {
									return r.gate.Stats().InFlight == 1 || strings.Contains(r.logs.String(), "outcome=")
								})
							}
							c.end(conn)
							eventually(t, "the proxy has noticed", func() bool { return strings.Contains(r.logs.String(), "outcome=") })
						})
						if body == "stream" && slices.Contains(s.stream, c) {
							return // documented: request_body: stream is for stores that keep the old object themselves
						}
						if got := now(); got != old {
							t.Errorf("the store holds %d bytes, %.30q; want the old object", len(got), got)
						}
					})
				}
			}
			for _, c := range cuts {
				t.Run("vanished in the gate, "+c.String(), func(t *testing.T) {
					begin(t)
					t.Run("proxy", func(t *testing.T) {
						to, err := url.Parse(store.URL)
						if err != nil {
							t.Fatal(err)
						}
						// The first write is held up on its way to the store.
						release := make(chan struct{})
						forward := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
							p.SetURL(to)
							p.Out.Host = p.In.Host // it is signed
						}}
						r := newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
							if q.Header.Get("Fencing-Token") == "33" {
								<-release
							}
							forward.ServeHTTP(w, q)
						}), "spool: {memory: 1KiB}\nunmatched_writes: fence\ndefaults: {in_doubt_hold: 300ms}")
						first := make(chan reply, 1)
						go func() {
							c := s3Client{t, r.addr(), s.signed, time.Minute}
							first <- c.send(false, attempt{method: "PUT", target: object, body: old}, "Fencing-Token", "33")
						}()
						eventually(t, "33 is under way", func() bool { return r.gate.Stats().InFlight == 1 })
						conn := c.upload(t, r.addr(), object, wholeLength, append(sign(r.addr()), "Fencing-Token", "34")...)
						r.waiting(1)
						c.end(conn)
						r.waiting(0)
						close(release)
						if got := receive(t, "the answer to 33", first); got.code/100 != 2 {
							t.Errorf("PUT with 33 = %v", got)
						}
					})
					if got := now(); got != old {
						t.Errorf("the store holds %d bytes, %.30q; want what 33 wrote: the write that waited was not forwarded", len(got), got)
					}
				})
			}
		})
	}
}
