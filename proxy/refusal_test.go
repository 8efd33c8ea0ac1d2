package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// refused checks everything that a refusal owes a client.
func refused(t *testing.T, got reply, code int, status string) proxy.Problem {
	t.Helper()
	if got.code != code || got.header.Get("Fencing-Status") != status {
		t.Errorf("got %v; want %d %s", got, code, status)
	}
	var p proxy.Problem
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Fatalf("the body is not a problem: %v", err)
	}
	if p.Type != "urn:fenceproxy:"+status || p.Status != code || p.Title == "" || p.Detail == "" || p.Forwarded != "no" {
		t.Errorf("problem = %+v; want type %s, status %d, a title, a detail and forwarded: no", p, status, code)
	}
	if ct := got.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("Content-Type = %q", ct)
	}
	if cc := got.header.Get("Cache-Control"); cc != "no-store" {
		t.Errorf("Cache-Control = %q; want no-store", cc)
	}
	if wait := got.header.Get("Retry-After") != ""; wait != (code == 503) {
		t.Errorf("%d with Retry-After %q", code, got.header.Get("Retry-After"))
	}
	return p
}

func TestRefusals(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, `
policies:
  - {name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}"}
  - {name: bids, match: {path: "/bids/{id}"}, resource: "bids/{id}", compare: greater}
  - {name: open, match: {path: "/open/{id}"}, resource: "open/{id}", reveal_mark: true, stale_status: 409}
`)
	r.put("/rides/7", 34, "kept", 201, "admitted")
	r.put("/bids/7", 34, "kept", 201, "admitted")
	r.put("/open/7", 34, "kept", 201, "admitted")
	tests := []struct {
		name, method, path string
		header             []string
		code               int
		status             string
		resource, policy   string
		token              string
	}{
		{"stale", "PUT", "/rides/7", []string{"Fencing-Token", "33"}, 412, "stale", "rides/7", "rides", "33"},
		{"not greater", "PUT", "/bids/7", []string{"Fencing-Token", "34"}, 412, "stale", "bids/7", "bids", "34"},
		{"own status", "PUT", "/open/7", []string{"Fencing-Token", "33"}, 409, "stale", "open/7", "open", "33"},
		{"missing", "PUT", "/rides/7", nil, 428, "missing", "", "rides", ""},
		{"malformed", "PUT", "/rides/7", []string{"Fencing-Token", "x"}, 400, "malformed", "", "rides", ""},
		{"doubled", "PUT", "/rides/7", []string{"Fencing-Token", "34", "Fencing-Token", "35"}, 400, "malformed", "", "rides", ""},
		{"comma list", "PUT", "/rides/7", []string{"Fencing-Token", "34, 35"}, 400, "malformed", "", "rides", ""},
		{"ambiguous", "PUT", "/rides//7", []string{"Fencing-Token", "34"}, 400, "ambiguous", "", "rides", ""},
		{"unmatched", "PUT", "/other", []string{"Fencing-Token", "34"}, 403, "unmatched", "", "", ""},
		{"reach unknown", "COPY", "/rides/7", []string{"Fencing-Token", "34", "Destination", "/rides/8"}, 403, "unfenceable", "", "", ""},
		{"TRACE", "TRACE", "/rides/7", nil, 405, "refused", "", "", ""},
		{"upgrade", "GET", "/rides/7", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 400, "refused", "", "", ""},
		{"method override", "POST", "/rides/7", []string{"X-HTTP-Method-Override", "DELETE", "Fencing-Token", "34"}, 400, "refused", "", "", ""},
		{"_method", "POST", "/rides/7?_method=DELETE", []string{"Fencing-Token", "34"}, 400, "refused", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(store.applied())
			got := r.must(tt.method, tt.path, "", tt.header...)
			p := refused(t, got, tt.code, tt.status)
			if tt.resource != "" && p.Resource != tt.resource || p.Policy != tt.policy || p.Token != tt.token {
				t.Errorf("problem = %+v; want resource %q, policy %q, token %q", p, tt.resource, tt.policy, tt.token)
			}
			wantMark := ""
			if tt.policy == "open" {
				wantMark = "34"
			}
			if p.Mark != wantMark || wantMark == "" && strings.Contains(got.body+fmt.Sprint(got.header), `"34"`) && tt.token != "34" {
				t.Errorf("the answer shows the mark %q: %s", p.Mark, got.body)
			}
			if tt.code == 405 && got.header.Get("Allow") == "" {
				t.Errorf("405 without Allow")
			}
			if n := len(store.applied()); n != before {
				t.Errorf("the store saw the write")
			}
		})
	}
}

func TestCONNECTIsRefused(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, defaultYAML)
	got := r.raw("CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\nPUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", soon/10)
	if !strings.HasPrefix(got, "HTTP/1.1 405 ") || strings.Contains(got, " 201 ") {
		t.Errorf("CONNECT = %q; want 405", got)
	}
	if store.calls != 0 {
		t.Errorf("the store was called")
	}
}

