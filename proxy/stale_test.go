package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy"
)

const staleYAML = `
defaults: {in_doubt_hold: 500ms}
policies:
  - {name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}"}
  - {name: open, match: {path: "/open/{id}"}, resource: "open/{id}", reveal_mark: true}
  - {name: zk, match: {path: "/zk/{id}"}, resource: "zk/{id}", token: {header: Fencing-Token, format: hex}}
  - {name: bids, match: {path: "/bids/{id}"}, resource: "bids/{id}", compare: greater, token: {header: Fencing-Token, format: hex}}
  - {name: raft, match: {path: "/raft/{id}"}, resource: "raft/{id}", token: {header: Fencing-Token, format: pair}}
  - {name: watched, match: {path: "/w/{id}"}, resource: "w/{id}", mode: observe, token: {header: Fencing-Token, format: hex}}
`

func (r *rig) presents(path, token string) reply {
	r.t.Helper()
	return r.must("PUT", path, "x", "Fencing-Token", token)
}

func (r *rig) explain(path, token string) *proxy.Explanation {
	r.t.Helper()
	e, err := proxy.Explain(r.proxy.Policies(), proxy.ExplainRequest{Method: "PUT", URL: path, Header: http.Header{"Fencing-Token": {token}}})
	if err != nil {
		r.t.Fatal(err)
	}
	e.Against(r.proxy)
	return e
}

const (
	farBelow = "more than a thousand times"
	general  = "If this token was taken just now, tell the operator"
)

// A stale writer must not learn from the answer how high the mark is: it would promote itself.
func TestAnswerToAStaleTokenDoesNotDependOnTheMark(t *testing.T) {
	r := newRigWith(t, newPlainStore(), staleYAML)
	r.put("/rides/near", 100_001, "x", 201, "admitted")
	r.put("/rides/far", 48_211_937, "x", 201, "admitted")
	var bodies []string
	for _, id := range []string{"near", "far"} {
		got := r.presents("/rides/"+id, "100")
		refused(t, got, 412, "stale")
		bodies = append(bodies, strings.ReplaceAll(got.body, "rides/"+id, "rides/x"))
	}
	if bodies[0] != bodies[1] {
		t.Errorf("the answers differ:\n%s\n%s", bodies[0], bodies[1])
	}
	if !strings.Contains(bodies[0], general) || strings.Contains(bodies[0], farBelow) {
		t.Errorf("the answer is %s; want the sentence that is the same for all", bodies[0])
	}
}

func TestOperatorLearnsThatATokenIsFarBelowTheMark(t *testing.T) {
	r := newRigWith(t, newPlainStore(), staleYAML)
	for _, path := range []string{"/rides/7", "/open/7"} {
		r.put(path, 48_211_937, "x", 201, "admitted")
	}
	for token, far := range map[string]bool{"12": true, "48211936": false, "48212": false} {
		if got := r.presents("/open/7", token); got.code != 412 || strings.Contains(got.body, farBelow) != far {
			t.Errorf("%s = %v; want 412, far below: %v", token, got.body, far)
		}
		e := r.explain("/rides/7", token)
		if e.Status != 412 || strings.Contains(e.Detail, farBelow) != far || strings.Contains(e.Detail, "set a higher epoch") != far {
			t.Errorf("%s is explained as %+v; want far below: %v", token, e, far)
		}
		if strings.Contains(e.Detail, "48211937") {
			t.Errorf("the explanation names the mark: %s", e.Detail)
		}
		r.presents("/rides/7", token)
		last := r.proxy.Decisions().Last()[0]
		if strings.HasPrefix(last.Reason, "token "+token+" is far below the mark 48211937") != far {
			t.Errorf("%s has the reason %q; want far below: %v", token, last.Reason, far)
		}
	}
}

