package proxy_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// send writes raw bytes on a new connection and returns the answer.
func (r *rig) send(method, request string) reply {
	r.t.Helper()
	c := r.dial()
	c.say(request)
	got, err := c.answer(method)
	if err != nil {
		r.t.Fatalf("%.80q: %v", request, err)
	}
	return got
}

func TestRequestTargetArrivesByteForByte(t *testing.T) {
	up, url := record(t, okAnswer)
	r := newRig(t, url, defaultYAML)
	fenced := newRig(t, url, `
policies:
  - name: all
    match: {path: "/{rest...}"}
    resource: "{rest}"
    identity: {dot_segments: literal, empty_segments: literal, encoded_slash: literal, trailing_slash: distinct}
`)
	for _, target := range []string{
		"/", "/a%2fb", "/a%2Fb", "/%7Ex", "/~x", "/a;b=1", "/{x}", "/a%2fb/{x}", "/a|b", "/a^b`c\"<>", "/\xc3\xa9", "/%c3%a9", "/a?", "/a?a;b=%zz",
		"/a?x=1&x=2&x=1", "/a?b?c", "//a/b", "/a//b", "/a/./b/../c", "/%2e%2e/a", "/a%20b+c", "/a:b@c", "//a%2fb", "/[x]", "/*",
	} {
		if got := r.send("GET", "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n"); got.code != 200 {
			t.Errorf("GET %q = %v; want 200", target, got)
		} else if line, _, _ := strings.Cut(<-up.requests, "\r\n"); line != "GET "+target+" HTTP/1.1" {
			t.Errorf("GET %q arrived as %q", target, line)
		}
		got := fenced.send("PUT", "PUT "+target+" HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 0\r\n\r\n")
		if got.code != 200 {
			continue // a policy may find it ambiguous
		}
		if line, _, _ := strings.Cut(<-up.requests, "\r\n"); line != "PUT "+target+" HTTP/1.1" {
			t.Errorf("PUT %q arrived as %q", target, line)
		}
	}
	for _, target := range []string{"//a%2fb/{x}", "//a|b"} {
		if got := r.send("GET", "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n"); got.code != 400 {
			t.Errorf("GET %q = %v; want 400, since it cannot be sent as it is", target, got)
		}
	}
	if got := r.send("OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); got.code != 200 {
		t.Errorf("OPTIONS * = %v; want 200", got)
	} else if line, _, _ := strings.Cut(<-up.requests, "\r\n"); line != "OPTIONS * HTTP/1.1" {
		t.Errorf("OPTIONS * arrived as %q", line)
	}
}

func TestRequestHeadersArriveAsSent(t *testing.T) {
	up, url := record(t, okAnswer)
	r := newRig(t, url, defaultYAML)
	head := "PUT /a HTTP/1.1\r\nHost: Store.Example.test:99\r\nFencing-Token: 7\r\nContent-Length: 4\r\n" +
		"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authorization: x\r\nProxy-Connection: x\r\nTe: gzip\r\n" +
		"If-Match: \"a\"\r\nIf-None-Match: *\r\nIf: (<x>)\r\nX-Twice: b\r\nX-Twice: a\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n" +
		"X-Forwarded-Host: h\r\nForwarded: for=x\r\nContent-Encoding: gzip\r\nAuthorization: AWS4 x\r\nIdempotency-Key: k\r\nDate: yesterday\r\n\r\n"
	if got := r.send("PUT", head+"body"); got.code != 200 {
		t.Fatalf("PUT = %v; want 200", got)
	}
	got := <-up.requests
	for _, want := range []string{
		"Host: Store.Example.test:99", "Fencing-Token: 7", "Content-Length: 4", "If-Match: \"a\"", "If-None-Match: *", "If: (<x>)",
		"X-Twice: b\r\nX-Twice: a", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "X-Forwarded-Host: h", "Forwarded: for=x",
		"Content-Encoding: gzip", "Authorization: AWS4 x", "Idempotency-Key: k", "Date: yesterday",
	} {
		if !strings.Contains(got, "\r\n"+want+"\r\n") {
			t.Errorf("the upstream does not see %q", want)
		}
	}
	for _, not := range []string{"connection:", "x-hop", "keep-alive", "proxy-", "te:", "user-agent", "accept-encoding", "transfer-encoding", "via:", "expect:"} {
		if strings.Contains(strings.ToLower(got), "\r\n"+not) {
			t.Errorf("the upstream sees %q in %q", not, got)
		}
	}
	if !strings.HasSuffix(got, "\r\n\r\nbody") {
		t.Errorf("the body did not arrive: %q", got)
	}
	if n := strings.Count(got, "\r\n"); n != strings.Count(head, "\r\n")-6 {
		t.Errorf("%d lines arrived of %d; six are of the connection: %q", n, strings.Count(head, "\r\n"), got)
	}
}

