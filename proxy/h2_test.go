package proxy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

// tlsRig is a rig with a TLS listener beside its plain one.
type tlsRig struct {
	*rig
	server *proxy.Server
	addr   string
	roots  *x509.CertPool
	ca     string // the file
}

func overTLS(t *testing.T, r *rig) *tlsRig {
	t.Helper()
	pair, cert, key := selfSigned(t)
	out := &tlsRig{rig: r, roots: x509.NewCertPool(), ca: cert}
	out.roots.AddCert(mustParse(t, pair))
	out.server, out.addr = startServer(t, r.proxy.Handler(), &policies.ListenerTLS{Cert: cert, Key: key})
	return out
}

// client speaks HTTP/2 and nothing else, over one connection.
func (r *tlsRig) client() *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.roots}, DisableCompression: true, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP2(true)
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: client.CheckRedirect}
}

// h2do sends a request over HTTP/2; header alternates names and values.
func (r *tlsRig) h2do(c *http.Client, method, path string, body io.Reader, header ...string) (reply, *http.Response, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, "https://"+r.addr+path, body)
	if err != nil {
		return reply{}, nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return reply{}, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}, resp, err
}

// frames is an HTTP/2 connection whose frames a test writes and sees.
type frames struct {
	t *testing.T
	*http2.Framer
	conn net.Conn
	enc  *hpack.Encoder
	buf  bytes.Buffer
}

func (r *tlsRig) frames(settings ...http2.Setting) *frames {
	r.t.Helper()
	conn, err := tls.Dial("tcp", r.addr, &tls.Config{RootCAs: r.roots, NextProtos: []string{"h2"}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(soon))
	f := &frames{t: r.t, Framer: http2.NewFramer(conn, conn), conn: conn}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.enc = hpack.NewEncoder(&f.buf)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		r.t.Fatal(err)
	}
	if err := f.WriteSettings(settings...); err != nil {
		r.t.Fatal(err)
	}
	return f
}

// head opens a stream. fields alternates names and values; those of a plain PUT of path with a token come first.
func (f *frames) head(id uint32, end bool, path, tok string, fields ...string) {
	f.t.Helper()
	f.fields(id, end, append([]string{":method", "PUT", ":scheme", "https", ":authority", "store.test", ":path", path, "fencing-token", tok}, fields...)...)
}

func (f *frames) fields(id uint32, end bool, fields ...string) {
	f.t.Helper()
	f.buf.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		if err := f.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.buf.Bytes(), EndStream: end, EndHeaders: true}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *frames) data(id uint32, end bool, s string) {
	f.t.Helper()
	for len(s) > 16<<10 {
		if err := f.WriteData(id, false, []byte(s[:16<<10])); err != nil {
			f.t.Fatal(err)
		}
		s = s[16<<10:]
	}
	if err := f.WriteData(id, end, []byte(s)); err != nil {
		f.t.Fatal(err)
	}
}

// next returns the next frame that belongs to a stream, or a GOAWAY, in words: "3 :status=412", "3 data end", "3 reset NO_ERROR".
func (f *frames) next() string {
	f.t.Helper()
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		end := ""
		if fr.Header().Flags.Has(http2.FlagDataEndStream) {
			end = " end"
		}
		switch fr := fr.(type) {
		case *http2.MetaHeadersFrame:
			return fmt.Sprintf("%d :status=%s%s", fr.StreamID, fr.PseudoValue("status"), end)
		case *http2.DataFrame:
			if fr.Length > 0 || end != "" {
				return fmt.Sprintf("%d data%s", fr.StreamID, end)
			}
		case *http2.RSTStreamFrame:
			return fmt.Sprintf("%d reset %v", fr.StreamID, fr.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Sprintf("goaway %v", fr.ErrCode)
		}
	}
}