func TestRawRefusals(t *testing.T) {
	const put = "PUT /d/f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
	tests := []struct {
		name, request string
		code          int
	}{
		{"absolute to another host", "PUT http://other.test/d/f HTTP/1.1\r\nHost: other.test\r\nFencing-Token: 35\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 400},
		{"absolute to another host with our port", "PUT http://other.test:PORT/d/f HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nFencing-Token: 35\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 400},
		{"absolute read of another host", "GET http://other.test/d/f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400},
		{"absolute with user", "PUT http://u@127.0.0.1:PORT/d/f HTTP/1.1\r\nHost: x\r\nConnection: close\r\nFencing-Token: 35\r\nContent-Length: 1\r\n\r\nx", 400},
		{"another scheme", "PUT ftp://x/d/f HTTP/1.1\r\nHost: x\r\nConnection: close\r\nFencing-Token: 35\r\nContent-Length: 1\r\n\r\nx", 400},
		{"HTTP/1.0 chunked", "PUT /d/f HTTP/1.0\r\nFencing-Token: 35\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 411},
		{"HTTP/1.0 without length", "PUT /d/f HTTP/1.0\r\nFencing-Token: 35\r\n\r\n", 411},
		{"two Hosts", "PUT /d/f HTTP/1.1\r\nHost: x\r\nHost: y\r\nFencing-Token: 35\r\nContent-Length: 1\r\n\r\nx", 400},
		{"token named in Connection", "PUT /d/f HTTP/1.1\r\nHost: x\r\nConnection: close, fencing-TOKEN\r\nFencing-Token: 35\r\nContent-Length: 1\r\n\r\nx", 400},
		{"token in a trailer", put + "Trailer: Fencing-Token\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nFencing-Token: 35\r\n\r\n", 428},
		{"doubled Content-Length", put + "Fencing-Token: 35\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", 400},
		{"empty Upgrade before a real one", put + "Upgrade:\r\nUpgrade: h2c\r\nFencing-Token: 33\r\nContent-Length: 1\r\n\r\nx", 412},
		{"unknown expectation", put + "Expect: x\r\nFencing-Token: 35\r\nContent-Length: 1\r\n\r\nx", 417},
		{"broken chunk", put + "Fencing-Token: 34\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n", 400},
		{"huge header", put + "X: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", 431},
	}
	store := newPlainStore()
	r := newRigWith(t, store, defaultYAML)
	r.put("/d/f", 34, "kept", 201, "admitted")
	port := r.url[strings.LastIndexByte(r.url, ':')+1:]
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := r.raw(strings.ReplaceAll(tt.request, "PORT", port), soon)
			if !strings.HasPrefix(got[min(len(got), len("HTTP/1.x ")):], fmt.Sprint(tt.code)) {
				t.Errorf("got %q; want %d", got, tt.code)
			}
			if v := store.get("/d/f"); v != "kept" {
				t.Errorf("the store holds %q", v)
			}
			if m := r.mark("d/f"); m != 34 {
				t.Errorf("the mark is %d; want 34", m)
			}
		})
	}
}

func TestAbsoluteTargetToOurselvesIsFencedAsItsPath(t *testing.T) {
	up, url := record(t, okAnswer)
	r := newRig(t, url, defaultYAML)
	r.put("/d/f", 34, "x", 200, "admitted")
	<-up.requests
	host := strings.TrimPrefix(r.url, "http://")
	for _, h := range []string{host, strings.Replace(host, "127.0.0.1", "LocalHost", 1)} {
		const rest = " HTTP/1.1\r\nHost: whatever\r\nContent-Length: 1\r\nFencing-Token: "
		if got := r.send("PUT", "PUT http://"+h+"/d/f?x"+rest+"33\r\n\r\nx"); got.code != 412 {
			t.Errorf("stale, absolute = %v; want 412", got)
		}
		if got := r.send("PUT", "PUT http://"+h+"/d/f?x"+rest+"34\r\n\r\nx"); got.code != 200 {
			t.Errorf("absolute = %v; want 200", got)
		}
		if got := <-up.requests; !strings.HasPrefix(got, "PUT /d/f?x HTTP/1.1\r\nHost: "+h+"\r\n") {
			t.Errorf("it arrived as %q", got)
		}
		if got := r.send("GET", "GET http://"+h+"?q HTTP/1.1\r\nHost: x\r\n\r\n"); got.code != 200 {
			t.Errorf("absolute without a path = %v", got)
		}
		if got := <-up.requests; !strings.HasPrefix(got, "GET /?q HTTP/1.1\r\n") {
			t.Errorf("it arrived as %q", got)
		}
	}
}

// TestSmuggledRequestIsNotServed sends what a front proxy that believes Content-Length takes for one request.
func TestSmuggledRequestIsNotServed(t *testing.T) {
	const hidden = "GET /secret HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, tt := range []struct{ name, request string }{
		{"CL+TE", "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden},
		{"CL+TE refused", "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden},
		{"CL+TE read", "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden},
		{"HTTP/1.0 TE", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + hidden},
		{"HTTP/1.0 CL+TE", "PUT /a HTTP/1.0\r\nConnection: keep-alive\r\nFencing-Token: 1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx" + hidden},
		{"unread", "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n" + hidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, url := record(t, okAnswer)
			r := newRig(t, url, defaultYAML)
			got := r.raw(tt.request, soon)
			if n := strings.Count(got, "HTTP/1."); n != 1 || !strings.Contains(got, "Connection: close\r\n") {
				t.Errorf("%d answers; want one that closes: %q", n, got)
			}
		})
	}
}

func TestUpstreamThatSwitchesProtocolsUnaskedIsNoTunnel(t *testing.T) {
	up, url := record(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	r := newRig(t, url, defaultYAML)
	got := r.raw("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", soon)
	if !strings.HasPrefix(got, "HTTP/1.1 502 ") {
		t.Errorf("GET = %q; want 502", got)
	}
	got = r.raw("PUT /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nFencing-Token: 1\r\nContent-Length: 1\r\n\r\nx", soon)
	if !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, "Fencing-Status: in-doubt") {
		t.Errorf("PUT = %q; want 502 in-doubt", got)
	}
	if n := len(up.requests); n != 2 {
		t.Errorf("the upstream saw %d requests; want 2", n)
	}
}

func TestBadTokensLeaveTheMark(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, defaultYAML)
	r.put("/d/f", 34, "kept", 201, "admitted")
	for _, token := range []string{
		"+35", "-35", "3_5", "0x35", "1e3", "35.0", "３５", "٣٥", "35abc", "abc35", "35,99", "35 36", "35;", "\"35\"", "18446744073709551615",
		"18446744073709551616", "9223372036854775808", "99999999999999999999999", "0", "00", "035x", "", strings.Repeat("1", 65), "35\t36", "null",
	} {
		got := r.raw("PUT /d/f HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\nFencing-Token: "+token+"\r\n\r\nx", soon)
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "Fencing-Status: malformed") {
			t.Errorf("token %q = %q; want 400 malformed", token, got)
		}
	}
	if m := r.mark("d/f"); m != 34 {
		t.Errorf("mark = %d; want 34", m)
	}
	for _, header := range [][]string{
		{"Fencing-Token", "0034"}, {"Fencing-Token", "34", "Fencing-Token", "34"}, {"Fencing-Token", "34", "X-Fencing-Token", "034"}, {"fencing-token", "34"},
	} {
		if got := r.must("PUT", "/d/f", "kept", header...); got.code != 201 {
			t.Errorf("%q = %v; want 201", header, got)
		}
	}
}

