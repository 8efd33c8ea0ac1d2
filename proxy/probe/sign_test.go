package probe_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/probe"
)

// TestSign signs the examples that AWS documents for S3 ("Signature Calculations for the Authorization Header").
func TestSign(t *testing.T) {
	c := probe.Credentials{Key: "AKIAIOSFODNN7EXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", Region: "us-east-1"}
	now := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	const host, empty = "examplebucket.s3.amazonaws.com", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for _, tt := range []struct {
		name, method, target, payload string
		header                        []string
		want                          string
	}{
		{"GET object", "GET", "/test.txt", empty, []string{"Range", "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{
			"PUT object", "PUT", "/test$file.text", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
			[]string{"Date", "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class", "REDUCED_REDUNDANCY"},
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
		},
		{"GET bucket lifecycle", "GET", "/?lifecycle", empty, nil, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"GET bucket", "GET", "/?max-keys=2&prefix=J", empty, nil, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := probe.Sign(c, tt.method, tt.target, host, tt.payload, now, false, tt.header...)
			if !strings.HasPrefix(got, "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=") || !strings.HasSuffix(got, ",Signature="+tt.want) {
				t.Errorf("Authorization %q; want the signature %s", got, tt.want)
			}
		})
	}
}

func TestCanonicalURI(t *testing.T) {
	for target, want := range map[string]string{
		"/b/d/f.txt":                "/b/d/f.txt",
		"/b/d/./f.txt":              "/b/d/./f.txt",
		"/b/d//f.txt":               "/b/d//f.txt",
		"/b/d/f%2etx%74?x=1":        "/b/d/f.txt",
		"/b/d%2Ff.txt":              "/b/d/f.txt",
		"/b/d/f.txt;v=1":            "/b/d/f.txt%3Bv%3D1",
		"/b/d/%c3%a9":               "/b/d/%C3%A9",
		"/b/d/f%2574":               "/b/d/f%2574",
		"/b/d/f+b":                  "/b/d/f%2Bb",
		"http://store:1/b/d/f%7e":   "/b/d/f~",
		"http://store:1/b/d/a%20b?": "/b/d/a%20b",
	} {
		if got, _ := probe.CanonicalURI(target); got != want {
			t.Errorf("CanonicalURI(%q) = %q; want %q", target, got, want)
		}
	}
	if _, raw := probe.CanonicalURI("http://store/b/d/f%7e?x=1"); raw != "/b/d/f%7e" {
		t.Errorf("raw %q; want the path as it is sent", raw)
	}
}

// TestSignsBothForms probes stores that check signatures over one form of the path alone.
func TestSignsBothForms(t *testing.T) {
	c := probe.Credentials{Key: "K", Secret: "S", Session: "T", Region: "eu-1"}
	for _, form := range []string{"encoded", "raw"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := newFlatStore()
			s.refuse = func(r *http.Request) int {
				if r.Header.Get("Authorization") != signature(t, c, r, form == "raw") {
					return http.StatusForbidden
				}
				return 0
			}
			report := run(t, serve(t, s)+"/bucket", func(cfg *probe.Config) { cfg.S3 = &c })
			expect(t, report, flatVerdicts(), map[string]string{"if-match": "ignored", "partial-put": "replaces the object", "_method": "ignored"})
			s.expectEmpty(t)
		})
	}
	t.Run("wrong", func(t *testing.T) {
		s := newFlatStore()
		s.refuse = func(r *http.Request) int {
			if r.Header.Get("Authorization") != signature(t, c, r, false) {
				return http.StatusForbidden
			}
			return 0
		}
		wrong := c
		wrong.Secret = "another"
		_, err := tryRun(t, context.Background(), serve(t, s)+"/bucket", func(cfg *probe.Config) { cfg.S3 = &wrong })
		if e, ok := errors.AsType[*probe.StoreError](err); !ok || e.Status != http.StatusForbidden {
			t.Errorf("Run with another secret = %v; want a StoreError with 403", err)
		}
	})
}

// signature is what a request should carry, over the headers that it says are signed.
func signature(t *testing.T, c probe.Credentials, r *http.Request, raw bool) string {
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		t.Error(err)
	}
	_, names, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	var header []string
	for name := range strings.SplitSeq(names, ";") {
		switch name {
		case "host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token":
		default:
			header = append(header, name, r.Header.Get(name))
		}
	}
	return probe.Sign(c, r.Method, r.RequestURI, r.Host, "UNSIGNED-PAYLOAD", at, raw, header...)
}