// until reads frames to the one that is wanted, and returns those before it.
func (f *frames) until(want string) (before []string) {
	f.t.Helper()
	for {
		got := f.next()
		if got == want {
			return before
		}
		before = append(before, got)
		if strings.HasPrefix(got, "goaway") || len(before) > 1000 || !strings.Contains("123456789g", got[:1]) {
			f.t.Fatalf("got %q; want %q", before, want)
		}
	}
}

func h2YAML(mode string) string {
	return "unmatched_writes: fence\ndefaults: {drain_timeout: 10s, in_doubt_hold: 300ms, request_body: " + mode + "}\n"
}

func TestH2WritesAreFenced(t *testing.T) {
	store := newPlainStore()
	r := overTLS(t, newRigWith(t, store, defaultYAML))
	c := r.client()
	for _, tt := range []struct {
		method, path, token, body string
		code                      int
		status                    string
	}{
		{"PUT", "/a", "34", "from B", 201, "admitted"},
		{"PUT", "/a", "33", "from A", 412, "stale"},
		{"PUT", "/a", "", "from A", 428, "missing"},
		{"PUT", "/a", "x", strings.Repeat("x", 1<<20), 400, "malformed"},
		{"DELETE", "/a", "33", "", 412, "stale"},
		{"HEAD", "/a", "", "", 200, ""},
		{"GET", "/a", "", "", 200, ""},
		{"CONNECT", "/", "", "", 405, "refused"},
		{"TRACE", "/a", "", "", 405, "refused"},
	} {
		header := []string{}
		if tt.token != "" {
			header = []string{"Fencing-Token", tt.token}
		}
		var body io.Reader
		if tt.body != "" {
			body = strings.NewReader(tt.body)
		}
		got, resp, err := r.h2do(c, tt.method, tt.path, body, header...)
		if err != nil || got.code != tt.code || got.header.Get("Fencing-Status") != tt.status {
			t.Errorf("%s %s with %q = %v, %v; want %d %s", tt.method, tt.path, tt.token, got, err, tt.code, tt.status)
			continue
		}
		if resp.ProtoMajor != 2 {
			t.Errorf("it came over %s", resp.Proto)
		}
		if tt.method == "GET" && got.body != "from B" || tt.method == "HEAD" && (got.body != "" || resp.ContentLength != 6) {
			t.Errorf("%s = %q with Content-Length %d", tt.method, got.body, resp.ContentLength)
		}
	}
	applied(t, store, "PUT /a 34")
}

func TestPlainListenerSpeaksNoH2(t *testing.T) {
	r := newRigWith(t, newPlainStore(), defaultYAML)
	if got := r.raw(http2.ClientPreface, soon); !strings.HasPrefix(got, "HTTP/1.1 ") {
		t.Errorf("the preface of HTTP/2 was answered %q", got)
	}
}

// A refusal over HTTP/1.1 closes the connection when the body was not read. Over HTTP/2 Connection: close would be GOAWAY.
func TestH2RefusalKeepsTheConnection(t *testing.T) {
	r := overTLS(t, newRigWith(t, newPlainStore(), defaultYAML))
	r.put("/a", 34, "kept", 201, "admitted")
	for _, tt := range []struct {
		name   string
		fields []string
		begun  string
	}{
		{"expect", []string{"expect", "100-continue", "content-length", "10"}, ""},
		{"expect, no length", []string{"expect", "100-continue"}, ""},
		{"5 GB", []string{"content-length", "5368709120"}, "begun"},
		{"small that stalls", []string{"content-length", "1000"}, "begun"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := r.frames()
			f.head(1, false, "/a", "33", tt.fields...)
			if tt.begun != "" {
				f.data(1, false, tt.begun)
			}
			if got := f.next(); got != "1 :status=412" {
				t.Fatalf("the first answer is %q; want 412 and no 100 Continue", got)
			}
			f.until("1 reset NO_ERROR") // the body is not wanted
			f.head(3, false, "/b", "1", "content-length", "4")
			f.data(3, true, "body")
			f.until("3 :status=201")
		})
	}
}