func TestReasonsWriteTokensAsThePolicyDoes(t *testing.T) {
	r := newRigWith(t, newPlainStore(), staleYAML)
	for _, tt := range []struct{ path, high, low, want string }{
		{"/zk/7", "0x100000002", "0x100000001", `token 0x100000001 is below the mark 0x100000002 of "zk/7"`},
		{"/bids/7", "0x100000002", "0x100000002", `token 0x100000002 is not above the mark 0x100000002 of "bids/7"`},
		{"/raft/7", "7.1042", "0.9", `token 0.9 is below the mark 7.1042 of "raft/7"`},
		{"/w/7", "0x100000002", "0x100000001", `token 0x100000001 is below the mark 0x100000002 of "w/7"`},
	} {
		if got := r.presents(tt.path, tt.high); got.code != 201 {
			t.Fatalf("%s = %v", tt.path, got)
		}
		r.presents(tt.path, tt.low)
		if last := r.proxy.Decisions().Last()[0]; last.Reason != tt.want {
			t.Errorf("%s: the reason is %s; want %s", tt.path, last.Reason, tt.want)
		}
		if !strings.Contains(r.logs.String(), strings.ReplaceAll(tt.want, `"`, `\"`)) {
			t.Errorf("%s: the log lacks %s:\n%s", tt.path, tt.want, r.logs)
		}
	}
}

const leapt = `level=WARN msg="a token is far above the mark that it advanced`

func TestLeapOfATokenIsLogged(t *testing.T) {
	for _, tt := range []struct {
		name, path, first, second string
		want                      string // "": no line
	}{
		{"an etcd revision, then milliseconds", "/rides/1", "48211", "1764467803123", "resource=rides/1 token=1764467803123 client=127.0.0.1 mark=48211 "},
		{"a sequence, then a zxid", "/zk/2", "0x2a", "0x100000002", "resource=zk/2 token=0x100000002 client=127.0.0.1 mark=0x2a "},
		{"observed", "/w/3", "0x2a", "0x100000002", "resource=w/3 token=0x100000002 client=127.0.0.1 mark=0x2a "},
		{"the next one", "/rides/4", "33", "34", ""},
		{"a young counter", "/rides/5", "1", "99999", ""},
		{"the same one", "/rides/6", "1764467803123", "1764467803123", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRigWith(t, newPlainStore(), staleYAML)
			if got := r.presents(tt.path, tt.first); got.code != 201 {
				t.Fatalf("%s = %v", tt.first, got)
			}
			if strings.Contains(r.logs.String(), leapt) {
				t.Errorf("the first token of a resource is logged as a leap:\n%s", r.logs)
			}
			far := "more than a thousand times the mark"
			e := r.explain(tt.path, tt.second)
			if strings.Contains(e.Detail, far) != (tt.want != "") {
				t.Errorf("explained as %q; want it to warn: %v", e.Detail, tt.want != "")
			}
			for range 2 {
				if got := r.presents(tt.path, tt.second); got.code != 201 {
					t.Fatalf("%s = %v", tt.second, got)
				}
			}
			logs := r.logs.String()
			if tt.want == "" && strings.Contains(logs, leapt) {
				t.Errorf("a leap is logged:\n%s", logs)
			}
			if tt.want != "" && (strings.Count(logs, leapt) != 1 || !strings.Contains(logs, tt.want)) {
				t.Errorf("want one line about a leap with %s:\n%s", tt.want, logs)
			}
		})
	}
}

func TestTokenOfAnotherFormatIsExplainedToTheClient(t *testing.T) {
	r := newRigWith(t, newPlainStore(), staleYAML)
	const want = "looks like a ZooKeeper zxid, which is hexadecimal: set format: hex, or send a decimal number"
	p := refused(t, r.presents("/rides/7", "0x100000002"), 400, "malformed")
	e := r.explain("/rides/7", "0x100000002")
	last := r.proxy.Decisions().Last()[0]
	for name, text := range map[string]string{"the answer": p.Detail, "the explanation": e.Detail, "the log": last.Reason} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is %q; want %q", name, text, want)
		}
	}
}