// cleaningStore reads paths as many stores do: decoded, cleaned, without a trailing slash.
type cleaningStore struct{ *plainStore }

func (s cleaningStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, err := url.PathUnescape(r.URL.EscapedPath())
	if err != nil {
		name = r.URL.Path
	}
	name = path.Clean("/" + strings.ReplaceAll(name, "\\", "/"))
	r.URL = &url.URL{Path: name}
	s.plainStore.ServeHTTP(w, r)
}

func TestOtherSpellingsDoNotReachAFencedObject(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, cleaningStore{store}, `
policies: [{name: d, match: {path: "/d/{rest...}"}, resource: "d/{rest}"}]
unmatched_writes: fence
`)
	r.put("/d/f.txt", 34, "kept", 201, "admitted")
	for _, target := range []string{
		"/d/./f.txt", "/d/x/../f.txt", "/d/%2e/f.txt", "/d/x/%2e%2e/f.txt", "/d/x%2f..%2ff.txt", "//d/f.txt", "/d//f.txt", "/d/f.txt/",
		"/d/%66.txt", "/%64/f.txt", "/d/f%2Etxt", "/d%2Ff.txt", "/d%2ff.txt", "/d/f.txt?x=1", "/d/f.txt?", "/d/f.txt#x", "/d\\f.txt", "/d%5Cf.txt",
		"/x/../d/f.txt", "/d/f.txt//", "/d/f.txt/.", "/d/f.txt%00", "/d/\xff/../f.txt", "/./d/f.txt", "/../d/f.txt", "/d/f.txt%2f", "///d/f.txt",
	} {
		got := r.raw("PUT "+target+" HTTP/1.1\r\nHost: other\r\nConnection: close\r\nContent-Length: 1\r\nFencing-Token: 33\r\n\r\nx", soon)
		if !strings.HasPrefix(got, "HTTP/1.1 4") {
			t.Errorf("PUT %q with 33 = %.60q; want a refusal", target, got)
		}
		if v := store.get("/d/f.txt"); v != "kept" {
			t.Fatalf("PUT %q changed the object", target)
		}
	}
}

func TestConnectionMustNotNameAPrecondition(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, defaultYAML)
	for _, name := range []string{"If-Match", "if-none-match", "If", "Authorization", "Content-Encoding"} {
		got := r.must("PUT", "/a", "x", "Fencing-Token", "1", "Connection", "keep-alive, "+name, name, "y")
		if p := refused(t, got, 400, "refused"); p.Forwarded != "no" {
			t.Errorf("Connection: %s = %v; want it refused", name, got)
		}
	}
	if n := len(store.applied()); n != 0 {
		t.Errorf("the store applied %d writes; want none", n)
	}
}