func TestH2ContinueIsSentOnceTheBodyIsWanted(t *testing.T) {
	up, url := record(t, okAnswer)
	r := overTLS(t, newRig(t, url, defaultYAML))
	f := r.frames()
	f.head(1, false, "/a", "33", "expect", "100-continue", "content-length", "4")
	if got := f.next(); got != "1 :status=100" {
		t.Fatalf("got %q; want 100 Continue", got)
	}
	f.data(1, true, "body")
	if got := f.next(); got != "1 :status=200" {
		t.Errorf("got %q; want 200", got)
	}
	if got := <-up.requests; strings.Contains(got, "Expect") || !strings.HasSuffix(got, "\r\n\r\nbody") {
		t.Errorf("the upstream saw %q", got)
	}
}

func TestH2TrailersAndInterimAnswers(t *testing.T) {
	up, url := record(t, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n")
	r := overTLS(t, newRig(t, url, defaultYAML))
	for _, mode := range []string{"spool", "stream"} {
		t.Run(mode, func(t *testing.T) {
			r := r
			if mode == "stream" {
				r = overTLS(t, newRig(t, url, h2YAML("stream")))
			}
			hints := make(chan string, 4)
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				if code != 100 {
					hints <- strconv.Itoa(code) + h.Get("Link")
				}
				return nil
			}})
			req, err := http.NewRequestWithContext(ctx, "PUT", "https://"+r.addr+"/a", io.NopCloser(strings.NewReader("body")))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Fencing-Token", "1")
			req.Trailer = http.Header{"X-Sum": {"9"}}
			resp, err := r.client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "ok" || resp.Trailer.Get("X-Sum") != "7" {
				t.Errorf("got %q, %v, trailers %v", b, err, resp.Trailer)
			}
			if got := receive(t, "the hints", hints); got != "103</x>" {
				t.Errorf("the interim answer is %q", got)
			}
			if got := <-up.requests; !strings.Contains(got, "Trailer: X-Sum\r\n") || !strings.HasSuffix(got, "0\r\nX-Sum: 9\r\n\r\n") {
				t.Errorf("the upstream saw %q", got)
			}
		})
	}
}