func TestPreserveHostFalseSendsTheUpstreamsName(t *testing.T) {
	up, url := record(t, okAnswer)
	r := newRig(t, url, "upstream: {preserve_host: false}\n"+defaultYAML)
	r.must("PUT", "/a", "x", "Host", "client.test", "Fencing-Token", "1")
	if got := <-up.requests; !strings.Contains(got, "\r\nHost: "+strings.TrimPrefix(url, "http://")+"\r\n") {
		t.Errorf("the upstream sees %q; want its own Host", got)
	}
}

func TestFramingAndTrailersOfRequests(t *testing.T) {
	for _, mode := range []string{"spool", "stream"} {
		t.Run(mode, func(t *testing.T) {
			up, url := record(t, okAnswer)
			r := newRig(t, url, "unmatched_writes: fence\ndefaults: {request_body: "+mode+"}\n")
			r.send("PUT", "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 9\r\n\r\n")
			got := <-up.requests
			if !strings.Contains(got, "Transfer-Encoding: chunked\r\n") || strings.Contains(got, "Content-Length") {
				t.Errorf("a chunked body arrived as %q", got)
			}
			if !strings.Contains(got, "Trailer: X-Sum\r\n") || !strings.HasSuffix(got, "0\r\nX-Sum: 9\r\n\r\n") {
				t.Errorf("the trailer is missing in %q", got)
			}
			r.send("PUT", "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 4\r\n\r\nbody")
			if got := <-up.requests; !strings.Contains(got, "\r\nContent-Length: 4\r\n") || strings.Contains(got, "chunked") {
				t.Errorf("a sized body arrived as %q", got)
			}
			r.send("PUT", "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 0\r\n\r\n")
			if got := <-up.requests; !strings.Contains(got, "\r\nContent-Length: 0\r\n") {
				t.Errorf("an empty body arrived as %q", got)
			}
			r.send("DELETE", "DELETE /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\n\r\n")
			if got := <-up.requests; strings.Contains(got, "Content-Length") || strings.Contains(got, "chunked") {
				t.Errorf("a DELETE without a body arrived as %q", got)
			}
		})
	}
}

