package proxy_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy"
)

func TestConnectionCannotDropWhoTheClientWas(t *testing.T) {
	up, url := record(t, okAnswer)
	r := newRig(t, url, defaultYAML)
	r.send("PUT", "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 0\r\nX-Forwarded-For: 192.0.2.1\r\nX-Mine: 1\r\n"+
		"Connection: x-forwarded-for\r\nConnection: close , X-MINE\r\nTe: gzip, Trailers\r\n\r\n")
	got := <-up.requests
	for _, want := range []string{"X-Forwarded-For: 192.0.2.1", "Te: trailers"} {
		if !strings.Contains(got, "\r\n"+want+"\r\n") {
			t.Errorf("the upstream does not see %q in %q", want, got)
		}
	}
	for _, not := range []string{"x-mine", "connection", "gzip"} {
		if strings.Contains(strings.ToLower(got), not) {
			t.Errorf("the upstream sees %q in %q", not, got)
		}
	}
}

func TestInterimAnswersCarryNoWordOfTheProxy(t *testing.T) {
	for _, mode := range []string{"spool", "stream"} {
		_, url := record(t, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nFencing-Status: stale\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n"+okAnswer)
		r := newRig(t, url, "unmatched_writes: fence\ndefaults: {request_body: "+mode+"}\n")
		got := r.raw("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody", soon)
		hints, final, _ := strings.Cut(got, "\r\n\r\n")
		if hints != "HTTP/1.1 103 Early Hints\r\nLink: </a>" || !strings.HasPrefix(final, "HTTP/1.1 200 OK") || strings.Contains(final, "Link") {
			t.Errorf("%s: the client sees %q; want 103 with its own header alone, then 200", mode, got)
		}
	}
}

func TestTrailersThatNobodyAnnouncedArrive(t *testing.T) {
	_, url := record(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n")
	r := newRig(t, url, defaultYAML)
	for _, method := range []string{"GET", "PUT"} {
		got := r.raw(method+" /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nConnection: close\r\n\r\n", soon)
		if !strings.HasSuffix(got, "\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n") {
			t.Errorf("%s: the client sees %q; want the trailer", method, got)
		}
	}
}

func TestSizedEventStreamLeavesPieceByPiece(t *testing.T) {
	seen := make(chan struct{})
	url := wire(t, func(c *wireConn, _ int) {
		if _, err := c.request(); err != nil {
			return
		}
		c.say("HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nContent-Length: 12\r\n\r\n")
		for range 3 {
			select {
			case <-seen: // the head first
			case <-t.Context().Done():
			}
			c.say("one\n")
		}
	})
	r := newRig(t, url, defaultYAML)
	c := r.dial()
	c.say("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		seen <- struct{}{}
		if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
}

// The server allows no read of a body once the handler has returned; the transport may still try.
func TestBodyIsNotReadWhenTheRequestIsOver(t *testing.T) {
	n, err := io.Copy(io.Discard, proxy.BodyOfFinishedRequest(io.NopCloser(strings.NewReader("body"))))
	if n != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes, %v; want an error", n, err)
	}
}