// What HTTP/1.1 cannot say must not reach the store in HTTP/1.1.
func TestH2RequestsThatReadInTwoWays(t *testing.T) {
	up, url := record(t, okAnswer)
	r := overTLS(t, newRig(t, url, defaultYAML))
	put := func(method, authority, path string, more ...string) []string {
		return append([]string{":method", method, ":scheme", "https", ":authority", authority, ":path", path, "fencing-token", "1"}, more...)
	}
	const reset = "1 reset PROTOCOL_ERROR"
	for _, tt := range []struct {
		name   string
		fields []string
		want   string
	}{
		{"space in the method", put("PUT /other HTTP/1.1", "store.test", "/a"), "1 :status=400"},
		{"tab in the method", put("PUT\t/other", "store.test", "/a"), "1 :status=400"},
		{"slash in the method", put("PUT/", "store.test", "/a"), "1 :status=400"},
		{"space in the path", put("PUT", "store.test", "/a HTTP/1.1"), "1 :status=400"},
		{"tab in the path", put("PUT", "store.test", "/a\t/b"), reset},
		{"space in the query", put("PUT", "store.test", "/a?x HTTP/1.1"), "1 :status=400"},
		{"absolute path", put("PUT", "store.test", "http://127.0.0.1/a"), "1 :status=400"},
		{"star", put("PUT", "store.test", "*"), "1 :status=400"},
		{"space in the authority", put("PUT", "a b", "/a"), "1 :status=400"},
		{"path in the authority", put("PUT", "a/b", "/a"), "1 :status=400"},
		{"user in the authority", put("PUT", "u@b", "/a"), reset},
		{"another Host", put("PUT", "store.test", "/a", "host", "other.test"), "1 :status=400"},
		{"two Hosts", put("PUT", "store.test", "/a", "host", "store.test", "host", "store.test"), "1 :status=400"},
		{"no host at all", []string{":method", "PUT", ":scheme", "https", ":path", "/a", "fencing-token", "1"}, "1 :status=400"},
		{"a length without a body", put("PUT", "store.test", "/a", "content-length", "5"), "1 :status=400"},
		{"a length that is no number", put("PUT", "store.test", "/a", "content-length", "+0"), "1 :status=400"},
		{"two lengths", put("PUT", "store.test", "/a", "content-length", "0", "content-length", "0"), "1 :status=400"},
		{"Connection", put("PUT", "store.test", "/a", "connection", "fencing-token"), "1 :status=400"},
		{"Upgrade", put("PUT", "store.test", "/a", "upgrade", "websocket"), "1 :status=400"},
		{"Transfer-Encoding", put("PUT", "store.test", "/a", "transfer-encoding", "chunked"), "1 :status=400"},
		{"line end in a value", put("PUT", "store.test", "/a", "x", "a\r\nfencing-token: 2"), reset},
		{"CONNECT", []string{":method", "CONNECT", ":authority", "store.test:443"}, "1 :status=405"},
		{"extended CONNECT", []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "store.test", ":path", "/a"}, reset},
		{"override", put("POST", "store.test", "/a", "x-http-method-override", "DELETE"), "1 :status=400"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := r.frames()
			f.fields(1, true, tt.fields...)
			if got := f.next(); got != tt.want {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
	f := r.frames()
	f.fields(1, true, put("PUT", "store.test", "/a", "host", "STORE.test")...)
	if got := f.next(); got != "1 :status=200" {
		t.Errorf("the same Host twice: %q; want 200", got)
	}
	if got := <-up.requests; !strings.HasPrefix(got, "PUT /a HTTP/1.1\r\nHost: store.test\r\n") || strings.Count(got, "Host:") != 1 {
		t.Errorf("the upstream saw %q", got)
	}
	if len(up.requests) > 0 {
		t.Errorf("the upstream saw %q too", <-up.requests)
	}
}

func TestH2OptionsStarAndLongHeads(t *testing.T) {
	up, url := record(t, "HTTP/1.1 204 No Content\r\nAllow: PUT\r\n\r\n")
	r := overTLS(t, newRig(t, url, defaultYAML))
	f := r.frames()
	f.fields(1, true, ":method", "OPTIONS", ":scheme", "https", ":authority", "store.test", ":path", "*")
	if got := f.next(); got != "1 :status=204 end" {
		t.Errorf("OPTIONS * = %q; want 204", got)
	}
	if got := <-up.requests; !strings.HasPrefix(got, "OPTIONS * HTTP/1.1\r\n") {
		t.Errorf("the upstream saw %q", got)
	}
	_, resp, err := r.h2do(r.client(), "GET", "/a", nil, "X-Long", strings.Repeat("x", 80<<10))
	if err == nil && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head of 80 KiB was answered %d", resp.StatusCode)
	}
	if len(up.requests) > 0 {
		t.Errorf("a head of 80 KiB was forwarded")
	}
}

func TestH2HangUpDoesNotFreeTheGate(t *testing.T) {
	store := newGatedStore(t)
	r := overTLS(t, newRigWith(t, store, "unmatched_writes: fence\ndefaults: {in_doubt_hold: 1ms}"))
	f := r.frames()
	f.head(1, false, "/a", "33")
	f.data(1, true, "from A")
	receive(t, "33 at the store", store.arrived)
	if err := f.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	b := r.begin("PUT", "/a", "from B", "Fencing-Token", "34")
	r.waiting(1)
	f.head(3, true, "/other", "1") // the connection goes on
	f.until("3 :status=201")
	select {
	case got := <-b:
		t.Errorf("34 = %v although 33 has not landed", got)
	default:
	}
	close(store.release)
	if got := receive(t, "34", b); got.code != 201 {
		t.Errorf("34 = %v; want 201", got)
	}
	applied(t, store.plainStore, "PUT /other 1", "PUT /a 33", "PUT /a 34")
}

// An answer that breaks off ends its stream with an error, and no other.
func TestH2BrokenAnswerResetsItsStreamAlone(t *testing.T) {
	release := make(chan struct{})
	r := overTLS(t, newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-release:
			case <-t.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Length", "1000000")
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
		panic(http.ErrAbortHandler)
	}), defaultYAML))
	f := r.frames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	if err := f.WriteWindowUpdate(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	f.head(1, true, "/slow", "1")
	f.head(3, true, "/cut", "1")
	for _, got := range f.until("3 reset INTERNAL_ERROR") {
		if got != "3 :status=200" && got != "3 data" {
			t.Errorf("before the reset came %q", got)
		}
	}
	close(release)
	if got := f.next(); !strings.HasPrefix(got, "1 :status=200") {
		t.Errorf("the neighbour got %q; want 200", got)
	}
	// The connection still ends in order: a reset could take the last answers of others away.
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(context.Background()) }()
	f.until("goaway NO_ERROR")
	for got := ""; got != "EOF"; {
		if got = f.next(); got != "EOF" && !strings.HasPrefix(got, "goaway") {
			t.Fatalf("the connection ended with %q; want its orderly end", got)
		}
	}
	if _, err := f.conn.(*tls.Conn).NetConn().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("beneath TLS the connection ended with %v; want its orderly end", err)
	}
	if err := receive(t, "Shutdown returns", stopped); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// The bound on a client that stops sending ends the stream that stalls, not its neighbours.