func TestAnswersArriveAsSent(t *testing.T) {
	var gz bytes.Buffer
	zw := gzip.NewWriter(&gz)
	_, _ = io.WriteString(zw, "text")
	_ = zw.Close()
	tests := []struct {
		name, method, answer string
		check                func(*testing.T, string)
	}{
		{"headers", "GET", "HTTP/1.1 200 Fine\r\nSet-Cookie: b\r\nSet-Cookie: a\r\nETag: \"x\"\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: x\r\nContent-Length: 2\r\n\r\nok",
			func(t *testing.T, got string) {
				if !strings.Contains(got, "Set-Cookie: b\r\nSet-Cookie: a\r\n") || !strings.Contains(got, "Etag: \"x\"\r\n") {
					t.Errorf("headers are missing")
				}
				if low := strings.ToLower(got); strings.Contains(low, "x-hop") || strings.Contains(low, "keep-alive") || strings.Contains(low, "content-type") {
					t.Errorf("headers that were not the answer's own")
				}
			}},
		{"gzip", "GET", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + fmt.Sprint(gz.Len()) + "\r\n\r\n" + gz.String(),
			func(t *testing.T, got string) {
				if !strings.HasSuffix(got, gz.String()) || !strings.Contains(got, "Content-Encoding: gzip\r\n") {
					t.Errorf("the bytes were touched")
				}
			}},
		{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n", func(t *testing.T, got string) {
			if !strings.Contains(got, "Content-Length: 12345\r\n") {
				t.Errorf("no Content-Length")
			}
		}},
		{"204", "DELETE", "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", func(t *testing.T, got string) {
			if !strings.HasPrefix(got, "HTTP/1.1 204 No Content\r\n") || !strings.Contains(got, "Fencing-Status: admitted") {
				t.Errorf("not a fenced 204")
			}
		}},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\n\r\n", func(t *testing.T, got string) {
			if !strings.HasPrefix(got, "HTTP/1.1 304 Not Modified\r\n") || !strings.Contains(got, "Etag: \"x\"\r\n") {
				t.Errorf("not the 304")
			}
		}},
		{"103", "PUT", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + okAnswer, func(t *testing.T, got string) {
			hints, final, _ := strings.Cut(got, "\r\n\r\n")
			if hints != "HTTP/1.1 103 Early Hints\r\nLink: </a>" || !strings.HasPrefix(final, "HTTP/1.1 200 OK") || strings.Contains(final, "Link") {
				t.Errorf("want 103 with its header, then 200")
			}
		}},
		{"trailers", "PUT", "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n", func(t *testing.T, got string) {
			if !strings.Contains(got, "Trailer: X-Sum\r\n") || !strings.HasSuffix(got, "2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n") {
				t.Errorf("the trailer is missing")
			}
		}},
		{"redirect", "PUT", "HTTP/1.1 303 See Other\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", func(t *testing.T, got string) {
			if !strings.Contains(got, "HTTP/1.1 303") || !strings.Contains(got, "Location: http://elsewhere/\r\n") {
				t.Errorf("the redirect was followed or changed")
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, url := record(t, tt.answer)
			r := newRig(t, url, defaultYAML)
			got := r.raw(tt.method+" /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nConnection: close\r\n\r\n", soon)
			tt.check(t, got)
			if t.Failed() {
				t.Logf("the client sees %q", got)
			}
		})
	}
}

func TestInterimAnswersAreNotForHTTP10(t *testing.T) {
	_, url := record(t, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"+okAnswer)
	r := newRig(t, url, defaultYAML)
	if got := r.raw("GET /a HTTP/1.0\r\n\r\n", soon); !strings.HasPrefix(got, "HTTP/1.0 200 OK\r\n") || strings.Contains(got, "Link") {
		t.Errorf("the client sees %q; want the final answer alone", got)
	}
}

func TestUnsizedAnswersLeavePieceByPiece(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		for _, method := range []string{"GET", "POST"} {
			seen := make(chan struct{})
			url := wire(t, func(c *wireConn, _ int) {
				if _, err := c.request(); err != nil {
					return
				}
				c.say(head)
				for range 3 {
					c.say("4\r\none\n\r\n")
					select {
					case <-seen:
					case <-t.Context().Done():
					}
				}
				c.say("0\r\n\r\n")
			})
			r := newRig(t, url, defaultYAML)
			c := r.dial()
			c.say(method + " /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\n\r\n")
			resp, err := http.ReadResponse(c.br, nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // the next piece comes only when this one was seen
				if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
					t.Fatalf("%s: %v", method, err)
				}
				seen <- struct{}{}
			}
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
				t.Errorf("%s: the end is %q, %v", method, rest, err)
			}
		}
	}
}

func TestSmallSizedAnswerLeavesInOneSegment(t *testing.T) {
	_, url := record(t, okAnswer)
	r := newRig(t, url, defaultYAML)
	for _, method := range []string{"GET", "PUT"} {
		c := r.dial()
		c.say(method + " /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 0\r\n\r\n")
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil || !strings.HasSuffix(string(buf[:n]), "\r\n\r\nok") {
			t.Errorf("%s: the first segment is %q, %v; want head and body", method, buf[:n], err)
		}
	}
}

func TestConnectionsAreKept(t *testing.T) {
	up, url := record(t, okAnswer)
	r := newRig(t, url, defaultYAML)
	c := r.dial()
	for i := range 3 {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			body := "Content-Length: 4\r\n\r\nbody"
			if method == "GET" {
				body = "\r\n"
			}
			c.say(method + " /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\n" + body)
			if got, err := c.answer(method); err != nil || got.code != 200 || got.header.Get("Connection") != "" {
				t.Fatalf("%s %d on one connection = %v, %v", method, i, got, err)
			}
			<-up.requests
		}
	}
	if n := up.conns.Load(); n != 1 {
		t.Errorf("%d connections to the upstream for requests one after another; want 1", n)
	}
}