func TestH2StalledBodyEndsItsStreamAlone(t *testing.T) {
	for _, mode := range []string{"spool", "stream"} {
		t.Run(mode, func(t *testing.T) {
			store := newGatedStore(t)
			r := overTLS(t, newRigWith(t, store, h2YAML(mode)))
			r.proxy.SetStall(50 * time.Millisecond)
			f := r.frames()
			f.head(1, true, "/neighbour", "33")
			receive(t, "the neighbour at the store", store.arrived)
			f.head(3, false, "/stalls", "1", "content-length", "1000")
			f.data(3, false, "begun")
			want := "3 :status=408"
			if mode == "stream" {
				want = "3 :status=502" // a part of it is at the store
			}
			if got := f.next(); got != want {
				t.Errorf("the stalled stream got %q; want %q", got, want)
			}
			f.until("3 reset NO_ERROR")
			close(store.release)
			if got := f.next(); got != "1 :status=201" {
				t.Errorf("the neighbour got %q; want 201", got)
			}
		})
	}
}

// The bound on a client that takes nothing of an answer ends its stream, not its neighbours, and frees the gate.
func TestH2ReaderThatStallsEndsItsStreamAlone(t *testing.T) {
	r := overTLS(t, newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 300_000))
	}), defaultYAML))
	r.proxy.SetStall(200 * time.Millisecond)
	f := r.frames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	f.head(1, true, "/a", "1")
	f.until("1 reset INTERNAL_ERROR")
	f.fields(3, true, ":method", "HEAD", ":scheme", "https", ":authority", "store.test", ":path", "/a")
	f.until("3 :status=200 end")
	r.put("/a", 2, "x", 200, "admitted")
}

// A deadline of a stream ends with a frame, for which a connection that takes nothing at all has no room.
func TestH2ConnectionThatTakesNothingIsClosed(t *testing.T) {
	r := overTLS(t, newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Fencing-Token") == "1" {
			_, _ = io.WriteString(w, strings.Repeat("x", 64<<20))
		}
	}), defaultYAML))
	r.proxy.SetStall(200 * time.Millisecond)
	r.server.SetStall(200 * time.Millisecond)
	f := r.frames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	if err := f.WriteWindowUpdate(0, 1<<30); err != nil {
		t.Fatal(err)
	}
	f.head(1, true, "/a", "1")
	eventually(t, "the write is in flight", func() bool { return r.gate.Stats().InFlight == 1 })
	eventually(t, "the write is over", func() bool { return r.gate.Stats().InFlight == 0 })
	r.put("/a", 2, "x", 200, "admitted")
}

// Bodies that wait for the gate must leave room in the connection for the write that they wait for.
func TestH2BodiesThatWaitDoNotStarveTheWriteBefore(t *testing.T) {
	store := newPlainStore()
	r := overTLS(t, newRigWith(t, store, h2YAML("stream")))
	c := r.client()
	pr, pw := io.Pipe()
	first := make(chan reply, 1)
	go func() {
		got, _, err := r.h2do(c, "PUT", "/a", pr, "Fencing-Token", "33")
		if err != nil {
			got.body = err.Error()
		}
		first <- got
	}()
	if _, err := io.WriteString(pw, "begun "); err != nil {
		t.Fatal(err)
	}
	eventually(t, "33 is in flight", func() bool { return r.gate.Stats().InFlight == 1 })
	const waiters = 8
	others := make(chan reply, waiters)
	for range waiters {
		go func() {
			got, _, err := r.h2do(c, "PUT", "/a", strings.NewReader(strings.Repeat("x", 1<<20)), "Fencing-Token", "34")
			if err != nil {
				got.body = err.Error()
			}
			others <- got
		}()
	}
	r.waiting(waiters)
	if _, err := io.WriteString(pw, strings.Repeat("y", 1<<20)); err != nil {
		t.Fatal(err)
	}
	pw.Close()
	if got := receive(t, "33", first); got.code != 201 {
		t.Errorf("33 = %v; want 201", got)
	}
	for range waiters {
		if got := receive(t, "34", others); got.code != 201 {
			t.Errorf("34 = %v; want 201", got)
		}
	}
}

func TestH2ShutdownWaitsForRequestsUnderWay(t *testing.T) {
	store := newGatedStore(t)
	r := overTLS(t, newRigWith(t, store, defaultYAML))
	f := r.frames()
	f.head(1, true, "/a", "33")
	receive(t, "33 at the store", store.arrived)
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(context.Background()) }()
	f.until("goaway NO_ERROR")
	close(store.release)
	f.until("1 :status=201")
	f.until("1 data end")
	if err := receive(t, "Shutdown returns", stopped); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestH2WithCurl(t *testing.T) {
	curl := storetest.Program(t, "curl")
	store := newPlainStore()
	r := overTLS(t, newRigWith(t, store, defaultYAML))
	for _, tt := range []struct{ args, want string }{
		{"-X PUT -d fromB -H Fencing-Token:34", "2 201"},
		{"-X PUT -d fromA -H Fencing-Token:33", "2 412"},
		{"-T /proc/self/exe -H Fencing-Token:33", "2 412"}, // a body that nobody reads
		{"-X PUT -d fromA", "2 428"},
		{"-I", "2 200"},
		{"-X OPTIONS --request-target *", "2 200"},
	} {
		args := append([]string{"-sS", "--http2", "--cacert", r.ca, "-o", "/dev/null", "-w", "%{http_version} %{http_code}", "https://" + r.addr + "/a"}, strings.Fields(tt.args)...)
		out, err := exec.CommandContext(t.Context(), curl, args...).CombinedOutput()
		if strings.HasPrefix(tt.args, "-T") && bytes.Contains(out, []byte("curl: (18)")) && bytes.HasSuffix(out, []byte(tt.want)) {
			continue // curl 7.88 may drop the end of an answer behind which the server resets the stream, as it must (RFC 9113 section 8.1)
		}
		if err != nil || string(out) != tt.want {
			t.Errorf("curl %s: %q, %v; want %q", tt.args, out, err, tt.want)
		}
	}
}
